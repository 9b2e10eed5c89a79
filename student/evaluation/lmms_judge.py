"""The judge of an exported lmms-eval task, as a process: `python -m student.evaluation.lmms_judge FOLDER`.

Each input line is `[question, reply]` (a row of the task's questions without its images); each output line is the
metrics of that reply by name. It scores as `distill eval` does.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from distill.data.gold_answers import VOTES
from distill.data.source_answer_types import load_type
from distill.types import Sample
from student.evaluation.lmms_tasks import JUDGE, REFERENCE_METRICS, domain_metric
from student.inference.scoring import score_reply


def reply_metrics(question: Mapping[str, Any], reply: str, settings: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of one reply; only those that apply to its question are present."""
    sample = Sample(
        id=question["id"],
        images=(),
        question=question["question"],
        answers=tuple(question["answers"]),
        answer_type=question["answer_type"] or None,
        domain=question["domain"],
        meta={"options": question["options"], VOTES: question["votes"]},
    )
    prediction = score_reply(
        sample,
        {"text": reply, "tokens": 0, "rationale_tokens": 0, "truncated": False},
        plain=settings["plain"],
        relative_tolerance=settings["relative_tolerance"],
    )
    is_correct = float(prediction["verdict"] == "correct")
    result = {
        "accuracy": is_correct,
        "undecided_rate": float(prediction["verdict"] == "undecided"),
        "format_rate": float(prediction["well_formed"]),
        domain_metric(sample.domain): is_correct,
        **{name: float(prediction[key]) for name, key in REFERENCE_METRICS.items() if prediction[key] is not None},
    }
    return {name: value for name, value in result.items() if name in settings["figures"]}


def main(folder: Path) -> None:
    settings = orjson.loads((folder / JUDGE).read_bytes())
    if (value := settings.get("answer_type")) is not None:
        load_type(value, folder, f"{JUDGE}: answer_type")
    for line in sys.stdin.buffer:
        question, reply = orjson.loads(line)
        sys.stdout.buffer.write(orjson.dumps(reply_metrics(question, reply, settings)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
