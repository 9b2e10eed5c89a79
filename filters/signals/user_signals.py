"""Families of signals from outside the project: from a file that the recipe names, or from an installed package.

`filters.signals.base.Extractor` defines such a family. Its rows are checked, unlike the rows of built-in families; a
faulty row is a counted error of its trace.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from inspect import isclass
from math import isfinite
from typing import Any

import pyarrow as pa

from distill import extensions
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import SIGNAL_NAMES
from distill.types import Sample, Trace
from distill.word_tables import counted
from filters.signals.base import STATES, VALUE_TYPES, Extractor, SignalOfEachTrace
from filters.signals.schema import FACTS, OWN_COLUMNS

_KEY = "filter.signals"
_LONGEST_TEXT = 10_000
"""Tables hold the texts of all traces."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def load(recipe: Recipe, taken: Mapping[str, pa.Schema]) -> dict[str, type[Extractor]]:
    """The families of filter.signals that do not belong to the project, each under its own name.

    `taken` has the columns of the families that are there. Raises RecipeError for a family that cannot be used, or
    whose name or columns another one has.
    """
    family_of_name: dict[str, type[Extractor]] = {}
    owner = {column: f"the signal {family}" for family, schema in taken.items() for column in schema.names}
    owner |= dict.fromkeys(OWN_COLUMNS, "the signal table")
    for value in recipe.filter.signals:
        if value in SIGNAL_NAMES:
            continue
        family = extensions.load(extensions.SIGNALS, value, _KEY, recipe.path.parent, find_fault).loaded
        if family.name in {*SIGNAL_NAMES, *family_of_name, *FACTS.names}:
            raise RecipeError(
                f"{_KEY} = {value!r}: another signal or column is called {family.name!r}; give it another name"
            )
        for column in family.columns.names:
            if column in owner:
                raise RecipeError(
                    f"{_KEY} = {value!r}: its column {column} is already one of {owner[column]}; give it another name"
                )
        owner |= dict.fromkeys(family.columns.names, f"the signal {family.name}")
        family_of_name[family.name] = family
    return family_of_name


def find_fault(family: Any) -> str:
    """The reason why an object is no family of signals; '' for a valid one."""
    if not isclass(family):
        return f"a signal is a class with @dataclass(frozen=True), this is {type(family).__name__}"
    if not (is_dataclass(family) and family.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        return f"a signal is a class with @dataclass(frozen=True), and {family.__name__} is a class without it"
    return _find_faulty_part(family)


def _find_faulty_part(family: Any) -> str:
    wrong = {
        "name": not (isinstance(getattr(family, "name", None), str) and _NAME.fullmatch(family.name)),
        "version": not isinstance(getattr(family, "version", None), str),
        "scope": getattr(family, "scope", None) not in ("trace", "sample"),
        "columns": not isinstance(getattr(family, "columns", None), pa.Schema),
        "from_recipe": not callable(getattr(family, "from_recipe", None)),
        "measure": not callable(getattr(family, "measure", None)),
    }
    meaning = {
        "name": "a text of small letters, digits and _",
        "version": "a text, raised whenever the same trace could get another value",
        "scope": "'trace' or 'sample'",
        "columns": "made by filters.signals.base.family(name, ...)",
        "from_recipe": "a class method that makes it from the recipe",
        "measure": "a method of a sample and its traces that returns a row for each trace",
    }
    for part, is_wrong in wrong.items():
        if is_wrong:
            return f"{family.__name__}.{part} is missing or wrong: it is {meaning[part]}"
    return _wrong_columns(family.name, family.columns)


def _wrong_columns(name: str, columns: pa.Schema) -> str:
    if not columns.names or columns.names[0] != f"{name}_state":
        return f"the first column must be {name}_state; make columns with filters.signals.base.family({name!r}, ...)"
    types = VALUE_TYPES.values()
    bad = [field.name for field in columns if field.type not in types]
    if bad:
        return f"the columns {', '.join(bad)} have none of the kinds {', '.join(VALUE_TYPES)}"
    bad = [column for column in columns.names if not (column.startswith(f"{name}_") and _NAME.fullmatch(column))]
    if bad:
        return f"the columns {', '.join(bad)} must begin with {name}_ and consist of small letters, digits and _"
    bad = [column for column in columns.names[1:] if column.endswith("_state")]
    if bad:  # the report and the counts of states read it as the state of another signal
        return f"the columns {', '.join(bad)} end in _state, as only the first one may; give them other names"
    return ""


def identity(extractor: Extractor) -> dict[str, str]:
    """What identifies the code of a family from outside; nothing for the project's own."""
    code = extensions.code_of(type(extractor))
    return {} if code is None else {"code": code}


def build(family: type[Extractor], recipe: Recipe) -> Extractor:
    """A family with the parameters that it takes from the recipe. Raises RecipeError where one from outside fails."""
    try:
        built = extensions.call(family.from_recipe, recipe)
        if not isinstance(built, family):
            raise TypeError(f"it returned {type(built).__name__}, not {family.__name__}")
    except extensions.FAILURES as error:
        if _is_own(family):
            raise
        reason = extensions.describe(error)
        raise RecipeError(f"{_KEY}: {family.__name__}.from_recipe failed: {reason}; correct the function") from error
    called_with = {"measure": ("sample", "traces")}
    if isinstance(built, SignalOfEachTrace):
        called_with["row"] = ("sample", "trace")
    for name, parameters in called_with.items():
        if fault := extensions.call_fault(getattr(built, name), *parameters):
            raise RecipeError(f"{_KEY}: {family.__name__}.{name}: {fault}; correct the function")
    return built


def measure(extractor: Extractor, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
    """The rows of a family; rows of a family from outside are checked against its columns.

    Raises ValueError for rows that do not, and what the family raises.
    """
    if _is_own(type(extractor)):
        return extractor.measure(sample, traces)
    rows = extensions.call(lambda: list(_copied_rows(extractor, sample.copy(), list(traces))))
    if len(rows) != len(traces):
        raise ValueError(f"measure returned {counted(len(rows), 'row')} for {counted(len(traces), 'trace')}")
    names, state = set(extractor.columns.names), f"{extractor.name}_state"
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError(f"a row is {row!r:.60} ({type(row).__name__}); return a dict of columns and values")
        if unknown := sorted(row.keys() - names):
            raise ValueError(f"measure returned {', '.join(unknown)}, which columns does not name")
        if row.get(state) not in STATES:
            raise ValueError(f"{state} is {row.get(state)!r:.60}; it is one of {', '.join(STATES)}")
    arrays = [_converted(column, [row.get(column.name) for row in rows]) for column in extractor.columns]
    return list(pa.Table.from_arrays(arrays, schema=extractor.columns).to_pylist())


def _copied_rows(extractor: Any, sample: Sample, traces: list[Trace]) -> Iterator[Any]:
    """What a family returns, row by row: the next row may be the same dict with other values."""
    one_by_one = isinstance(extractor, SignalOfEachTrace) and type(extractor).measure is SignalOfEachTrace.measure
    rows = (extractor.row(sample, trace) for trace in traces) if one_by_one else extractor.measure(sample, traces)
    for row in rows:
        yield dict(row) if isinstance(row, Mapping) else row


def _converted(column: "pa.Field[Any]", values: list[Any]) -> "pa.Array[Any]":
    """The values of a column. Raises TypeError for one of another kind, ValueError for one that is no measurement."""
    for value in values:
        try:
            pa.array([value], column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            kind = next(kind for kind, type_ in VALUE_TYPES.items() if type_ == column.type)
            raise TypeError(
                f"{column.name} is {value!r:.60} ({type(value).__name__}); the kind of this column is {kind!r}"
            ) from error
    _check_values(column, values)
    return pa.array(values, column.type)


def _check_values(column: "pa.Field[Any]", values: Iterable[Any]) -> None:
    """Raise ValueError for what would be another number or none in a rule, and for a text that is no measurement."""
    for value in values:
        if value is None:
            continue
        if column.type == VALUE_TYPES["count"] and (value != int(value) or value < 0):
            raise ValueError(f"{column.name} is {value!r:.60}; a count is a whole number of at least 0")
        if column.type == VALUE_TYPES["text"] and len(value) > _LONGEST_TEXT:
            raise ValueError(f"{column.name} has {len(value):,} characters; a text has {_LONGEST_TEXT:,} at most")
        if column.type == VALUE_TYPES["number"] and not isfinite(value):
            raise ValueError(f"{column.name} is {value!r:.60}; leave out a value that is not a number")


def _is_own(family: type[Extractor]) -> bool:
    """Whether a family is the project's own."""
    return family.__module__.startswith("filters.signals.")
