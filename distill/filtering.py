"""The `[filter]` section of a recipe: what is measured, what is dropped, what is chosen.

Defaults live here; `filters/` reads them. Loading touches no data.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from distill.sections import Name, Section

SignalName = Literal["answer", "format", "repetition", "length", "duplicates", "agreement"]
DEFAULT_SIGNALS: tuple[SignalName, ...] = ("answer", "format", "repetition", "length", "duplicates", "agreement")
"""What is measured unless the recipe says otherwise: everything that needs no model and no list of its own."""


class AnswerSignal(Section):
    relative_tolerance: float = Field(default=0.0, ge=0)
    """Numbers within this relative error of the gold count as correct."""


class RepetitionSignal(Section):
    ngram: int = Field(default=4, ge=1)


class DuplicatesSignal(Section):
    threshold: float = Field(default=0.9, gt=0, le=1)
    """Jaccard similarity of word shingles from which two traces of one question are near duplicates."""
    shingle: int = Field(default=3, ge=1)


class Rule(Section):
    """A trace for which the SQL condition over the signal table is true is dropped under this name."""

    name: Name
    drop: str


class Select(Section):
    """Which of the traces that no rule drops enter the dataset."""

    per_question: int | None = Field(default=None, ge=1)
    per_teacher: int | None = Field(default=None, ge=1)
    """Of one question; `per_question` limits over all its teachers."""
    order: tuple[str, ...] = Field(default=("-self_consistency", "near_duplicate", "rationale_tokens"), strict=False)
    """Signals, best first by ascending value; a leading '-' reverses. Ties fall to the trace id."""


DEFAULT_RULES = (
    Rule(name="incomplete", drop="outcome <> 'complete'"),
    Rule(name="wrong_answer", drop="answer_verdict = 'wrong'"),
    Rule(name="bad_format", drop="not format_valid"),
    Rule(name="repetition", drop="repetition_ngram > 0.6"),
    Rule(name="exact_duplicate", drop="exact_duplicate"),
)


class Filter(Section):
    """What is measured, what is dropped, what is chosen. Rules change without measuring again."""

    signals: tuple[SignalName, ...] = Field(default=DEFAULT_SIGNALS, strict=False)
    answer: AnswerSignal = AnswerSignal()
    repetition: RepetitionSignal = RepetitionSignal()
    duplicates: DuplicatesSignal = DuplicatesSignal()
    rules: tuple[Rule, ...] = Field(default=DEFAULT_RULES, strict=False)
    select: Select = Select()
    rationale: Literal["think", "plain"] = "think"
    """How a rationale enters the assistant turn: inside <think> tags, or as plain text before the answer."""
    partition_rows: int = Field(default=10_000, ge=1)
    workers: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _distinct_rules(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(names) != len(set(names)):
            raise ValueError(f"rule names must be distinct, got {names}")
        return self
