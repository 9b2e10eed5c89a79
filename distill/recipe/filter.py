"""The `[filter]` section of a recipe: what is measured, what is dropped, what is chosen.

Defaults live here; `filters/` reads them. Loading touches no data.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from distill.recipe.base import Dtype, LocalOrHub, Name, Section

SignalName = Literal[
    "answer",
    "format",
    "repetition",
    "length",
    "steps",
    "conclusion",
    "arithmetic",
    "language",
    "refusal",
    "sensitive",
    "duplicates",
    "agreement",
    "grounding",
    "contamination",
    "corpus",
    "question",
    "student",
    "judge",
]
DEFAULT_SIGNALS: tuple[SignalName, ...] = (
    "answer",
    "format",
    "repetition",
    "length",
    "steps",
    "arithmetic",
    "language",
    "refusal",
    "duplicates",
    "agreement",
    "grounding",
    "contamination",
    "corpus",
)
"""What is measured unless the recipe says otherwise: what needs no model, no list, and not every picture decoded."""


ARMS = ("unfiltered", "random")
"""What training can be compared with: every complete trace, and a random part of as many tokens as the dataset."""

ExportName = Literal["llava", "llama-factory", "ms-swift", "webdataset"]


class AnswerSignal(Section):
    relative_tolerance: float = Field(default=0.0, ge=0)
    """Numbers within this relative error of the gold count as correct."""


class RepetitionSignal(Section):
    ngram: int = Field(default=4, ge=1)


class DuplicatesSignal(Section):
    threshold: float = Field(default=0.9, gt=0, le=1)
    """Jaccard similarity of word shingles from which two traces of one question are near duplicates."""
    shingle: int = Field(default=3, ge=1)


class CorpusSignal(Section):
    threshold: float = Field(default=0.8, gt=0, le=1)
    """Jaccard similarity of word shingles from which two traces of the run, of any questions, are near duplicates."""
    shingle: int = Field(default=5, ge=1)


class ContaminationSignal(Section):
    sources: tuple[str, ...] | None = Field(default=None, strict=False)
    """Data sources of the recipe that nothing may be trained on; default: the one that [eval] asks about."""
    images: Literal["all", "matching", "bytes"] = "matching"
    """Which pictures are decoded to find them saved or resized anew: all, those whose question matches a test one
    in words, or none, so that a picture is known by its bytes only."""


class SensitiveSignal(Section):
    words: LocalOrHub | None = None
    """A text file of words and phrases, one a line, that no trace should hold; personal data is looked for anyway."""


class StudentSignal(Section):
    """How well traces fit the student, measured with the untuned student itself; needs the train extra."""

    checkpoint: LocalOrHub | None = None
    """Directory or hub name of the untuned student; default: student.model."""
    batch_tokens: int = Field(default=16_384, ge=1)
    """Tokens of one forward pass, image tokens and padding included: what fits into memory."""
    max_length: int = Field(default=4096, ge=1)
    """Longer traces, image tokens included, are not measured."""
    dtype: Dtype | None = None
    """Default: float32 on a CPU, bfloat16 on a GPU."""
    per_teacher: int | None = Field(default=None, ge=1)
    """Measure at most so many traces of each teacher: some 200 are enough to rank teachers. Default: all."""


class JudgeSignal(Section):
    """A teacher's word on answers that the typed judge leaves undecided. It never overrules a verdict."""

    teacher: Name | None = None
    prompt: str = (
        "Question: {question}\nReference answer: {gold}\nProposed answer: {prediction}\n\n"
        "Does the proposed answer say the same as the reference answer? Reply with yes or no."
    )
    """{question}, {gold}, {prediction}; the reply must begin or end with a clear yes or no."""
    max_tokens: int = Field(default=512, ge=1)

    @model_validator(mode="after")
    def _asks_about_both(self) -> Self:
        if "{gold}" not in self.prompt or "{prediction}" not in self.prompt:
            raise ValueError("prompt must contain {gold} and {prediction}")
        return self


class GroundingSignal(Section):
    table: str | None = None
    """The key of a sample's meta that holds the table behind its chart; without it the usual keys are tried."""
    relative_tolerance: float = Field(default=0.0, ge=0)
    """Readings within this relative error of the table are supported: for charts whose values are not printed."""


class Rule(Section):
    """A trace for which the SQL condition over the signal table is true is dropped under this name."""

    name: Name
    drop: str


class Mix(Section):
    """Shares of the dataset by the values of one SQL expression, such as teacher or rationale_tokens > 400."""

    by: str
    shares: dict[str, float]
    """Value, as text, to its share; what is left of 1 goes to all other values as they come. NULL is written null."""

    @model_validator(mode="after")
    def _shares_of_one(self) -> Self:
        if not self.shares or min(self.shares.values()) < 0 or sum(self.shares.values()) > 1 + 1e-9:
            raise ValueError(f"shares are numbers from 0 that add up to at most 1, got {self.shares}")
        return self


class Select(Section):
    """Which of the traces that no rule drops enter the dataset."""

    per_question: int | None = Field(default=None, ge=1)
    per_teacher: int | None = Field(default=None, ge=1)
    """Of one question; `per_question` limits over all its teachers."""
    order: tuple[str, ...] = Field(default=("-self_consistency", "near_duplicate", "rationale_tokens"), strict=False)
    """Signals, best first by ascending value; a leading '-' reverses. Ties fall to the trace id."""
    mix: tuple[Mix, ...] = Field(default=(), strict=False)
    """Quotas, all of them met at once; which traces of a kind are left out is random (by `seed`)."""
    limit: int | None = Field(default=None, ge=1)
    """At most so many examples, chosen at random (by `seed`)."""
    curriculum: tuple[str, ...] = Field(default=(), strict=False)
    """Signals that the dataset's rows are ordered by, such as "-question_pass_rate" for easy questions first."""
    weight: str = "1.0"
    """SQL over the signals: what a row counts in the student's loss. No number counts 1, a negative one 0."""


class DatasetCard(Section):
    """What the dataset's card says that nobody can measure."""

    license: str = Field(default="other", pattern=r"^[a-z0-9][a-z0-9.-]*$")
    """As the Hugging Face hub spells it, such as cc-by-4.0; "other" when it is none of these or not known."""
    license_name: str | None = None
    """With license = "other": what it is called."""
    license_link: str | None = None
    language: tuple[str, ...] = Field(default=(), strict=False)
    """Languages of the text by their codes, such as "en"."""
    sources: Mapping[Name, str] = Field(default_factory=dict)
    """Licence of each data source of the recipe, by its name."""
    teachers: Mapping[Name, str] = Field(default_factory=dict)
    """Licence of each teacher's output, by its name."""

    @model_validator(mode="after")
    def _one_license(self) -> Self:
        if self.license != "other" and (self.license_name or self.license_link):
            raise ValueError(f"license_name and license_link go with license = 'other', not {self.license!r}")
        return self


SPOKEN_FOR = (
    "coalesce(judge_verdict = 'correct', false) OR (coalesce(in_majority, false) AND "
    "(coalesce(self_consistency, 0) > 0.5 OR coalesce(teacher_agreement, 0) > 0.5))"
)
"""What speaks for an answer that the gold answer does not decide: the judge arm, or most of the other answers."""
DEFAULT_RULES = (
    Rule(name="incomplete", drop="outcome <> 'complete'"),
    Rule(name="wrong_answer", drop="answer_verdict = 'wrong'"),
    Rule(name="undecided_answer", drop=f"answer_verdict = 'undecided' AND NOT ({SPOKEN_FOR})"),
    Rule(name="judged_wrong", drop="judge_verdict = 'wrong'"),
    Rule(name="bad_format", drop="not format_valid"),
    Rule(name="repetition", drop="repetition_ngram > 0.6"),
    Rule(name="refusal", drop="refusal"),
    Rule(name="arithmetic_slip", drop="arithmetic = 'slip'"),
    Rule(name="not_measured", drop="signal_errors IS NOT NULL"),
    Rule(name="exact_duplicate", drop="exact_duplicate"),
    Rule(name="question_duplicate", drop="question_duplicate_of IS NOT NULL"),
    Rule(name="contaminated", drop="contamination = 'pair'"),
)


class Filter(Section):
    """What is measured, what is dropped, what is chosen. Rules change without measuring again."""

    signals: tuple[SignalName, ...] = Field(default=DEFAULT_SIGNALS, strict=False)
    answer: AnswerSignal = AnswerSignal()
    repetition: RepetitionSignal = RepetitionSignal()
    duplicates: DuplicatesSignal = DuplicatesSignal()
    grounding: GroundingSignal = GroundingSignal()
    contamination: ContaminationSignal = ContaminationSignal()
    corpus: CorpusSignal = CorpusSignal()
    sensitive: SensitiveSignal = SensitiveSignal()
    student: StudentSignal = StudentSignal()
    judge: JudgeSignal = JudgeSignal()
    rules: tuple[Rule, ...] = Field(default=DEFAULT_RULES, strict=False)
    select: Select = Select()
    rationale: Literal["think", "plain"] = "think"
    """How a rationale enters the assistant turn: inside <think> tags, or as plain text before the answer."""
    exports: tuple[ExportName, ...] = Field(default=(), strict=False)
    """Further forms of the dataset, for other trainers, below filter/exports."""
    card: DatasetCard = DatasetCard()
    partition_rows: int = Field(default=10_000, ge=1)
    workers: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _distinct_rules(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(names) != len(set(names)):
            raise ValueError(f"rule names must be distinct, got {names}")
        if "judge" in self.signals and self.judge.teacher is None:
            raise ValueError("signals asks for judge: name one of the [[teachers]] in filter.judge.teacher")
        return self
