"""Is a trace laid out so that a student can be trained on it? Says nothing about whether it is right."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.recipe import Recipe
from distill.types import Outcome, Sample, Trace
from filters.columns import NOT_APPLICABLE, OK, family

_THINK_TAG = re.compile(r"</?\s*(?:think|thinking|thought|reasoning)\s*>", re.IGNORECASE)
# A placeholder left in the text makes the trainer look for an image that is not there.
_IMAGE_PLACEHOLDER = re.compile(
    r"<image(?:_soft_token)?>|<img>|</img>|<IMG_CONTEXT>|\[IMG\]|<\|?(?:image|image_pad|vision_start|vision_end)\|?>"
    r"|<fake_token_around_image>|<global-img>",
    re.IGNORECASE,
)
# Chat templates' own marks: the student would learn to end or open turns inside its answer.
_SPECIAL_TOKEN = re.compile(r"<\|[A-Za-z0-9_]+\|>|<｜[^｜>]+｜>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")

PROBLEMS = (
    "empty_answer",
    "think_tag_in_answer",
    "think_tag_in_reasoning",
    "image_placeholder",
    "special_token",
    "unreadable_characters",
)
"""What `format_problem` can say; where several apply, the first of this list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    name: ClassVar[str] = "format"
    version: ClassVar[str] = "1"
    scope: ClassVar[Literal["trace", "sample"]] = "trace"
    columns: ClassVar[pa.Schema] = family(
        "format",
        format_valid=("flag", "one rationale, one answer, no left-over marks of the teacher's template"),
        format_problem=("text", "the gravest thing wrong with the layout"),
        has_reasoning=("flag", "the trace holds a rationale"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Format":
        return cls()

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        return [self._row(trace) for trace in traces]

    def _row(self, trace: Trace) -> dict[str, Any]:
        if trace.outcome == Outcome.ERROR:
            return {"format_state": NOT_APPLICABLE}
        problem = format_problem(trace.reasoning, trace.answer)
        return {
            "format_state": OK,
            "format_valid": problem is None,
            "format_problem": problem,
            "has_reasoning": bool(trace.reasoning.strip()),
        }


def format_problem(reasoning: str, answer: str) -> str | None:
    """The gravest of PROBLEMS that applies, or None."""
    both = f"{reasoning}\n{answer}"
    found = {
        "empty_answer": not answer.strip(),
        "think_tag_in_answer": _THINK_TAG.search(answer),
        "think_tag_in_reasoning": _THINK_TAG.search(reasoning),
        "image_placeholder": _IMAGE_PLACEHOLDER.search(both),
        "special_token": _SPECIAL_TOKEN.search(both),
        "unreadable_characters": _UNREADABLE.search(both),
    }
    return next((problem for problem in PROBLEMS if found[problem]), None)
