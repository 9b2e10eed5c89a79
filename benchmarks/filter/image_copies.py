"""How many copies of chart images are found, and how many charts that differ are taken for one.

    python benchmarks/filter/image_copies.py [--copies 2000] [--edited 2400] [--seed 0]

Charts are drawn by tests/support/worlds/chart_images.py. A copy is encoded again (JPEG of quality 30 to 95, WebP,
PNG), given 0.5 to 2 times its size, both, or is one of two copies of one original. An edited chart differs in its
title, a letter or a digit of a label, a value, a colour, or the order of two values; some are encoded or resized as
well. A pair is found when the hashes propose it and the pixels confirm it; `told the same` is what the pixels alone
say. `weight` is that of the pair nearest to the other verdict, which begins at 1. In the kinds that begin with "two",
neither image was made from the other.
Takes 22 s with `--copies 60 --edited 60` (two shared cores).
"""

import argparse
import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from filters.matching import image_compare, image_match

sys.path.append(str(Path(__file__).parents[2] / "tests" / "support"))
from worlds import chart_images as charts

MAX_PIXELS = 50_000_000
FAR = 99.0
"""Stands for the weight of a difference that a coarse look shows."""
Generator = np.random.Generator
Pair = tuple[str, bytes, bytes]


def resized(image: Image.Image, rng: Generator) -> Image.Image:
    return charts.resized(image, charts.factor(rng, 0.5, 2.0), str(rng.choice(list(charts.FILTERS))))


def saved(image: Image.Image, rng: Generator) -> bytes:
    return charts.resaved(image, rng, low=30)[0]


def reopened(image: Image.Image, quality: int) -> Image.Image:
    return Image.open(io.BytesIO(charts.jpeg(image, quality))).convert("RGB")


COPIES: dict[str, Callable[[Image.Image, Generator], tuple[bytes, bytes]]] = {
    "JPEG 30-95": lambda image, rng: (charts.png(image), charts.jpeg(image, int(rng.integers(30, 96)))),
    "saved again": lambda image, rng: (charts.png(image), saved(image, rng)),
    "resized": lambda image, rng: (charts.png(image), charts.png(resized(image, rng))),
    "JPEG, resized": lambda image, rng: (charts.jpeg(image, 90), charts.png(resized(reopened(image, 90), rng))),
    "resized, saved": lambda image, rng: (charts.png(image), saved(resized(image, rng), rng)),
    "two, resized": lambda image, rng: (charts.jpeg(image, 90), charts.png(resized(image, rng))),
    "two, saved": lambda image, rng: (saved(image, rng), saved(image, rng)),
    "two, saved and resized": lambda image, rng: (saved(image, rng), saved(resized(image, rng), rng)),
}


def copies(rng: Generator, count: int) -> Iterator[Pair]:
    for number in range(count):
        kind = list(COPIES)[number % len(COPIES)]
        yield kind, *COPIES[kind](charts.paint(charts.imagine(rng)), rng)


def edited(rng: Generator, count: int) -> Iterator[Pair]:
    number = 0
    while number < count:
        what = charts.EDITS[number % len(charts.EDITS)]
        one, other = (charts.paint(chart) for chart in charts.pair(rng, what))
        if one.tobytes() == other.tobytes():  # the edit is less than a pixel
            continue
        number += 1
        first = charts.png(one) if rng.random() < 0.6 else saved(one, rng)
        how = rng.choice(["plain", "saved", "resized", "both"], p=[0.4, 0.3, 0.15, 0.15])
        if how in ("resized", "both"):
            other = resized(other, rng)
        yield what, first, charts.png(other) if how in ("plain", "resized") else saved(other, rng)


def judged(
    name: str, pairs: Iterator[Pair], *, show: bool
) -> tuple[Counter[tuple[str, str]], dict[str, float], float, float]:
    """Counts by kind and column, the weight nearest to the other verdict, and seconds of looking and comparing."""
    counts: Counter[tuple[str, str]] = Counter()
    closest: dict[str, float] = {}
    looking = comparing = 0.0
    for number, (kind, one, other) in enumerate(pairs):
        start = time.perf_counter()
        looks = [image_match.hash_image(data, max_pixels=MAX_PIXELS) for data in (one, other)]
        proposed = looks[0].pixels == looks[1].pixels or bool(list(image_match.propose_pairs(looks)))
        middle = time.perf_counter()
        found = image_compare.image_difference(one, other, max_pixels=MAX_PIXELS)
        weight = found.weight if found else FAR
        same = weight <= 1
        comparing += time.perf_counter() - middle
        looking += middle - start
        closest[kind] = (min if name == "edited" else max)(closest.get(kind, weight), weight)
        counts[kind, "pairs"] += 1
        counts[kind, "proposed"] += proposed
        counts[kind, "same"] += same
        counts[kind, "found"] += proposed and same
        if show and (same and proposed) != (name == "copies"):
            print(f"  {name} {number} {kind}: proposed {proposed}, {found}", flush=True)
    return counts, closest, looking, comparing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=2400)
    parser.add_argument("--edited", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print every pair that is judged wrongly")
    options = parser.parse_args()
    for name, pairs, count in (("copies", copies, options.copies), ("edited", edited, options.edited)):
        if not count:
            continue
        rng = np.random.default_rng([options.seed, len(name), count])
        counts, closest, looking, comparing = judged(name, pairs(rng, count), show=options.show)
        print(
            f"{name:<22} {'pairs':>7} {'proposed':>9} {'told the same':>14} {'found':>7} {'share':>9} {'weight':>7}"
        )
        kinds = sorted({kind for kind, _ in counts})
        for kind in [*kinds, "all"]:
            row = [
                sum(counts[one, column] for one in (kinds if kind == "all" else [kind]))
                for column in ("pairs", "proposed", "same", "found")
            ]
            cells = f"{kind:<22} {row[0]:>7} {row[1]:>9} {row[2]:>14} {row[3]:>7} {row[3] / row[0]:>9.2%}"
            print(cells + (f" {closest[kind]:>7.2f}" if kind in closest else ""))
        print(f"look {looking / count / 2 * 1e3:.1f} ms a picture, compare {comparing / count * 1e3:.1f} ms a pair\n")


if __name__ == "__main__":
    main()
