"""Many judgements of the answer judge, as they were when the signals that keep them got their versions.

    PYTHONPATH=.:tests/support python tests/support/judgements.py

writes tests/data/judgements.json anew. Raise the version of every signal in SIGNALS first: run directories keep
verdicts, and a verdict of another judge is stale. The judgements are those of the labelled pairs, of predictions
beside the gold answer of another pair, of both texts in each other's place, and of numbers that are one off. The
symbolic voter is not asked, because it has limits of time.
"""

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from labelled_pairs import read_pairs

from distill.answers import verdicts
from distill.answers.consistency import find_conclusion
from distill.answers.final_answer import final_answer
from filters.signals.registry import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "data" / "judgements.json"
SIGNALS = ("agreement", "answer", "conclusion", "contamination")
"""Families whose values come from the judge."""


def signal_versions() -> dict[str, str]:
    return {name: FAMILIES[name].version for name in SIGNALS}


def judgements() -> Iterator[tuple[str, str]]:
    """What is judged, and the judgement as one text; always in the same order."""
    families = defaultdict(list)
    for pair in read_pairs():
        families[pair["family"]].append(pair)
    for family, members in sorted(families.items()):
        others = random.Random(family).sample(members, len(members))
        for number, (pair, other) in enumerate(zip(members, others, strict=True)):
            prediction = pair["prediction"]
            yield _judged(prediction, pair, 0.05)
            match number % 4:
                case 0 if isinstance(pair["gold"], str):
                    yield _judged(pair["gold"], {"gold": prediction, "type": None})
                case 1:
                    yield _read(prediction)
                case 2:
                    yield _judged(prediction, other)
                case 3:
                    yield _one_off(pair)


def _judged(prediction: str, pair: Mapping[str, Any], tolerance: float = 0.0) -> tuple[str, str]:
    result = verdicts._judge(
        prediction,
        pair["gold"],
        pair["type"],
        tolerance,
        pair.get("options"),
        ask_worker=False,
        question=pair.get("question", ""),
    )
    error = "" if result.relative_error is None else f" {result.relative_error:.2g}"
    return f"{prediction!r} for {pair['gold']!r}", f"{result.answer_type} {result.verdict} {result.reason}{error}"


def _one_off(pair: Mapping[str, Any]) -> tuple[str, str]:
    """The judgement of the prediction whose last digit is one more."""
    text = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), pair["prediction"])
    return _judged(text, pair)


def _read(text: str) -> tuple[str, str]:
    """How a text is read for its final answer and its conclusion."""
    return text, hashlib.md5(f"{final_answer(text)} {find_conclusion(text)}".encode()).hexdigest()[:8]


def main() -> None:
    judged = [result for _, result in judgements()]
    names = list(dict.fromkeys(judged))
    number = {name: index for index, name in enumerate(names)}
    record = {"versions": signal_versions(), "judgements": names, "order": [number[result] for result in judged]}
    FILE.write_bytes(orjson.dumps(record))


if __name__ == "__main__":
    main()
