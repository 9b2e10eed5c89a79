"""How often the interval of an ablation's effect holds the truth, how wide it is, and what it finds after Holm.

    python benchmarks/evaluate/paired_intervals.py
    python benchmarks/evaluate/paired_intervals.py --studies 250 --rng 77 --seeds 6 --seeds 3 --questions 3600

Simulates studies: 15 arms, each better than one reference by 2 points, half of the replies shared. Runs differ by a
standard deviation between seeds ("mixed": 0.2, 0.5, 1 or 2 points, another for each arm). The columns "alone" are
those of a comparison that knows only its own seeds.
Takes 3 s with `--studies 5 --seeds 2 --questions 300` (two shared cores).
"""

import argparse
from collections.abc import Sequence

import numpy as np

from distill.stats.paired_effects import PairedEffect, paired_effect, seed_spread

ARMS, EFFECT = 15, 0.02
SPREADS: tuple[float | str, ...] = (0, 0.005, 0.01, 0.02, "mixed")


def outcomes(
    rng: np.random.Generator, seeds: int, n: int, spread: float | str
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The reference and the arms, seeds x questions."""
    if isinstance(spread, str):
        spreads = rng.choice([0.002, 0.005, 0.01, 0.02], ARMS + 1)
    else:
        spreads = np.full(ARMS + 1, spread)
    difficulty = rng.beta(1.5, 0.5, size=n) * 0.8 + 0.1
    base = difficulty[None, :] + np.clip(rng.normal(0, 0.02, (seeds, 1)), -0.05, 0.05)
    draws = rng.random((seeds, n))
    reference = draws < np.clip(base + rng.normal(0, spreads[0] / 2**0.5, (seeds, 1)), 0, 1)
    arms = []
    for own in spreads[1:]:
        share = np.clip(base + EFFECT + rng.normal(0, own / 2**0.5, (seeds, 1)), 0, 1)
        arms.append((np.where(rng.random((seeds, n)) < 0.5, draws, rng.random((seeds, n))) < share).astype(float))
    return reference.astype(float), arms


def summary(effects: Sequence[PairedEffect]) -> str:
    held = np.mean([effect.ci95[0] <= EFFECT <= effect.ci95[1] for effect in effects])
    half = np.mean([effect.ci95[1] - effect.ci95[0] for effect in effects]) / 2
    found = np.mean([effect.p < 0.05 / ARMS for effect in effects])
    return f"{100 * held:.1f} | {100 * half:.2f} | {100 * found:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=60, metavar="N", help="simulated studies a row")
    parser.add_argument("--rng", type=int, default=5, metavar="SEED")
    parser.add_argument("--seeds", type=int, action="append", metavar="N")
    parser.add_argument("--questions", type=int, action="append", metavar="N")
    arguments = parser.parse_args()
    print("| seeds | questions | spread | ideal half width, points | alone: held % | half width | found % |", end="")
    print(" together: held % | half width | found % |")
    for seeds in arguments.seeds or (2, 3, 6):
        for n in arguments.questions or (900, 3600):
            for spread in SPREADS:
                rng = np.random.default_rng(arguments.rng)
                alone: list[PairedEffect] = []
                together: list[PairedEffect] = []
                for _ in range(arguments.studies):
                    reference, arms = outcomes(rng, seeds, n, spread)
                    of_study = [paired_effect(arm, reference) for arm in arms]
                    known = seed_spread(of_study)
                    alone += of_study
                    together += [paired_effect(arm, reference, known) for arm in arms]
                ideal = 196 * np.std([effect.delta - EFFECT for effect in alone])
                row = f"| {seeds} | {n:,} | {spread} | {ideal:.2f} | {summary(alone)} | {summary(together)} |"
                print(row, flush=True)


if __name__ == "__main__":
    main()
