"""Texts made to freeze or break the answer judge: long repeats of the words and signs that it knows, and mutations.

    python benchmarks/answers/answer_fuzz.py repeats [--of slips] [--count 20000] [--characters 65536] [--seed 13]
    python benchmarks/answers/answer_fuzz.py mutations [--count 100000] [--seed 13]

`--of` says what measures the texts: the judge, the arithmetic slips of a text, or its conclusion against its answer.
"repeats" judges words and signs of the judge's own sources, one to three of them repeated with a separator, as the
prediction and as the gold answer, with beginnings and ends that make a pattern start or fail late. "mutations" judges
random changes of the labelled answers of the tests. Both print the slowest texts in processor time, the verdicts and
every traceback. The symbolic voter, a process of its own with a time limit of its own, is not asked.
Takes 7 s for `mutations --count 500` (two shared cores).
"""

import argparse
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from judged.labelled_pairs import read_pairs

import distill
from distill.answers.consistency import compare_conclusion
from distill.answers.verdicts import TYPES, _judge
from distill.grounding.arithmetic_slips import find_slips

MODULES = ("answers", "grounding")
GOLDS = ("4", "red", "B", "3:30", "2, 5 and 7", "2010", "5 km", "3:4", "5 March 2001", "yes", "(2, 5)", "2x + 1")
SEPARATORS = ("", "", " ", " ", "-", ",", ", ", "\n", ". ", " and ", "\t ")
FRAMES = (("", ""), ("", ""), ("4 ", "!"), ("the answer is ", " 4x"), ("$", "}"), ("(", ")"), ("", "\\boxed{99}"))
_SIGNS_TEXT = r"""\frac{1}{2} \sqrt{2} \boxed{ \text{ <answer> </think> #### 1,000 1.5 1:2 a. 1. 1/ {1} '1 1' (a a)
    [1 1] 1!
    (A) 1e5 x^2 1^ 12.5% 6'2" 1/2 2001-01-01 3:30 1) • ٣ ५ ½ √ ² 三 点 😀"""
SIGNS = [chr(code) for code in range(32, 127)] + _SIGNS_TEXT.split()
SIGNS += ["\n", "\r\n", "\t", "\v", "\x00", "\u00a0", "\u200b", "\ufdfa", "\ud800", "\udfff", "e\u0301"]
Case = tuple[str, str, str | None]
"""Prediction, gold answer, answer type."""


def vocabulary() -> list[str]:
    """The signs, and every word that the judge's sources hold."""
    sources = (path for name in MODULES for path in sorted((Path(distill.__file__).parent / name).rglob("*.py")))
    texts = [source.read_text("utf-8") for source in sources]
    return SIGNS + sorted({word for text in texts for word in re.findall(r"[^\W\d_]+(?:['-][^\W\d_]+)*", text)})


def repeats(chance: random.Random, characters: int) -> Callable[[], Case]:
    words = vocabulary()

    def draw() -> Case:
        unit = chance.choice(SEPARATORS).join(
            chance.choices(words if chance.random() < 0.5 else SIGNS, k=chance.randint(1, 3))
        )
        unit += chance.choice(SEPARATORS)
        start, end = chance.choice(FRAMES)
        text, gold = start + unit * (characters // len(unit)) + end, chance.choice(GOLDS)
        kind = chance.choice((None, None, *TYPES))
        return chance.choice([(text, gold, kind), (text, gold, kind), (gold, text, kind), (text, text + "4", kind)])

    return draw


def mutations(chance: random.Random, characters: int) -> Callable[[], Case]:
    sides = [pair[side] for pair in read_pairs() for side in ("gold", "prediction")]
    answers = [side if isinstance(side, str) else side[0] for side in sides]
    signs = [sign for sign in vocabulary() if sign]

    def mutated(text: str) -> str:
        for _ in range(chance.randint(1, 4)):
            place = chance.randint(0, len(text))
            match chance.randint(0, 5):
                case 0:
                    text = text[:place] + chance.choice(signs) + text[place:]
                case 1:
                    text = text[:place] + text[place + chance.randint(1, 4) :]
                case 2:
                    text = text[:place] + chr(chance.choice((chance.randint(0, 0x10FFFF), chance.randint(0, 0x2FF))))
                case 3:
                    text = text[:place] + text[place : place + 9] * chance.choice((2, 5, 50, 2000)) + text[place:]
                case 4:
                    text = chance.choice((text.upper(), text.lower(), text[::-1], text.title(), text.swapcase()))
                case 5:
                    text += chance.choice((" ", "\n", " and ", ", ", " is ", "=")) + chance.choice(answers)
        return text[:characters]

    def draw() -> Case:
        gold, said = chance.choice(answers), chance.choice(answers)
        pair = chance.choice([(mutated(said), gold), (said, mutated(gold)), (mutated(gold), gold)])
        return *pair, chance.choice((None, None, *TYPES))

    return draw


def judged(said: str, gold: str, kind: str | None) -> str:
    return _judge(said, gold, kind, 0.0, None, ask_worker=False).verdict


def concluded(said: str, gold: str, kind: str | None) -> str:
    return compare_conclusion(said, gold, kind) or "none"


MEASURES: dict[str, Callable[[str, str, str | None], str]] = {
    "judge": judged,
    "slips": lambda said, gold, kind: find_slips(said).verdict,
    "conclusion": concluded,
}


def run(draw: Callable[[], Case], count: int, shown: int, measure: Callable[[str, str, str | None], str]) -> int:
    """Prints what happened, and gives the number of tracebacks."""
    slowest: list[tuple[float, str]] = []
    verdicts: Counter[str] = Counter()
    for said, gold in (("Chad", "Mali"), ("5 dm", "5 furlong"), ("三", "4"), ("trois", "4")):
        _judge(said, gold, None, 0.0, None, ask_worker=False)  # loads the tables that are loaded when first needed
    started = time.process_time()
    for number in range(count):
        said, gold, kind = draw()
        before = time.process_time()
        try:
            verdicts[measure(said, gold, kind)] += 1
        except Exception:
            verdicts["traceback"] += 1
            print(f"{kind}: {said[:80]!a} against {gold[:80]!a}")
            traceback.print_exc()
        slowest.append((time.process_time() - before, f"{kind}: {said[:50]!a} against {gold[:50]!a}"))
        if number % 1000 == 999 or number == count - 1:
            slowest = sorted(slowest, reverse=True)[:shown]
    print(f"{count} judgements in {time.process_time() - started:.0f} s: {dict(verdicts)}")
    for spent, text in slowest:
        print(f"{1000 * spent:8.1f} ms  {text}")
    return verdicts["traceback"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", choices=("repeats", "mutations"))
    parser.add_argument("--count", type=int)
    parser.add_argument("--characters", type=int, default=65_536)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--slowest", type=int, default=10)
    parser.add_argument("--of", choices=sorted(MEASURES), default="judge", help="what measures the texts")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    campaign, usual = (repeats, 20_000) if options.campaign == "repeats" else (mutations, 100_000)
    return run(campaign(chance, options.characters), options.count or usual, options.slowest, MEASURES[options.of])


if __name__ == "__main__":
    raise SystemExit(min(1, main()))
