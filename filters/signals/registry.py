"""Every family of signals by name, and how one is run so that one bad trace cannot end the run.

A family is a class in filters/signals/families, found by its name in filter.signals. Or it is a class in a user's
file or an installed package, which the recipe names (`filters.signals.user_signals`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from inspect import isclass
from operator import attrgetter
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import orjson
import pyarrow as pa

# Families import their libraries when they measure (0.5 s of processor time), because only the workers need them.
import filters.signals.families as families_folder
from distill.errors import DistillError
from distill.extensions import FAILURES, describe
from distill.machine.processor_time import OutOfTime, processor_time
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import SIGNAL_NAMES
from distill.types import Sample, Trace
from filters.signals import user_signals
from filters.signals.base import ERROR, TIMED_OUT, Extractor
from filters.signals.families import contamination
from filters.signals.families.ocr import Ocr
from filters.signals.schema import FACTS, SIDE
from filters.signals.time_limits import MOST_CHARACTERS, MOST_SECONDS, MOST_WAITING_SECONDS, TooMuch, too_long


def _find_families() -> dict[str, type[Extractor]]:
    """The families of filters/signals/families, in the order of their names in the recipe's model."""
    class_of_name: dict[str, type[Extractor]] = {}
    for module in iter_modules(families_folder.__path__, f"{families_folder.__name__}."):
        classes: Iterator[Any] = (
            value
            for value in vars(import_module(module.name)).values()
            if isclass(value) and value.__module__ == module.name
        )
        class_of_name |= {
            value.name: value for value in classes if hasattr(value, "measure") and hasattr(value, "from_recipe")
        }
    return {name: class_of_name[name] for name in SIGNAL_NAMES if name in class_of_name}


Asked = tuple[Sample, list[Trace]]
"""A sample and its traces."""

FAMILIES: Mapping[str, type[Extractor]] = _find_families()
"""The project's own families that are measured partition by partition."""

TEST_SETS = "testsets"
"""Where in the stage's folder the index of the test sets lies."""


def local_columns(outside_families: Mapping[str, type[Extractor]]) -> pa.Schema:
    """The columns measured partition by partition, with these families besides the project's.

    Columns of families that were not asked for are NULL.
    """
    measured = (field for family in (*FAMILIES.values(), *outside_families.values()) for field in family.columns)
    return pa.schema([*FACTS, *measured, ("signal_errors", pa.string())])


LOCAL = local_columns({})
COLUMNS = pa.schema([*LOCAL, *(field for _, schema in SIDE.values() for field in schema)])
"""The signal table without families from outside: one row a trace."""


def families(recipe: Recipe) -> dict[str, type[Extractor]]:
    """The project's families and those that the recipe brings from outside. Raises RecipeError."""
    taken = {**{name: family.columns for name, family in FAMILIES.items()}, **_side_schemas()}
    return {**FAMILIES, **user_signals.load(recipe, taken)}


def schemas(recipe: Recipe) -> dict[str, pa.Schema]:
    """The columns of every family."""
    return {name: family.columns for name, family in families(recipe).items()} | _side_schemas()


def columns(recipe: Recipe) -> pa.Schema:
    """The signal table of a recipe: one row a trace."""
    outside_families = {name: family for name, family in families(recipe).items() if name not in FAMILIES}
    return pa.schema([*local_columns(outside_families), *(field for _, schema in SIDE.values() for field in schema)])


def family_of(recipe: Recipe) -> dict[str, str]:
    """The family that measures each column; not among them: facts, which need no measuring."""
    return {column: name for name, schema in schemas(recipe).items() for column in schema.names}


def _side_schemas() -> dict[str, pa.Schema]:
    return {name: schema for name, (_, schema) in SIDE.items()}


calls: Counter[str] = Counter()
"""Calls per family in this process; tests assert that deciding again measures nothing."""


def build(recipe: Recipe, folder: Path | None = None) -> tuple[Extractor, ...]:
    """The families that the recipe asks for, in the order of the table, not of the recipe.

    The index of the test sets is built in `folder`, the stage's folder, and the text of images lies beside it;
    without a folder contamination and ocr are not measured.
    Raises DataError when that cannot be read, RecipeError when a family from outside cannot be used.
    """
    asked = [family for name, family in families(recipe).items() if name in signal_names(recipe)]
    built = (user_signals.build(family, recipe) for family in asked)
    return tuple(extractor if folder is None else _with_files(extractor, recipe, folder) for extractor in built)


def signal_names(recipe: Recipe) -> tuple[str, ...]:
    """The names of the families that filter.signals asks for, those from outside by the names that they have."""
    outside_families = user_signals.load(recipe, {})
    return (*(name for name in recipe.filter.signals if name in SIGNAL_NAMES), *outside_families)


def _with_files(extractor: Extractor, recipe: Recipe, folder: Path) -> Extractor:
    """A family with the files that it reads."""
    if isinstance(extractor, Ocr):
        return extractor.with_texts(folder.parent)
    return extractor if extractor.name != "contamination" else contamination.prepare(recipe, folder / TEST_SETS)


def identity(extractors: tuple[Extractor, ...]) -> dict[str, dict[str, Any]]:
    """Version, parameters and foreign code of each family: what its values depend on besides the traces.

    A file counts by its content; where it lies changes nothing.
    """
    return {
        extractor.name: {"version": extractor.version} | _parameters(extractor) | user_signals.identity(extractor)
        for extractor in extractors
    }


def _parameters(extractor: Extractor) -> dict[str, Any]:
    parameters = fields(extractor)  # type: ignore[arg-type]  # a Protocol cannot say that it is a dataclass
    return {
        parameter.name: getattr(extractor, parameter.name)
        for parameter in parameters
        if "location" not in parameter.metadata
    }


def rows(extractors: tuple[Extractor, ...], sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
    """The signal rows of one sample's traces, in the order of their ids."""
    return rows_of_samples(extractors, [(sample, traces)])


def rows_of_samples(extractors: tuple[Extractor, ...], asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """The signal rows of the traces of several samples, in this order of samples and in the order of the ids.

    Each family measures all traces before the next family begins, so its data stays in the processor's caches. A
    family of the project that looks at one trace at a time measures traces of one content once.
    """
    asked = [(sample, sorted(traces, key=lambda trace: trace.id)) for sample, traces in asked]
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
        for sample, traces in asked
        for trace in traces
    ]
    errors: list[dict[str, str]] = [{} for _ in table]
    is_long = [too_long(trace) for _, traces in asked for trace in traces]
    if any(is_long):
        asked = [(sample, [trace for trace in traces if not too_long(trace)]) for sample, traces in asked]
    asked = [(sample, traces) for sample, traces in asked if traces]
    distinct, places = _distinct(asked)
    for extractor in extractors:
        if extractor.scope == "trace" and extractor.name in FAMILIES:
            rows_of_contents = _measure_family(extractor, distinct)
            results = iter([rows_of_contents[place] for place in places])
        else:
            results = iter(_measure_family(extractor, asked))
        measured = [_TOO_LONG if is_too_long else next(results) for is_too_long in is_long]
        for row, values, error in zip(table, measured, errors, strict=True):
            if isinstance(values, _Unmeasured):
                row[f"{extractor.name}_state"] = values.state
                error[extractor.name] = values.reason
            else:
                row |= values
    for row, error in zip(table, errors, strict=True):
        row["signal_errors"] = errors_text(error)
    return table


_content = attrgetter("reasoning", "answer", "text", "outcome", "finish_reason")
"""What the project's families of scope "trace" may depend on besides the sample: not on who wrote it, nor when."""


def _distinct(asked: Sequence[Asked]) -> tuple[list[Asked], list[int]]:
    """The first trace of each content of each sample, and for every trace the place of that one among them.

    Teachers often say the same in several traces of a question.
    """
    distinct: list[Asked] = []
    places: list[int] = []
    count = 0
    for sample, traces in asked:
        first_traces: list[Trace] = []
        place_of: dict[tuple[str, ...], int] = {}
        for trace in traces:
            content = _content(trace)
            if content not in place_of:
                place_of[content] = count
                first_traces.append(trace)
                count += 1
            places.append(place_of[content])
        distinct.append((sample, first_traces))
    return distinct, places


def errors_text(errors: Mapping[str, str]) -> str | None:
    """The cell of the column signal_errors: a reason by family, as JSON; None without one."""
    return orjson.dumps(errors).decode() if errors else None


@dataclass(frozen=True, slots=True)
class _Unmeasured:
    """Why a family has no value for a trace."""

    state: str
    reason: str


_TOO_LONG = _Unmeasured(TIMED_OUT, f"the text has more than {MOST_CHARACTERS:,} characters")
OUT_OF_TIME = _Unmeasured(
    TIMED_OUT, f"not done after {MOST_SECONDS:g} s of processor time, or {MOST_WAITING_SECONDS:g} s of waiting"
)


def _measure_family(extractor: Extractor, asked: Sequence[Asked]) -> list[dict[str, Any] | _Unmeasured]:
    """One row a trace, or the reason why there is none: all samples under one limit, or one by one if that fails."""
    if len(asked) > 1:
        try:
            with processor_time(MOST_SECONDS, MOST_WAITING_SECONDS):
                measured = [user_signals.measure(extractor, sample, traces) for sample, traces in asked]
        except (OutOfTime, *FAILURES):  # the sample that is the cause is found below
            pass
        else:
            calls[extractor.name] += len(asked)
            return [row for sample_rows in measured for row in sample_rows]
    return [row for sample, traces in asked for row in _try_measure(extractor, sample, traces)]


def _try_measure(extractor: Extractor, sample: Sample, traces: list[Trace]) -> list[dict[str, Any] | _Unmeasured]:
    calls[extractor.name] += 1
    reason: _Unmeasured
    try:
        with processor_time(MOST_SECONDS * len(traces), MOST_WAITING_SECONDS * len(traces)):
            return [*user_signals.measure(extractor, sample, traces)]
    except OutOfTime:
        reason = OUT_OF_TIME
    except TooMuch as error:
        reason = _Unmeasured(TIMED_OUT, str(error))
    # A failure on a strange text is a counted state of that trace and does not end the run.
    except FAILURES as error:
        if isinstance(error, DistillError) and extractor.name in FAMILIES:
            raise
        reason = _Unmeasured(ERROR, describe(error))
    if extractor.scope == "trace" and len(traces) > 1:
        return [row for trace in traces for row in _try_measure(extractor, sample, [trace])]
    return [reason] * len(traces)
