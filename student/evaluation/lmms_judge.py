"""The judge of an exported lmms-eval task, as a process: `python -m student.evaluation.lmms_judge FOLDER`.

Each input line is `[question, reply]` (a row of the task's questions without its images); each output line is the
metrics of that reply by name. The function that scores is the one of `distill eval`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from distill.data.gold_answers import VOTES
from distill.types import Sample
from student.evaluation.lmms_tasks import JUDGE, REFERENCE_METRICS, domain_figure
from student.inference.scoring import judged


def figures(question: Mapping[str, Any], reply: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """What one reply counts for each figure of the task; only figures that apply to its question are there."""
    sample = Sample(
        id=question["id"],
        images=(),
        question=question["question"],
        answers=tuple(question["answers"]),
        answer_type=question["answer_type"] or None,
        domain=question["domain"],
        meta={"options": question["options"], **({VOTES: question["votes"]} if question["votes"] else {})},
    )
    said = judged(
        sample,
        {"text": reply, "tokens": 0, "rationale_tokens": 0, "truncated": False},
        plain=settings["plain"],
        relative_tolerance=settings["relative_tolerance"],
    )
    right = float(said["verdict"] == "correct")
    result = {
        "accuracy": right,
        "undecided_rate": float(said["verdict"] == "undecided"),
        "format_rate": float(said["well_formed"]),
        domain_figure(sample.domain): right,
        **{name: float(said[key]) for name, key in REFERENCE_METRICS.items() if said[key] is not None},
    }
    return {name: value for name, value in result.items() if name in settings["figures"]}


def main(folder: Path) -> None:
    settings = orjson.loads((folder / JUDGE).read_bytes())
    for line in sys.stdin.buffer:
        question, reply = orjson.loads(line)
        sys.stdout.buffer.write(orjson.dumps(figures(question, reply, settings)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
