"""Every family of signals, by name, and how one is run without letting one bad trace end the run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

import orjson
import pyarrow as pa

from distill.errors import DistillError
from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace
from filters.signals import contamination
from filters.signals.agreement import Agreement
from filters.signals.answer import Answer
from filters.signals.answer_consistency import Conclusion
from filters.signals.arithmetic import Arithmetic
from filters.signals.base import ERROR, TIMED_OUT
from filters.signals.contamination import Contamination
from filters.signals.format import Format
from filters.signals.grounding import Grounding
from filters.signals.language import Language
from filters.signals.length import Length
from filters.signals.personal_data import Sensitive
from filters.signals.reasoning_steps import Steps
from filters.signals.refusal import Refusal
from filters.signals.repetition import Repetition
from filters.signals.schema import FACTS, SIDE
from filters.signals.time_limits import MOST_CHARACTERS, MOST_SECONDS, OutOfTime, TooMuch, processor_time, too_long
from filters.signals.trace_duplicates import Duplicates


class Extractor(Protocol):
    """A family of signals: a frozen dataclass whose fields are its parameters."""

    name: ClassVar[str]
    version: ClassVar[str]
    """Raised whenever the same trace could get another value."""
    scope: ClassVar[Literal["trace", "sample"]]
    """Whether a value depends on its own trace only, or on all traces of the sample."""
    columns: ClassVar[pa.Schema]

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> Self: ...

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        """One row a trace, in their order; a column left out is NULL. The traces are in the order of their ids."""
        ...


FAMILIES: Mapping[str, type[Extractor]] = {
    "answer": Answer,
    "format": Format,
    "repetition": Repetition,
    "length": Length,
    "steps": Steps,
    "conclusion": Conclusion,
    "arithmetic": Arithmetic,
    "language": Language,
    "refusal": Refusal,
    "sensitive": Sensitive,
    "duplicates": Duplicates,
    "agreement": Agreement,
    "grounding": Grounding,
    "contamination": Contamination,
}

TEST_SETS = "testsets"
"""Where in the stage's folder the index of the test sets lies."""

LOCAL = pa.schema(
    [*FACTS, *(field for family in FAMILIES.values() for field in family.columns), ("signal_errors", pa.string())]
)
"""What is measured partition by partition. Columns of families that were not asked for are NULL."""

COLUMNS = pa.schema([*LOCAL, *(field for _, schema in SIDE.values() for field in schema)])
"""The signal table: one row a trace."""

FAMILY_OF: Mapping[str, str] = {
    column: name
    for name, schema in [
        *((name, family.columns) for name, family in FAMILIES.items()),
        *((name, schema) for name, (_, schema) in SIDE.items()),
    ]
    for column in schema.names
}
"""The family that measures each column; not among them: facts, which need no measuring."""

calls: Counter[str] = Counter()
"""How often each family was asked to measure in this process: deciding anew asks none."""


def build(recipe: Recipe, folder: Path | None = None) -> tuple[Extractor, ...]:
    """The families that the recipe asks for, in the table's order whatever the recipe's.

    What a family compares with is made ready in `folder`, the stage's own; without it there is nothing.
    Raises DataError when that cannot be read.
    """
    found = (family.from_recipe(recipe) for name, family in FAMILIES.items() if name in recipe.filter.signals)
    return tuple(one if folder is None else _ready(one, recipe, folder) for one in found)


def _ready(extractor: Extractor, recipe: Recipe, folder: Path) -> Extractor:
    return extractor if extractor.name != "contamination" else contamination.prepare(recipe, folder / TEST_SETS)


def identity(extractors: tuple[Extractor, ...]) -> dict[str, dict[str, Any]]:
    """Version and parameters of each family: what its values depend on besides the traces.

    A file counts by its content; where it lies changes nothing.
    """
    return {extractor.name: {"version": extractor.version} | _parameters(extractor) for extractor in extractors}


def _parameters(extractor: Extractor) -> dict[str, Any]:
    known = fields(extractor)  # type: ignore[arg-type]  # a Protocol cannot say that it is a dataclass
    return {one.name: getattr(extractor, one.name) for one in known if "location" not in one.metadata}


def rows(extractors: tuple[Extractor, ...], sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
    """The signal rows of one sample's traces, in the order of their ids."""
    traces = sorted(traces, key=lambda trace: trace.id)
    table: list[dict[str, Any]] = [
        {
            "id": trace.id,
            "sample_id": trace.sample_id,
            "teacher": trace.teacher,
            "k": trace.k,
            "domain": sample.domain,
            "outcome": trace.outcome,
            "finish_reason": trace.finish_reason,
            "hinted": trace.hinted,
        }
        for trace in traces
    ]
    errors: list[dict[str, str]] = [{} for _ in traces]
    for extractor in extractors:
        measured = _measured(extractor, sample, traces)
        for row, found, error in zip(table, measured, errors, strict=True):
            if isinstance(found, _Unmeasured):
                row[f"{extractor.name}_state"] = found.state
                error[extractor.name] = found.reason
            else:
                row |= found
    for row, error in zip(table, errors, strict=True):
        row["signal_errors"] = orjson.dumps(error).decode() if error else None
    return table


@dataclass(frozen=True, slots=True)
class _Unmeasured:
    """Why a family has no value for a trace."""

    state: str
    reason: str


_TOO_LONG = _Unmeasured(TIMED_OUT, f"the text has more than {MOST_CHARACTERS:,} characters")
_OUT_OF_TIME = _Unmeasured(TIMED_OUT, f"not done after {MOST_SECONDS:g} s of processor time")


def _measured(extractor: Extractor, sample: Sample, traces: list[Trace]) -> list[dict[str, Any] | _Unmeasured]:
    """One row a trace, or the reason why there is none; a text that is too long is not looked at."""
    short = [trace for trace in traces if not too_long(trace)]
    found = iter(_tried(extractor, sample, short) if short else ())
    return [_TOO_LONG if too_long(trace) else next(found) for trace in traces]


def _tried(extractor: Extractor, sample: Sample, traces: list[Trace]) -> list[dict[str, Any] | _Unmeasured]:
    calls[extractor.name] += 1
    reason: _Unmeasured
    try:
        with processor_time(MOST_SECONDS * len(traces)):
            return list(extractor.measure(sample, traces))
    except DistillError:
        raise
    except OutOfTime:
        reason = _OUT_OF_TIME
    except TooMuch as error:
        reason = _Unmeasured(TIMED_OUT, str(error))
    # Whatever a strange text does to an extractor is that trace's counted state, never the end of the run.
    except Exception as error:
        reason = _Unmeasured(ERROR, f"{type(error).__name__}: {error}"[:500])
    if extractor.scope == "trace" and len(traces) > 1:
        return [found for trace in traces for found in _tried(extractor, sample, [trace])]
    return [reason] * len(traces)
