"""A search for texts of 64 kB that keep the signals busy for longest: what is slow is combined and tried again.

    python benchmarks/answers/slow_texts.py [--seed 0] [--seconds 100] [--shown 20]

Begins with repeats of the signs of `answer_fuzz.py`, the pieces of `mutated_answers.py` and the units of its hostile
texts, then joins, nests and cuts the slowest ones. Every text is measured by all families with empty caches, three
times if it takes more than 45 ms; the smallest processor time of each family counts. Prints the slowest texts.
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
        text = unit * (MOST // max(1, len(unit.encode("utf-8", "surrogatepass"))) + 1)
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
        ends = time.process_time() + seconds
        for unit in self.units:
            for separator in ("", " "):
                self.attempt(unit + separator)
        while time.process_time() < ends:
            if 0 < len(unit := self.combined()) <= _LONGEST_UNIT:
                self.attempt(unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
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
