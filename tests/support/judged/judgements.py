"""Many judgements of the answer judge, as they were when the signals that keep them got their versions.

    PYTHONPATH=.:tests/support python tests/support/judged/judgements.py

writes tests/data/judgements.json again. Raise the version of every signal in SIGNALS first: run directories keep
verdicts, and a verdict of another judge is stale. The judgements are those of the labelled pairs, of predictions
beside the gold answer of another pair, of both texts in each other's place, and of numbers that are one off, with a
tolerance. The symbolic voter is not asked, because it has limits of time.
"""

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from judged.labelled_pairs import read_pairs

from distill.answers import math_worker, verdicts
from distill.answers.consistency import find_conclusion
from distill.answers.final_answer import final_answer
from filters.signals.registry import FAMILIES

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "tests" / "data" / "judgements.json"
SIGNALS = ("agreement", "answer", "conclusion", "contamination")
"""Families whose values come from the judge."""
PAIRS = read_pairs()


def judge_pair(pair: Mapping[str, Any]) -> verdicts.Judgement:
    return verdicts.judge(
        pair["prediction"], pair["gold"], pair["type"], options=pair.get("options"), question=pair.get("question", "")
    )


@cache
def without_vote(index: int) -> tuple[verdicts.Judgement, bool]:
    """The judgement of a pair without the symbolic voter, and whether the voter is asked about it otherwise."""
    asked: list[str] = []
    vote, math_worker.vote_on_expressions = math_worker.vote_on_expressions, lambda said, gold: asked.append(said)
    try:
        return judge_pair(PAIRS[index]), bool(asked)
    finally:
        math_worker.vote_on_expressions = vote


def signal_versions() -> dict[str, str]:
    return {name: FAMILIES[name].version for name in SIGNALS}


def judgements() -> Iterator[tuple[str, str]]:
    """What is judged, and the judgement as one text; always in the same order."""
    families = defaultdict(list)
    for index, pair in enumerate(PAIRS):
        families[pair["family"]].append(index)
    for family, members in sorted(families.items()):
        others = random.Random(family).sample(members, len(members))
        for number, (index, other) in enumerate(zip(members, others, strict=True)):
            pair = PAIRS[index]
            prediction, gold = pair["prediction"], pair["gold"]
            yield _as_texts(prediction, gold, without_vote(index)[0])
            match number % 4:
                case 0 if isinstance(gold, str):
                    yield _judged(gold, {"gold": prediction, "type": None})
                case 1:
                    yield _read(prediction)
                case 2:
                    yield _judged(prediction, PAIRS[other])
                case 3:
                    yield _one_off(pair)


def _judged(prediction: str, pair: Mapping[str, Any], tolerance: float = 0.0) -> tuple[str, str]:
    gold, options, question = pair["gold"], pair.get("options"), pair.get("question", "")
    result = verdicts._judge(prediction, gold, pair["type"], tolerance, options, ask_worker=False, question=question)
    return _as_texts(prediction, gold, result)


def _as_texts(prediction: str, gold: object, result: verdicts.Judgement) -> tuple[str, str]:
    error = "" if result.relative_error is None else f" {result.relative_error:.2g}"
    return f"{prediction!r} for {gold!r}", f"{result.answer_type} {result.verdict} {result.reason}{error}"


def _one_off(pair: Mapping[str, Any]) -> tuple[str, str]:
    """The judgement of the prediction whose last digit is one more."""
    text = re.sub(r"\d(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), pair["prediction"])
    return _judged(text, pair, 0.05)


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
