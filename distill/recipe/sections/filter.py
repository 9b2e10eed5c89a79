"""The `[filter]` section of a recipe: what is measured, what is dropped, what is chosen.

Defaults live here; `filters/` reads them. Loading touches no data.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal, Self, get_args

from pydantic import field_validator, model_validator

from distill.extensions import EXPORT_FORMATS, SIGNALS
from distill.recipe.base import Dtype, LicensedCard, LocalOrHub, Name, NameOrCode, Section, key

signals_key = partial(key, affects="signals")
filter_key = partial(key, affects="filter")
card_key = partial(key, affects="card")

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
    "ocr",
    "contamination",
    "corpus",
    "question",
    "student",
    "judge",
    "human",
]
SIGNAL_NAMES: tuple[str, ...] = get_args(SignalName)
SignalEntry = Annotated[str, NameOrCode(SIGNALS, SIGNAL_NAMES)]
DEFAULT_SIGNALS: tuple[SignalName, ...] = (
    *("answer", "format", "repetition", "length", "steps", "arithmetic", "language", "refusal", "duplicates"),
    *("agreement", "grounding", "contamination", "corpus"),
)
"""What is measured unless the recipe says otherwise: what needs no model, no list, and not every image decoded."""

ARMS = ("unfiltered", "random")
"""What training can be compared with: every complete trace, and a random part of as many tokens as the dataset."""
PAIRS = "pairs"
"""The arm of a preference stage: a right and a wrong trace of each question that has both."""

EXPORT_NAMES: tuple[str, ...] = ("llava", "llama-factory", "ms-swift", "webdataset")
ExportEntry = Annotated[str, NameOrCode(EXPORT_FORMATS, EXPORT_NAMES)]
"""A form of the dataset."""


class AnswerSignal(Section):
    """Whether the answer of a trace is the gold answer."""

    relative_tolerance: float = key(
        0.0,
        "Numbers within this relative error of the gold answer are correct.",
        affects="generate signals train eval",
        ge=0,
        usual=(0, 0.1),
    )


class RepetitionSignal(Section):
    """How much a trace repeats itself."""

    ngram: int = signals_key(4, "Number of words of the n-grams whose repetition is counted.", ge=1, usual=(2, 10))


class DuplicatesSignal(Section):
    """Near duplicates among the traces of one question."""

    threshold: float = signals_key(
        0.8,
        "Jaccard similarity of word shingles from which two traces of one question are near duplicates.",
        gt=0,
        le=1,
        usual=(0.5, 1),
    )
    shingle: int = signals_key(3, "Number of words of a shingle; fillers do not count.", ge=1, usual=(1, 8))


class CorpusSignal(Section):
    """Near duplicates among all traces of the run."""

    threshold: float = filter_key(
        0.8,
        "Jaccard similarity of word shingles from which two traces of the run, of any questions, are equal.",
        gt=0,
        le=1,
        usual=(0.5, 1),
    )
    shingle: int = signals_key(3, "Number of words of a shingle; fillers do not count.", ge=1, usual=(1, 8))


class ContaminationSignal(Section):
    """Whether question and image are in a test set."""

    sources: tuple[str, ...] | None = signals_key(
        None, "Data sources of the recipe that no stage may train on; default: the source of [eval].", strict=False
    )
    images: Literal["all", "matching", "bytes"] = signals_key(
        "matching",
        "Which images are decoded to find copies that were saved again or resized. all: every image. matching: "
        "those whose question has the words of a test question. bytes: no image, so images are compared by their "
        "bytes only.",
    )


class SensitiveSignal(Section):
    """Personal data, and words that no trace should hold."""

    words: LocalOrHub | None = signals_key(
        None, "A text file of words and phrases to find, one a line; personal data is always searched for."
    )


class StudentSignal(Section):
    """How well traces fit the student, measured with the untuned student itself; needs the train extra."""

    checkpoint: LocalOrHub | None = signals_key(
        None, "Directory or hub name of the untuned student; default: student.model."
    )
    batch_tokens: int = filter_key(
        16_384, "Tokens of one forward pass, with image tokens and padding; they must fit into memory.", ge=1
    )
    max_length: int = signals_key(
        4096, "Longer traces, image tokens included, are not measured.", ge=1, usual=(256, None)
    )
    dtype: Dtype | None = signals_key(None, "Data type of the weights; default: float32 on a CPU, bfloat16 on a GPU.")
    per_teacher: int | None = signals_key(
        None,
        "Measure at most this number of traces of each teacher: some 200 are enough to rank teachers. Default: all.",
        ge=1,
        usual=(50, None),
    )


class JudgeSignal(Section):
    """The verdict of a teacher on answers that the typed judge leaves undecided. It never overrules a verdict."""

    teacher: Name | None = signals_key(None, "The teacher that is asked, by its name.")
    prompt: str = signals_key(
        "Question: {question}\nReference answer: {gold}\nProposed answer: {prediction}\n\n"
        "Does the proposed answer say the same as the reference answer? Reply with yes or no.",
        "Prompt with {question}, {gold} and {prediction}; the reply must begin or end with a clear yes or no.",
    )
    max_tokens: int = signals_key(512, "Largest number of tokens of a reply.", ge=1, usual=(16, None))

    @model_validator(mode="after")
    def _asks_about_both(self) -> Self:
        if "{gold}" not in self.prompt or "{prediction}" not in self.prompt:
            raise ValueError("prompt must contain {gold} and {prediction}")
        return self


class GroundingSignal(Section):
    """Whether the values in the rationale agree with the table of the chart."""

    table: str | None = key(
        None,
        "The key of a sample's meta that holds the table of its chart; default: the usual keys are tried.",
        affects="signals eval",
    )
    relative_tolerance: float = key(
        0.0,
        "Values within this relative error of the table count as supported; for charts whose values are not printed.",
        affects="signals eval",
        ge=0,
    )


class Rule(Section):
    """A trace for which the SQL condition over the signal table is true is dropped under this name."""

    name: Name = filter_key(..., "Name of the rule: the reason of each trace that it drops.")
    drop: str = filter_key(..., "SQL condition over the signals of one trace; the trace is dropped where it is true.")


class Mix(Section):
    """Shares of the dataset by the values of one SQL expression, such as teacher or rationale_tokens > 400."""

    by: str = filter_key(..., "SQL expression over the signals of one trace.")
    shares: dict[str, float] = filter_key(
        ...,
        "Value, as text, and its share; all other values together get the rest of 1. Whole numbers such as 7, 2 "
        "and 1 are parts of the whole dataset. NULL is written null.",
    )

    @field_validator("shares")
    @classmethod
    def _shares_of_one(cls, shares: dict[str, float]) -> dict[str, float]:
        total = sum(shares.values())
        if not shares or min(shares.values()) < 0:
            raise ValueError(f"shares must be numbers of at least 0, and at least one is needed, got {shares}")
        if total <= 1 + 1e-9:
            return shares
        # One number alone, such as 70, has nothing to be a part of: it may be per cent.
        if sum(share > 0 for share in shares.values()) > 1 and all(share.is_integer() for share in shares.values()):
            return {value: share / total for value, share in shares.items()}
        raise ValueError(
            f"shares are numbers that add up to at most 1, or whole numbers such as 7, 2 and 1, got {shares}"
        )


class Select(Section):
    """Which of the traces that no rule drops enter the dataset."""

    per_question: int | None = filter_key(
        None, "Largest number of traces of one question; default: no limit.", ge=1, usual=(1, 32)
    )
    per_teacher: int | None = filter_key(
        None,
        "Largest number of traces of one teacher for one question; default: no limit. `per_question` limits over all "
        "teachers.",
        ge=1,
    )
    order: tuple[str, ...] = filter_key(
        ("-self_consistency", "near_duplicate", "rationale_tokens"),
        "Signals that order the traces of a question, smallest value first; a leading '-' reverses. Ties are broken "
        "by the trace id.",
        strict=False,
    )
    mix: tuple[Mix, ...] = key(
        (),
        "Quotas; the selection meets all of them together. Which traces of a kind are left out is random (by "
        "`seed`).",
        strict=False,
    )
    limit: int | None = filter_key(
        None,
        "Largest number of examples, chosen at random (by `seed`); default: no limit.",
        ge=1,
        usual=(None,),
    )
    curriculum: tuple[str, ...] = filter_key(
        (),
        'Signals that order the rows of the dataset, such as "-question_pass_rate" for easy questions first.',
        strict=False,
    )
    weight: str = filter_key(
        "1.0",
        "SQL expression over the signals: the weight of a row in the student's loss. A value that is not a number "
        "counts as 1, a negative number as 0.",
        usual=("1.0",),
    )


class DatasetCard(LicensedCard):
    """Facts for the dataset card that cannot be measured, such as licences."""

    license: str = card_key(
        "other",
        'Licence as the Hugging Face hub spells it, such as cc-by-4.0; "other" where it has none or is not known.',
        pattern=r"^[a-z0-9][a-z0-9.-]*$",
    )
    license_name: str | None = card_key(None, 'Name of the licence, with license = "other".')
    license_link: str | None = card_key(None, 'Address of the text of the licence, with license = "other".')
    language: tuple[str, ...] = card_key((), 'Languages of the text by their codes, such as "en".', strict=False)
    sources: Mapping[Name, str] = card_key({}, "Licence of each data source of the recipe, by its name.")
    teachers: Mapping[Name, str] = card_key({}, "Licence of each teacher's output, by its name.")


SPOKEN_FOR = (
    "coalesce(judge_verdict = 'correct', false) OR (coalesce(in_majority, false) AND "
    "(coalesce(self_consistency, 0) > 0.5 OR coalesce(teacher_agreement, 0) > 0.5))"
)
"""What speaks for an answer that the gold answer does not decide: the judge, or most of the other answers."""
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
    """What the filter measures, drops and selects. If rules change, nothing is measured again."""

    signals: tuple[SignalEntry, ...] = signals_key(
        DEFAULT_SIGNALS,
        "The families of signals that are measured; default: those that need no model, no word list, and not every "
        'image decoded. Your own: "FILE.py:NAME", or an entry point of a package.',
        strict=False,
    )
    answer: AnswerSignal = key(AnswerSignal(), "Whether the answer is the gold answer.")
    repetition: RepetitionSignal = key(RepetitionSignal(), "How much a trace repeats itself.")
    duplicates: DuplicatesSignal = key(DuplicatesSignal(), "Near duplicates among the traces of one question.")
    grounding: GroundingSignal = key(GroundingSignal(), "Whether the rationale agrees with the chart's table.")
    contamination: ContaminationSignal = key(ContaminationSignal(), "Whether question and image are in a test set.")
    corpus: CorpusSignal = key(CorpusSignal(), "Near duplicates among all traces of the run.")
    sensitive: SensitiveSignal = key(SensitiveSignal(), "Personal data and unwanted words.")
    student: StudentSignal = key(StudentSignal(), "How well traces fit the untuned student.")
    judge: JudgeSignal = key(JudgeSignal(), "The verdict of a teacher on undecided answers.")
    rules: tuple[Rule, ...] = key(
        DEFAULT_RULES,
        "Conditions that drop a trace; a recipe that has rules replaces all of the default ones.",
        strict=False,
    )
    select: Select = key(Select(), "Which of the traces that no rule drops enter the dataset.")
    rationale: Literal["think", "plain"] = key(
        "think",
        "How a rationale enters the assistant turn: inside <think> tags, or as plain text before the answer.",
        affects="signals train eval",
    )
    exports: tuple[ExportEntry, ...] = card_key(
        (),
        'Formats for other trainers, written to filter/exports. Your own: "FILE.py:NAME", or an entry point of a '
        "package.",
        strict=False,
    )
    card: DatasetCard = key(DatasetCard(), "Facts for the dataset card that cannot be measured, such as licences.")
    partition_rows: int = key(
        10_000,
        "Most rows of a partition, the unit of work; a run of few traces has up to 16 partitions of 1,000 rows.",
        because="it changes only how the work is divided; the same bytes come out",
        ge=1,
    )
    workers: int | None = key(
        None,
        "Number of processes that read, measure and write; default: one for each core that the run may use, if there "
        "is work for it.",
        because="it changes only how the work is shared; the same bytes come out",
        ge=1,
    )

    @model_validator(mode="after")
    def _distinct_rules(self) -> Self:
        names = [rule.name for rule in self.rules]
        if len(names) != len(set(names)):
            raise ValueError(f"rule names must be distinct, got {names}")
        if "judge" in self.signals and self.judge.teacher is None:
            raise ValueError("signals asks for judge: name one of the [[teachers]] in filter.judge.teacher")
        return self
