"""A search for texts of 64 kB that keep the signals busy for longest: what is slow is combined and tried again.

    python benchmarks/answers/slow_texts.py [--seed 0] [--seconds 100] [--shown 20]

Begins with repeats of the signs of `answer_fuzz.py`, the pieces of `mutated_answers.py` and the units of its hostile
texts, then joins, nests and cuts the slowest ones. Before that come texts that never repeat: lists of addresses,
accounts, equations and the like with drawn numbers, and drawn signs of Unicode. Every text is measured by all
families with empty caches, three times if it takes more than 45 ms; the smallest time of each family counts.
Prints the slowest texts.
Takes 50 s with `--seconds 5` (two shared cores).
"""

import argparse
import gc
import random
import time
from collections import Counter

import orjson
from answer_fuzz import SIGNS
from mutated_answers import FRAMES, HOSTILE, MOST, PIECES, SAMPLES, SEEDS, Campaign, trace_of

from distill.recipe.recipe import Recipe
from filters.signals.registry import FAMILIES

_SUSPECT_SECONDS = 0.045
_KEPT = 150
_LONGEST_UNIT = 3000
_UNITS = (
    "“a ", "「漢 ", "\\[ x ", "\\( y ", "'a ", "(1 ", "1 + ", "= 3 ", "is 4 and ", "Peru ", "half of ", "5 km ",
    "10:30 ", "2 + 3 = 5. ", "the 3 bars are 4, ", "red 8 blue 6, ", "Wait, ", "no, ", "step 3: ",
    "The bar of Sweden reaches 12 and the bar of Norway reaches 30. ",
)  # fmt: skip
_SHAPES = (
    "{n}.{b}.{b}.{b} ", "+49 {n} {m}{m} ", "DE{n}3704{m}{m}{m}{m} ", "4{m}{m}{m}{m} ", "{c}.{c}.{c}-{n} ",
    "{m}{m}-A ", "a{n}@b{n}.com ", "tel {c} {m} ", "{n} + {n} = {n}. ", "{n}*{n}={m}\n",
    "The total of {n}, {n} and {n} is {c}. ",
    "{w}-{d} plus {w} is {w}. ", "| {n} | {n} | {c} |\n", "{c}, ", "\\frac{{{n}}}{{{d}}} + \\sqrt{{{n}}} = {n} \\\\ ",
    "{n}% of {n} is {n}, so a drop of {n} ", "{n}.1.20{n} 1{n}:{n} ", "第{n}条柱子是{n}，比{n}多{n}。",
    "{n}.{c},{n} Euro plus einundzwanzig ist {n},5. ", "x{n} = {n}; y[{n}] += x{n} * {n};\n",
    "If x = {n} then {n}x + {n} = {c} > {n} ", "{n} boxes at {n} each cost {c} in all, {n} more than {n} is {n}, ",
    "from {n} to {n}, an increase of {n}, ", "{n}:{n} = {n}:{n}, ", "{n} km are {m} m, {n} min {n} s is {c} s, ",
    "{u}", "{u}{n}",
)  # fmt: skip


def distinct_text(shape: str, rng: random.Random) -> str:
    """A text of 64 kB in this shape, each time with other numbers (n, b, c, m), words (w, d) and signs (u)."""
    tens, digits = ("twenty", "thirty", "forty", "ninety"), ("one", "two", "six", "nine")
    pieces: list[str] = []
    size = 0
    while size < MOST:
        numbers = {"n": rng.randint(2, 99), "b": rng.randint(0, 255), "c": rng.randint(100, 999)}
        words = {"w": rng.choice(tens), "d": rng.choice(digits), "u": chr(rng.randint(0x370, 0x2FFF))}
        pieces.append(shape.format(**numbers, **words, m=rng.randint(1000, 9999)))
        size += len(pieces[-1].encode())
    return "".join(pieces)


class Search:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.families = tuple(family.from_recipe(Recipe()) for family in FAMILIES.values())
        self.campaign = Campaign()
        for number, text in enumerate(
            [*SEEDS, "\\boxed{" * 50, "Germany", "三百二十", "<think>5 furlong.</think>5 dm"]
        ):
            self.campaign.measure(self.families, trace_of(text, number))
        gc.collect()
        gc.freeze()
        hostile = [orjson.loads(line)["unit"] for line in HOSTILE.read_bytes().splitlines()]
        self.units = list(dict.fromkeys([*SIGNS, *PIECES, *hostile, *_UNITS]))
        self.slowest: list[tuple[float, str, dict[str, float]]] = []
        """Seconds of all families, the unit that the text repeats, and seconds of each family."""

    def attempt(self, unit: str) -> None:
        """Measure a text of this unit, and keep it if it is slow."""
        self.measure(unit, unit * (MOST // max(1, len(unit.encode("utf-8", "surrogatepass"))) + 1))

    def measure(self, unit: str, text: str) -> None:
        """Measure a text that this unit stands for."""
        text = text.encode("utf-8", "surrogatepass")[:MOST].decode("utf-8", "ignore")
        trace = trace_of(self.rng.choice(list(FRAMES.values())).replace("{}", text))
        sample = self.rng.choice(SAMPLES)
        spent = self.campaign.measure_once(self.families, trace, sample, Counter())
        for _ in range(2 if sum(spent.values()) > _SUSPECT_SECONDS else 0):
            again = self.campaign.measure_once(self.families, trace, sample, Counter())
            spent = {name: min(seconds, again[name]) for name, seconds in spent.items()}
        self.slowest.append((sum(spent.values()), unit, spent))
        self.slowest = sorted(self.slowest, key=lambda entry: -entry[0])[:_KEPT]

    def combined(self) -> str:
        rng = self.rng
        first = rng.choice(self.slowest)[1]
        second = rng.choice(self.slowest)[1] if rng.random() < 0.6 else f"{rng.choice(self.units)} "
        place = rng.randrange(len(first) + 1)
        match rng.randrange(4):
            case 0:
                return first + second
            case 1:
                return first * rng.randint(1, 5) + second * rng.randint(1, 5)
            case 2:
                return first[:place] + rng.choice(self.units) + first[place:]
        return first[:place] + second[place:]

    def run(self, seconds: float) -> None:
        for shape in _SHAPES:
            self.measure(shape, distinct_text(shape, self.rng))
        ends = time.process_time() + seconds
        for unit in self.units:
            for separator in ("", " "):
                self.attempt(unit + separator)
        while time.process_time() < ends:
            if 0 < len(unit := self.combined()) <= _LONGEST_UNIT:
                self.attempt(unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--shown", type=int, default=20)
    options = parser.parse_args()
    search = Search(options.seed)
    search.run(options.seconds)
    for total, unit, spent in search.slowest[: options.shown]:
        parts = sorted(spent.items(), key=lambda item: -item[1])[:5]
        said = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in parts)
        print(f"{1000 * total:8.1f} ms  {said}: {unit[:70]!a}")
    print(f"{search.campaign.tracebacks.total()} tracebacks {dict(search.campaign.tracebacks)}")


if __name__ == "__main__":
    main()
