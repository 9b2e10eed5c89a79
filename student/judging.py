"""Replies of a student, judged as the filter judges traces, and the figures over them.

One prediction is one plain mapping, so that it can be journaled. Does not generate (student/generation.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from distill.answers import judge
from distill.types import Sample
from student import scores

Prediction = dict[str, Any]


def judged(sample: Sample, reply: Mapping[str, Any], *, plain: bool, relative_tolerance: float) -> Prediction:
    """A reply (the fields of generation.Reply) taken apart, with its question, its gold answer and the verdict.

    `plain`: the rationale is everything before the last blank line, as with filter.rationale = "plain".
    """
    from student.generation import take_apart

    said = take_apart(reply["text"], plain=plain)
    verdict = judge(
        said.answer,
        sample.answers,
        sample.answer_type,
        relative_tolerance=relative_tolerance,
        options=sample.options,
    )
    return {
        "sample_id": sample.id,
        "domain": sample.domain,
        "question": sample.question,
        "gold": list(sample.answers),
        "answer_type": verdict.answer_type,
        **reply,
        "reasoning": said.reasoning,
        "answer": said.answer,
        "well_formed": said.well_formed and not reply["truncated"],
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "relative_error": verdict.relative_error,
    }


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracy with its interval, form and length of at least one reply. Undecided is not correct, and counted."""
    n = len(predictions)
    right = sum(line["verdict"] == "correct" for line in predictions)
    return {
        "n": n,
        "n_correct": right,
        "n_undecided": sum(line["verdict"] == "undecided" for line in predictions),
        "accuracy": right / n,
        "ci95": scores.wilson(right, n),
        "mean_rationale_tokens": sum(line["rationale_tokens"] for line in predictions) / n,
        "mean_tokens": sum(line["tokens"] for line in predictions) / n,
        "format_rate": sum(line["well_formed"] for line in predictions) / n,
        "truncation_rate": sum(line["truncated"] for line in predictions) / n,
    }
