"""How often the printed 95 % intervals hold the truth: shares, paired shares, means, rank correlations, arms.

    python benchmarks/evaluate/interval_coverage.py [--cases 400]

Each row is a simulated world whose truth is known. benchmarks/evaluate/paired_intervals.py is for paired effects.
Takes 3 s with `--cases 10` (two shared cores).
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from distill.stats.intervals import bootstrap_mean, paired, wilson
from distill.stats.paired_effects import paired_effect, seed_spread, share_of_seeds
from distill.stats.rank_correlation import over_teachers

Interval = tuple[float, float] | list[float] | None
Case = tuple[str, float, Callable[[], Interval]]
RNG = np.random.default_rng(1)
MEANS: dict[str, tuple[float, Callable[[int], np.ndarray]]] = {
    "normal": (0.0, lambda n: RNG.normal(0, 1, n)),
    "exponential": (1.0, lambda n: RNG.exponential(1, n)),
    "most 0, few high": (0.15, lambda n: (RNG.random(n) < 0.3) * RNG.beta(2, 2, n)),
    "0, rarely 1": (0.1, lambda n: RNG.poisson(0.1, n).astype(float)),
}


def shares() -> Iterator[Case]:
    for n in (1, 5, 20, 600):
        for p in (0.02, 0.3, 0.9):
            yield f"share {p}, n = {n}", p, partial(_share, n, p)


def _share(n: int, p: float) -> Interval:
    return wilson(RNG.binomial(n, p), n)


def differences() -> Iterator[Case]:
    for n in (1, 5, 20, 600):
        for gain, loss in ((0.0, 0.0), (0.01, 0.01), (0.2, 0.05)):
            yield f"paired +{gain} -{loss}, n = {n}", gain - loss, partial(_paired, n, gain, loss)


def _paired(n: int, gain: float, loss: float) -> Interval:
    drawn = RNG.choice([1, -1, 0], p=[gain, loss, 1 - gain - loss], size=n)
    return paired([bool(one) for one in drawn >= 0], [bool(one) for one in drawn <= 0]).ci95


def means() -> Iterator[Case]:
    for n in (5, 10, 20, 100):
        for name, (truth, draw) in MEANS.items():
            yield f"mean, {name}, n = {n}", truth, partial(_mean, draw, n)


def _mean(draw: Callable[[int], np.ndarray], n: int) -> Interval:
    return bootstrap_mean(draw(n))


def correlations() -> Iterator[Case]:
    for count in (3, 4, 5, 8):
        for rho in (0.0, 0.5, 0.9):
            truth = 6 / np.pi * np.arcsin(rho / 2)
            yield f"rank correlation {truth:.2f}, {count} teachers", truth, partial(_ranked, count, rho)


def _ranked(count: int, rho: float) -> Interval:
    first = RNG.normal(size=count)
    second = rho * first + np.sqrt(1 - rho**2) * RNG.normal(size=count)
    return over_teachers(float(np.corrcoef(first.argsort().argsort(), second.argsort().argsort())[0, 1]), count)


def arms(seeds: int, shared: float, own: float, studies: int) -> str:
    """12 arms of 600 questions, right in half of them; seeds change all arms alike, and each for itself."""
    held, width = [], []
    for _ in range(studies):
        common = RNG.uniform(0.2, 0.8, size=600) + RNG.normal(0, shared, (seeds, 1))
        found = [
            (RNG.random((seeds, 600)) < common + RNG.normal(0, own, (seeds, 1))).astype(float) for _ in range(12)
        ]
        spread = seed_spread(paired_effect(arm, np.zeros_like(arm)) for arm in found)
        ends = [share_of_seeds(arm, spread)[1] for arm in found]
        held += [low <= 0.5 <= high for low, high in ends]
        width += [high - low for low, high in ends]
    name = f"arm, {seeds} seeds, points between seeds: {100 * shared:g} shared, {100 * own:g} own"
    return f"| {name} | {100 * np.mean(held):.1f} | | {np.mean(width):.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=400, metavar="N", help="simulated cases a row")
    cases = parser.parse_args().cases
    print("| case | held % | without interval % | width |\n| --- | --- | --- | --- |")
    for name, truth, draw in (case for kind in (shares, differences, means, correlations) for case in kind()):
        every = [draw() for _ in range(cases)]
        found = [ends for ends in every if ends is not None]
        held = np.mean([low - 1e-12 <= truth <= high + 1e-12 for low, high in found])
        without, width = 1 - len(found) / cases, np.mean([high - low for low, high in found])
        print(f"| {name} | {100 * held:.1f} | {100 * without:.0f} | {width:.3f} |", flush=True)
    for seeds in (2, 3, 4):
        for shared, own in ((0.0, 0.0), (0.02, 0.01), (0.0, 0.05), (0.05, 0.05)):
            print(arms(seeds, shared, own, max(1, cases // 8)), flush=True)


if __name__ == "__main__":
    main()
