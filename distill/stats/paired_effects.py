"""The difference of two arms trained with the same seeds and asked the same questions, and many such claims at once.

Outcomes of two arms are paired twice: by question, and by training seed (the same order of data and the same initial
weights). Their differences have a random part of the seed, one of the question and a rest:

    difference[seed, question] = effect + seed part + question part + rest

The variances of the parts are estimated by the analysis of variance of a two-way table without repetition, and the
degrees of freedom of the effect's variance by Satterthwaite's rule (Satterthwaite 1946; Searle, Casella and McCulloch
1992, chapter 5). What a seed does to both arms cancels, so the interval is narrower than one that treats the runs of
the two arms as unrelated.

Few seeds know the variance of their own part badly. The comparisons of one ablation come from similar runs, so they
share their estimate of the spread: `seed_spread` fits a scaled F distribution to the ratios of their mean squares
(seed over rest), and each comparison shrinks its ratio to it (empirical Bayes, Smyth 2004, Statistical Applications
in Genetics and Molecular Biology 3(1)).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distill.stats.intervals import Interval, wilson


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
    seed_ratio: float | None = None
    """Mean square of the seeds over that of the rest, before shrinking: 1 where seeds differ by chance alone."""
    deviations: "Deviations | None" = None
    """None with one seed or one question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviations:
    """Standard deviations of the parts of a difference; 0 where the estimate of a variance is below zero."""

    seed: float
    question: float
    rest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSpread:
    """How much seeds differ, estimated from all comparisons of an ablation together."""

    ratio: float
    degrees_of_freedom: float
    """How many degrees of freedom that knowledge is worth to a comparison; 0: nothing, infinite: ratios are equal."""
    max_degrees_of_freedom: float
    """Degrees of freedom of the seeds of all comparisons; fewer than their sum, as they share an arm."""


FEWEST_COMPARISONS = 3
"""Fewer ratios say nothing of how ratios differ."""
_SHARED_ARM = 0.25
"""Squared correlation of the seed parts of two comparisons with one arm in common (a half)."""


def seed_spread(effects: Iterable[PairedEffect]) -> SeedSpread | None:
    """The seed ratios of comparisons with one arm in common, or None where there are too few with several seeds."""
    import numpy as np
    from scipy.special import digamma, polygamma

    known = [(effect.seed_ratio, effect.seeds - 1) for effect in effects if effect.seed_ratio]
    if len(known) < FEWEST_COMPARISONS:
        return None
    ratios, degrees = (np.asarray(column, dtype=np.float64) for column in zip(*known, strict=True))
    logs = np.log(ratios) - digamma(degrees / 2) + np.log(degrees / 2)
    variance = float(logs.var(ddof=1) - polygamma(1, degrees / 2).mean())
    if variance > 0:
        freedom = 2 * _inverse_trigamma(variance)
        ratio = math.exp(float(logs.mean()) + float(digamma(freedom / 2)) - math.log(freedom / 2))
    else:
        freedom, ratio = math.inf, float(np.average(ratios, weights=degrees))
    return SeedSpread(
        ratio=ratio,
        degrees_of_freedom=freedom,
        max_degrees_of_freedom=_independent(len(known)) * float(degrees.mean()),
    )


def _independent(comparisons: int) -> float:
    """The number of independent comparisons with as much information about seeds as these comparisons, which share an
    arm."""
    return comparisons / (1 + (comparisons - 1) * _SHARED_ARM)


def _inverse_trigamma(value: float) -> float:
    """The x whose trigamma is `value`, by Newton's method (Smyth 2004, appendix)."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x


def paired_effect(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], spread: SeedSpread | None = None
) -> PairedEffect:
    """The effect of `first` over `second`; both are seeds x questions, in the same order of seeds and questions.

    `spread`: what the comparisons of the same ablation know of their seeds. Without it two or three seeds alone give
    intervals that are wider than needed. One seed: the interval covers the choice of questions alone. Raises
    ValueError for arms that are not paired.
    """
    import numpy as np

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 2 or 0 in a.shape:
        raise ValueError(f"paired arms need the same seeds and questions, got {a.shape} and {b.shape}")
    difference = a - b
    seeds, n = difference.shape
    delta = float(difference.mean())
    if n == 1:
        return _tested(delta, math.inf, 1.0, seeds, n)
    if seeds == 1:
        return _tested(delta, float(difference.var(ddof=1)) / n, float(n - 1), seeds, n)
    by_seed, by_question, by_rest = _mean_squares(difference, delta)
    ratio = by_seed / by_rest if by_rest > 0 else None
    seed_freedom = float(seeds - 1)
    seed_square = by_seed
    if spread is not None and ratio is not None:
        shrunk, seed_freedom = _shrunk(ratio, seeds - 1, spread)
        seed_square = shrunk * by_rest
    variance, freedom = _variance_of_mean((seed_square, by_question, by_rest), seed_freedom, seeds, n)
    deviations = Deviations(
        seed=math.sqrt(max(0.0, by_seed - by_rest) / n),
        question=math.sqrt(max(0.0, by_question - by_rest) / seeds),
        rest=math.sqrt(by_rest),
    )
    return replace(_tested(delta, variance, freedom, seeds, n), seed_ratio=ratio, deviations=deviations)


def share_of_seeds(outcomes: Sequence[Sequence[float]], spread: SeedSpread | None = None) -> tuple[float, Interval]:
    """The share of right answers over seeds x questions, and its interval.

    Wilson's interval of as many questions as a simple sample with the variance of this share has, with the quantile
    of Student's t for the degrees of freedom of that variance. `spread`: as for `paired_effect`, of the arms' shares.
    One seed: the interval covers the choice of questions alone.
    """
    effect = paired_effect(outcomes, [[0.0] * len(row) for row in outcomes], spread)
    return effect.delta, _share_interval(effect.delta, effect.n, effect)


def ratio_of_seeds(hits: Sequence[Sequence[float]], cases: Sequence[Sequence[float]]) -> Interval:
    """The interval of the share of the cases that are hits, over seeds x questions of which some are cases.

    As `share_of_seeds`, with the variance of a ratio (Cochran 1977, Sampling Techniques, section 6.4): replies to one
    question, and replies of one training, are correlated, so the cases are not a simple sample. One seed: Wilson's
    interval.
    """
    import numpy as np

    hit, case = np.asarray(hits, dtype=np.float64), np.asarray(cases, dtype=np.float64)
    share, of_seed = float(hit.sum() / case.sum()), float(case.sum()) / len(case)
    residuals = (hit - share * case) / case.mean()
    return _share_interval(share, of_seed, paired_effect(residuals, np.zeros_like(residuals)))


def _share_interval(share: float, n: float, effect: PairedEffect) -> Interval:
    """Wilson's interval of a share with the variance of `effect`; of one seed, and at the ends, of `n` cases."""
    from scipy.special import stdtrit

    if effect.seeds == 1 or effect.n == 1 or not 0 < share < 1 or effect.standard_error == 0:
        return wilson(share * n, n)
    simple = share * (1 - share) / effect.standard_error**2
    return wilson(share * simple, simple, float(stdtrit(effect.degrees_of_freedom, 0.975)))


def _mean_squares(difference: Any, delta: float) -> tuple[float, float, float]:
    """Mean squares of seeds, questions and the rest in a table of seeds x questions."""
    seeds, n = difference.shape
    of_seed, of_question = difference.mean(axis=1), difference.mean(axis=0)
    rest = difference - of_seed[:, None] - of_question[None, :] + delta
    by_seed = n * float(((of_seed - delta) ** 2).sum()) / (seeds - 1)
    by_question = seeds * float(((of_question - delta) ** 2).sum()) / (n - 1)
    return by_seed, by_question, float((rest**2).sum()) / ((seeds - 1) * (n - 1))


def _variance_of_mean(
    mean_squares: tuple[float, float, float], seed_freedom: float, seeds: int, n: int
) -> tuple[float, float]:
    """The variance of the mean of seeds x questions, and its degrees of freedom."""
    by_seed, by_question, by_rest = mean_squares
    # Mean squares of seeds and questions hold that of the rest once each. A part without variance of its own has an
    # estimate below it by chance: the rest is what it is at least.
    terms = [(max(by_seed, by_rest), seed_freedom)]
    if by_question > by_rest:
        terms += [(by_question, n - 1), (-by_rest, (seeds - 1) * (n - 1))]
    total = sum(term for term, _ in terms)
    uncertainty = sum(term**2 / degrees for term, degrees in terms)
    freedom = total**2 / uncertainty if uncertainty > 0 else float(seeds * n - 1)
    return total / (seeds * n), freedom


def planned_detectable(
    deviations: Deviations, *, seeds: int, n: int, comparisons: int, level: float
) -> tuple[float, float]:
    """Half the width of a 95 % interval, and the smallest true difference found with 80 % at `level`, before any run.

    `comparisons`: the arms that are compared with one reference, whose seeds are known together.
    """
    from scipy.stats import t

    if n == 1:  # of one question, no difference is found
        return 1.0, math.inf
    squares = (
        n * deviations.seed**2 + deviations.rest**2,
        seeds * deviations.question**2 + deviations.rest**2,
        deviations.rest**2,
    )
    if seeds == 1:
        variance, freedom = sum(value**2 for value in (deviations.question, deviations.rest)) / n, float(n - 1)
    else:
        known = _independent(comparisons) if comparisons >= FEWEST_COMPARISONS else 1.0
        variance, freedom = _variance_of_mean(squares, known * (seeds - 1), seeds, n)
    error = math.sqrt(variance)
    return float(t.ppf(0.975, freedom)) * error, float(t.ppf(1 - level / 2, freedom) + t.ppf(0.8, freedom)) * error


def _shrunk(ratio: float, degrees: int, spread: SeedSpread) -> tuple[float, float]:
    """A seed ratio after shrinking to the ratio of all comparisons, and its degrees of freedom."""
    if math.isinf(spread.degrees_of_freedom):
        shrunk = spread.ratio
    else:
        both = spread.degrees_of_freedom + degrees
        shrunk = (spread.degrees_of_freedom * spread.ratio + degrees * ratio) / both
    return shrunk, min(spread.degrees_of_freedom + degrees, spread.max_degrees_of_freedom)


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


def holm(p_values: Mapping[str, float], claims: int) -> dict[str, float]:
    """P-values adjusted by Holm's step-down rule (Holm 1979) for a number of claims, tested yet or not; at most 1.

    If all hypotheses with a value below 0.05 are rejected, the probability of at least one false rejection is at most
    5 %, also if only a part of the claims is tested yet.
    """
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    adjusted: dict[str, float] = {}
    largest = 0.0
    for index, (name, p) in enumerate(ordered):
        largest = max(largest, min(1.0, (claims - index) * p))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}
