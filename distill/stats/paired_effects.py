"""The difference of two arms trained with the same seeds and asked the same questions, and many such claims at once.

Outcomes of two arms are paired twice: by question, and by training seed (the same order of data and the same initial
weights). Their differences have a random part of the seed, one of the question and a rest:

    difference[seed, question] = effect + seed part + question part + rest

The variances of the parts are estimated by the analysis of variance of a two-way table without repetition, and the
degrees of freedom of the effect's variance by Satterthwaite's rule (Satterthwaite 1946; Searle, Casella and McCulloch
1992, chapter 5). What a seed does to both arms cancels, so the interval is narrower than one that treats the runs of
the two arms as unrelated.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.stats.intervals import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEffect:
    delta: float
    """Mean difference, between -1 and 1."""
    ci95: Interval
    p: float
    """Two-sided."""
    seeds: int
    n: int
    """Questions."""
    standard_error: float
    degrees_of_freedom: float
    detectable: float
    """The smallest true difference that such a comparison finds with a probability of 80 % at a level of 5 %."""


def paired_effect(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> PairedEffect:
    """The effect of `first` over `second`; both are seeds x questions, in the same order of seeds and questions.

    One seed: the interval covers the choice of questions alone. Raises ValueError for arms that are not paired.
    """
    import numpy as np

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or 0 in a.shape:
        raise ValueError(f"paired arms need the same seeds and questions, got {a.shape} and {b.shape}")
    difference = a - b
    seeds, n = difference.shape
    delta = float(difference.mean())
    if n == 1:
        variance, freedom = math.inf, 1.0
    elif seeds == 1:
        variance, freedom = float(difference.var(ddof=1)) / n, float(n - 1)
    else:
        variance, freedom = _variance_of_mean(difference, delta)
    return _tested(delta, variance, freedom, seeds, n)


def _variance_of_mean(difference: Any, delta: float) -> tuple[float, float]:
    """The variance of the mean of seeds x questions, and its degrees of freedom."""
    seeds, n = difference.shape
    of_seed, of_question = difference.mean(axis=1), difference.mean(axis=0)
    rest = difference - of_seed[:, None] - of_question[None, :] + delta
    by_seed = n * float(((of_seed - delta) ** 2).sum()) / (seeds - 1)
    by_question = seeds * float(((of_question - delta) ** 2).sum()) / (n - 1)
    by_rest = float((rest**2).sum()) / ((seeds - 1) * (n - 1))
    # A part whose estimate is below zero has no variance of its own: its mean square estimates the rest.
    seed_counts, question_counts = int(by_seed > by_rest), int(by_question > by_rest)
    terms = (
        (seed_counts * by_seed, seeds - 1),
        (question_counts * by_question, n - 1),
        ((1 - seed_counts - question_counts) * by_rest, (seeds - 1) * (n - 1)),
    )
    total = sum(term for term, _ in terms)
    spread = sum(term**2 / degrees for term, degrees in terms)
    freedom = total**2 / spread if spread > 0 else float(seeds * n - 1)
    return total / (seeds * n), freedom


def _tested(delta: float, variance: float, freedom: float, seeds: int, n: int) -> PairedEffect:
    from scipy.stats import t

    error = math.sqrt(variance)
    if error == 0:  # the arms differ by the same everywhere, most often not at all
        low, high, p, detectable = delta, delta, (1.0 if delta == 0 else 0.0), 0.0
    elif math.isinf(error):
        low, high, p, detectable = -1.0, 1.0, 1.0, math.inf
    else:
        half = float(t.ppf(0.975, freedom)) * error
        low, high = max(-1.0, delta - half), min(1.0, delta + half)
        p = float(2 * t.sf(abs(delta) / error, freedom))
        detectable = half + float(t.ppf(0.8, freedom)) * error
    return PairedEffect(
        delta=delta,
        ci95=(low, high),
        p=p,
        seeds=seeds,
        n=n,
        standard_error=error,
        degrees_of_freedom=freedom,
        detectable=detectable,
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """P-values adjusted for their number by Holm's step-down rule (Holm 1979); at most 1.

    With all of them below 0.05 rejected, the probability of one false rejection or more is at most 5 %.
    """
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    adjusted: dict[str, float] = {}
    largest = 0.0
    for index, (name, p) in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - index) * p))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}
