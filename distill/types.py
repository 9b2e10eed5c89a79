"""The types that all stages share: values that never change. Nothing here reads, writes or imports anything heavy."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar, dataclass_transform

from distill.question_options import read_options

_Value = TypeVar("_Value")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def row_value(cls: type[_Value]) -> type[_Value]:
    """A dataclass that type checkers hold frozen. Python's own `frozen` makes an object in 2.5 times as long."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@row_value
class ImageRef:
    """The place of the encoded bytes of one image; pixels are decoded only when a model needs them.

    `column` is empty when `path` is the image file itself; otherwise `path` is a table (Parquet file or datasets
    directory), and the bytes are item `index` of `column` in row `row`; or `path` is a file, and the bytes are a
    range of it (distill/data/images/image_cells.py).
    """

    sha256: str
    path: str
    column: str = ""
    row: int = 0
    index: int = 0


@row_value
class Sample:
    """One question about zero or more images. `id` is derived from the question and the image bytes."""

    id: str
    images: tuple[ImageRef, ...]
    question: str
    answers: tuple[str, ...] = ()
    """Accepted gold answers, the canonical one first; empty when there is no gold."""
    answer_type: str | None = None
    domain: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> str | None:
        return self.answers[0] if self.answers else None

    def copy(self) -> "Sample":
        """A copy of the sample for user code, which may change its argument."""
        return replace(self, meta=deepcopy(self.meta))

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a multiple-choice question, in order: the row's list, else the options in the question's
        text."""
        offered = self.meta.get("options")
        listed = tuple(str(option) for option in offered) if isinstance(offered, list | tuple) else ()
        return listed or read_options(self.question).texts


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row of a source that cannot be used, with the counted reason."""

    source: str
    row: int
    reason: str
    detail: str


class Outcome(StrEnum):
    """How one attempt of a teacher ended; exactly one applies."""

    COMPLETE = "complete"
    TRUNCATED_THINKING = "truncated_thinking"
    TRUNCATED_ANSWER = "truncated_answer"
    EMPTY_ANSWER = "empty_answer"
    REPETITION = "repetition"
    REFUSAL = "refusal"
    MALFORMED = "malformed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one trace; `image` is part of `prompt`, `reasoning` + `answer` is the completion."""

    prompt: int = 0
    image: int = 0
    reasoning: int = 0
    answer: int = 0
    cached: int | None = None
    """Prompt tokens from the server's cache, where the server reports them; part of `prompt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One attempt of one teacher at one sample: a line of generate/<teacher>/part-*.jsonl."""

    id: str
    sample_id: str
    teacher: str
    k: int
    seed: int
    reasoning: str
    answer: str
    text: str
    outcome: str
    finish_reason: str
    usage: Usage
    params: Mapping[str, Any]
    model: str
    revision: str
    engine: Mapping[str, str]
    prompt_sha: str
    latency_s: float
    created: str
    attempt: int = 0
    """How many attempts at the same k went before this one."""
    draft: str = ""
    """Id of the trace that this one was asked to work on."""
    hinted: bool = False
    """Whether the teacher was shown the gold answer."""
    stop_reason: str = ""
    """What ended the text, where the engine says more than `finish_reason`."""
    error: str = ""
    """Why this row alone failed: other rows passed."""
    notes: tuple[str, ...] = ()
    """Fields of the server's answer that cannot be true and were left out."""
    choice: Mapping[str, int] | None = None
    """Where one request asked for several traces: which of its choices this is (`index`, `of`). `seed` is then that
    of the request, which all of them share."""
    logprobs: Mapping[str, Any] | None = None
    """What `distill.trace_records.logprobs` keeps, where the recipe asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a running stage, for its callback."""

    stage: str
    done: int
    total: int
    """0: not known yet."""
    unit: str
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    resumed: int = 0
    """How many of `done` were there before: they do not count for a rate."""


ProgressCallback = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """The default progress callback of a stage: it does nothing."""
