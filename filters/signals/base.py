"""The interface of a family of signals: its columns, and the states of a measurement.

A value is valid only where the family's `<name>_state` is `ok`.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Protocol, Self

import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace

OK = "ok"
NOT_APPLICABLE = "not_applicable"
"""There is nothing to measure here: no gold answer, no text, one trace where several are needed."""
UNDECIDABLE = "undecidable"
"""Measured, but the result is ambiguous."""
ERROR = "error"
"""The extractor failed on this trace: the reason is in `signal_errors`."""
TIMED_OUT = "timed_out"
"""Measuring was given up: the text is longer, or holds more, than is looked at. The reason is in `signal_errors`."""
WORDS = "words"
"""Lengths are words, because the recipe names no student whose tokenizer could count."""
STATES = (OK, NOT_APPLICABLE, UNDECIDABLE, ERROR, TIMED_OUT, WORDS)

LOCATION = {"location": True}
"""Metadata of a dataclass field that says where a file lies; a field beside it holds the file's digest."""

VALUE_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "number": pa.float64(),
    "count": pa.int64(),
    "flag": pa.bool_(),
}


class Extractor(Protocol):
    """A family of signals: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    version: ClassVar[str]
    """Raised whenever the same trace could get another value."""
    scope: ClassVar[Literal["trace", "sample"]]
    """Whether a value depends on its own trace only, or on all traces of the sample.

    A family of the project with "trace" sees one of several traces of a sample with equal reasoning, answer, text,
    outcome and finish_reason, and all have its row: it must not look at other fields of a trace.
    """
    columns: ClassVar[pa.Schema]

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Self: ...

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        """One row for each trace, in the order of `traces` (sorted by id); a missing column is NULL."""
        ...


class SignalOfEachTrace(ABC):
    """A family that measures one trace at a time; without a `from_recipe` of its own it has no parameters."""

    __slots__ = ()

    scope: ClassVar[Literal["trace", "sample"]] = "trace"

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Self:
        return cls()

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        return [self.row(sample, trace) for trace in traces]

    @abstractmethod
    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        """The values of a trace by column; a missing column is NULL."""


def family(name: str, **columns: tuple[str, str]) -> pa.Schema:
    """The schema of a family: its state, then each column as (kind, description). Raises ValueError."""
    for column, stated in columns.items():
        if not (isinstance(stated, tuple) and len(stated) == 2 and stated[0] in VALUE_TYPES):
            raise ValueError(
                f"the column {column} is {stated!r:.60}; state (kind, description), the kind one of "
                f"{', '.join(VALUE_TYPES)}"
            )
    fields = [_field(f"{name}_state", pa.string(), f"whether {name} could be measured on this trace")]
    fields += [_field(column, VALUE_TYPES[kind], description) for column, (kind, description) in columns.items()]
    return pa.schema(fields)


def _field(name: str, kind: pa.DataType, description: str) -> "pa.Field[Any]":
    return pa.field(name, kind, metadata={"description": description})
