"""Rules of a recipe, checked: SQL conditions that can be evaluated on the signal table and can do nothing else.

A condition is one scalar expression of DuckDB over the columns of the signal table. It sees one row at a time, gives
the same result on every day, and reaches no file. Checking reads no data, so a typo is reported before anything is
measured. `filters.decisions.decide` evaluates the conditions.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from distill.errors import RecipeError, first_line
from distill.recipe.sections.filter import Filter, Rule, Select
from filters.decisions.allowed_functions import ALLOWED, LOCAL_TYPES, NAMES
from filters.tables.signal_database import empty_database, project_columns

NOT_SELECTED = "not_selected"
UNREADABLE_IMAGE = "unreadable_image"
RESERVED = (NOT_SELECTED, UNREADABLE_IMAGE)
"""Reasons that are not rules of a recipe."""

# Classes of DuckDB's syntax tree that one row's expression consists of. Not among them: SUBQUERY, WINDOW, STAR,
# PARAMETER, LAMBDA, DEFAULT.
_EXPRESSIONS = frozenset(
    [
        *("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON"),
        *("CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "TYPE"),
    ]
)
_NUMBER = re.compile(r"DOUBLE|FLOAT|DECIMAL\(\d+,\d+\)|U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)")
_ORDER = {
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_EXAMPLE = "a rule is one condition on one trace, such as \"answer_verdict = 'wrong'\""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A trace is dropped when `column operator number`."""

    column: str
    operator: str
    number: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A checked rule, with the columns that it reads, in the table's spelling and order."""

    name: str
    sql: str
    columns: tuple[str, ...]
    threshold: Threshold | None
    """What it compares if it has the form `column > number`, on whichever side the number stands."""


_WORKS_ON_EVERY_TRACE = (
    "an expression must work on every trace, so write try_cast(COLUMN AS TYPE), which gives NULL where a value does "
    "not fit, or a CASE for the traces that have one"
)


def check(settings: Filter, columns: pa.Schema | None = None) -> list[Condition]:
    """The rules of a recipe as conditions on a signal table with these columns; default: the project's columns.

    Raises RecipeError for them and for what the selection names.
    """
    columns = project_columns() if columns is None else columns
    connection = empty_database(columns)
    for key in ("order", "curriculum"):
        entries = getattr(settings.select, key)
        for entry in entries:
            _known_column(f"filter.select.{key} = {list(entries)}", entry.removeprefix("-"), columns.names)
    for mix in settings.select.mix:
        _check_expression(connection, mix.by, f"filter.select.mix: by = {mix.by!r}", columns.names)
    where = f"filter.select.weight = {settings.select.weight!r}"
    _, kind, _ = _check_expression(connection, settings.select.weight, where, columns.names)
    if not _NUMBER.fullmatch(kind):
        raise RecipeError(f"{where}: gives {kind.lower()}, not a number")
    return [_check_rule(connection, rule, columns.names) for rule in settings.rules]


def check_condition(sql: str, columns: pa.Schema) -> None:
    """Check one condition over these columns as a rule is checked. Raises RecipeError."""
    _check_condition(empty_database(columns), sql, f"condition = {sql!r}", columns.names)


def expressions(conditions: Iterable[Condition], select: Select) -> list[tuple[str, str]]:
    """The expressions of rules and mixes, each with its recipe key in front."""
    return [
        *((f"filter.rules.{condition.name}: drop", condition.sql) for condition in conditions),
        *(("filter.select.mix: by", mix.by) for mix in select.mix),
    ]


def faulty_expression(
    connection: duckdb.DuckDBPyConnection, candidates: Iterable[tuple[str, str]], error: duckdb.Error
) -> Exception:
    """An error for the first expression that fails on the values of `signals`; the given error if no expression
    fails."""
    for where, sql in candidates:
        try:
            connection.execute(f"SELECT count((\n{sql}\n)) FROM signals").fetchall()
        except duckdb.Error as failure:
            return RecipeError(f"{where} = {sql!r}: {first_line(failure)}; {_WORKS_ON_EVERY_TRACE}")
    return error


def _check_rule(connection: duckdb.DuckDBPyConnection, rule: Rule, names: Sequence[str]) -> Condition:
    where = f"filter.rules.{rule.name}: drop = {rule.drop!r}"
    if rule.name in RESERVED:
        raise RecipeError(f"{where}: the name is one of the toolkit's own reasons; choose another")
    columns, tree = _check_condition(connection, rule.drop, where, names)
    return Condition(name=rule.name, sql=rule.drop, columns=columns, threshold=_threshold(tree, columns))


def _threshold(node: dict[str, Any], columns: tuple[str, ...]) -> Threshold | None:
    operator = _ORDER.get(node["type"])
    if operator is None or len(columns) != 1:
        return None
    sides = [node["left"], node["right"]]
    if sides[0]["class"] == "CONSTANT":
        operator, sides = _MIRRORED[operator], sides[::-1]
    literal = sides[1].get("literal") or {}
    if sides[0]["class"] != "COLUMN_REF" or literal.get("kind") not in ("INTEGER", "NUMERIC"):
        return None
    return Threshold(column=columns[0], operator=operator, number=float(literal["text"].replace("_", "")))


def _check_condition(
    connection: duckdb.DuckDBPyConnection, sql: str, where: str, names: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The columns, of these names, that a condition reads, and its syntax tree."""
    columns, kind, tree = _check_expression(connection, sql, where, names)
    if kind != "BOOLEAN":
        raise RecipeError(f"{where}: gives {kind.lower()}, not true or false; compare it with something")
    return columns, tree


def _check_expression(
    connection: duckdb.DuckDBPyConnection, sql: str, where: str, names: Sequence[str]
) -> tuple[tuple[str, ...], str, dict[str, Any]]:
    """The columns, of these names, that an expression over one trace reads, its SQL type and its syntax tree."""
    columns: set[str] = set()
    tree = _expression(connection, sql, where)
    for node in _walk(tree):
        kind = node["class"]
        if kind not in _EXPRESSIONS:
            raise RecipeError(f"{where}: {kind.lower()} is not allowed; {_EXAMPLE}")
        if kind == "FUNCTION" and node["function_name"].lower() not in ALLOWED:
            raise RecipeError(f"{where}: {_not_allowed(node['function_name'].lower())}")
        if kind == "TYPE" and node["type_name"].lower() in LOCAL_TYPES:
            raise RecipeError(f"{where}: {node['type_name']} depends on the time zone of the machine; use timestamp")
        if kind == "COLUMN_REF":
            columns.add(_known_column(where, node["column_names"][-1], names))
    try:
        query = connection.sql(f"SELECT (\n{sql}\n) FROM signals")
        (result,) = query.types
        query.fetchall()
    except duckdb.Error as error:
        raise RecipeError(f"{where}: {first_line(error)}") from None
    return tuple(name for name in names if name in columns), str(result), tree


def _not_allowed(name: str) -> str:
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.5)
    return (
        f"the function {name} is not known or not allowed; a rule sees one trace at a time and gives the same result "
        f"on every day{f'; the nearest allowed one is {near[0]}' if near else ''} "
        "(all: filters/decisions/allowed_functions.toml)"
    )


def _expression(connection: duckdb.DuckDBPyConnection, sql: str, where: str) -> dict[str, Any]:
    """The syntax tree of one expression. Raises RecipeError for a text with another clause or statement."""
    tree, plain = _trees(connection, sql)
    if tree["error"] and tree["error_type"] == "parser":
        raise RecipeError(f"{where}: not an SQL condition: {tree['error_message']}")
    if tree["error"]:
        raise RecipeError(f"{where}: only a condition is allowed, no other statement")
    chosen = [statement["node"].pop("select_list", []) for statement in tree["statements"]]
    plain["statements"][0]["node"].pop("select_list")
    if _without_locations(tree) != _without_locations(plain) or len(chosen[0]) != 1:
        raise RecipeError(f"{where}: only a condition is allowed, no other clause")
    expression: dict[str, Any] = chosen[0][0]
    if expression.get("function_name") == "row" and not expression["arguments"]:  # `()`: no text but a comment
        raise RecipeError(f"{where}: it is empty; {_EXAMPLE}")
    return expression


def _trees(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """The syntax tree of a query of one expression, and the tree of the simplest such query."""
    # The line break ends a comment that the condition may end with.
    queries = [f"SELECT (\n{each}\n) FROM signals" for each in (sql, "true")]
    (texts,) = connection.execute("SELECT json_serialize_sql(?), json_serialize_sql(?)", queries).fetchall()
    return [orjson.loads(text) for text in texts]


def _without_locations(node: Any) -> Any:
    """A syntax tree without the places in the text."""
    if isinstance(node, dict):
        return {key: _without_locations(value) for key, value in node.items() if not key.startswith("query_location")}
    return [_without_locations(item) for item in node] if isinstance(node, list) else node


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    """Every expression in a syntax tree."""
    if isinstance(node, dict):
        if "class" in node:
            yield node
        for child in node.values():
            yield from _walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from _walk(child)


def _known_column(where: str, name: str, names: Sequence[str]) -> str:
    known = {column.lower(): column for column in names}
    if name.lower() in known:
        return str(known[name.lower()])
    nearest = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {known[nearest[0]]!r}?" if nearest else "text is written in single quotes"
    raise RecipeError(f"{where}: no column {name!r}; {hint} (known: {', '.join(names)})")
