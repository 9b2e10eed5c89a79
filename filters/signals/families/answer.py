"""Does a trace's answer agree with the gold answer? One typed, three-valued verdict a trace.

The judging itself is `distill.answers.verdicts`, the same code the evaluation uses. A sample without a gold answer
has no verdict. A trace without an answer has no verdict either, because its outcome covers this case.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, UNDECIDABLE, SignalOfEachTrace, family

if TYPE_CHECKING:
    from distill.answers.verdicts import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(SignalOfEachTrace):
    relative_tolerance: float

    name: ClassVar[str] = "answer"
    version: ClassVar[str] = "32"
    columns: ClassVar[pa.Schema] = family(
        "answer",
        answer_verdict=("text", "correct, wrong or undecided against the gold answer"),
        answer_relative_error=("number", "distance of a numeric answer from the gold, relative to the gold"),
        answer_reason=("text", "the reason for the verdict"),
        answer_type=("text", "the type under which the answer was judged"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Answer":
        return cls(relative_tolerance=recipe.filter.answer.relative_tolerance)

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        judgement = judge_trace(sample, trace, self.relative_tolerance) if trace.answer.strip() else None
        if judgement is None:
            return {"answer_state": NOT_APPLICABLE}
        return {
            "answer_state": UNDECIDABLE if judgement.verdict == "undecided" else OK,
            "answer_verdict": judgement.verdict,
            "answer_relative_error": judgement.relative_error,
            "answer_reason": judgement.reason,
            "answer_type": judgement.answer_type,
        }


def judge_trace(sample: Sample, trace: Trace, relative_tolerance: float) -> "Judgement | None":
    """The verdict on one trace's answer; None when the sample has no gold answer."""
    if not sample.answers:
        return None
    return _judge_answer(
        trace.answer, sample.answers, sample.answer_type, relative_tolerance, sample.options, sample.question
    )


def accepted_answer(sample: Sample, trace: Trace, relative_tolerance: float) -> str:
    """The first gold answer that a correct trace's answer agrees with; the answer itself if none alone does."""
    if len(sample.answers) == 1:
        return sample.answers[0]
    for gold in sample.answers:
        judgement = judge_trace(replace(sample, answers=(gold,)), trace, relative_tolerance)
        if judgement is not None and judgement.verdict == "correct":
            return gold
    return trace.answer.strip()


# Several families ask for the verdict of the same trace, and teachers repeat their answers.
@lru_cache(maxsize=1 << 15)
def _judge_answer(
    prediction: str,
    gold: tuple[str, ...],
    answer_type: str | None,
    relative_tolerance: float,
    offered: tuple[str, ...],
    question: str,
) -> "Judgement":
    from distill.answers.verdicts import judge

    return judge(
        prediction, gold, answer_type, relative_tolerance=relative_tolerance, options=offered, question=question
    )
