"""Which traces are kept and which enter the dataset: rules, then selection, over the signal table. Measures nothing.

A condition that is NULL on a trace drops nothing. A dropped trace carries every rule that failed, with the values
that the rule read; a kept one that was not chosen says which limit left it out. Questions whose images cannot be
read any more are dropped under a reason of their own.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts import atomic_path
from distill.errors import RecipeError
from distill.recipe import Select
from filters.conditions import NOT_SELECTED, UNREADABLE_IMAGE, Condition, first_line
from filters.database import Tables, connect

REASON = pa.struct([("rule", pa.string()), ("condition", pa.string()), ("values", pa.string())])
_DECISIONS: list[tuple[str, pa.DataType]] = [
    ("id", pa.string()),
    ("sample_id", pa.string()),
    ("teacher", pa.string()),
    ("k", pa.int64()),
    ("domain", pa.string()),
    ("kept", pa.bool_()),
    ("selected", pa.bool_()),
    ("reasons", pa.list_(REASON)),
]
DECISIONS = pa.schema(_DECISIONS)
"""The decision table: `kept` when no rule failed, `selected` when chosen for the dataset; `values` is JSON."""

_ROW_GROUP = 8192


def decide(
    conditions: Iterable[Condition],
    select: Select,
    tables: Tables,
    unreadable: Mapping[str, str] | None = None,
) -> pa.Table:
    """The decision table of measured traces, sorted by id.

    `unreadable` maps a sample whose images cannot be read to the reason. Raises RecipeError when a condition
    cannot be evaluated on the values that were measured.
    """
    conditions = list(conditions)
    connection = database(tables)
    unreadable = unreadable or {}
    broken = {"sample_id": pa.array(list(unreadable), pa.string()), "why": pa.array(unreadable.values(), pa.string())}
    connection.register("unreadable", pa.table(broken))
    try:
        table: pa.Table = connection.sql(_query(conditions, select)).to_arrow_table()
        return table.cast(DECISIONS)
    except duckdb.Error as error:
        raise _culprit(connection, conditions, error) from None


def database(tables: Tables, decisions: pa.Table | None = None) -> duckdb.DuckDBPyConnection:
    """A database with the tables `signals` and, when given, `decisions`."""
    connection = connect(tables)
    if decisions is not None:
        connection.register("decisions", decisions)
    return connection


def write(decisions: pa.Table, path: Path) -> None:
    with atomic_path(path) as temporary:
        pq.write_table(decisions, temporary, compression="zstd", row_group_size=_ROW_GROUP)


def _query(conditions: list[Condition], select: Select) -> str:
    reasons = [_reason(condition) for condition in conditions]
    image = _struct(f"'{UNREADABLE_IMAGE}'", "'the image can be read'", "json_object('reason', why)")
    reasons.append(f"CASE WHEN why IS NOT NULL THEN {image} END")
    order = _order(select)
    by_teacher = "true" if select.per_teacher is None else f"teacher_rank <= {select.per_teacher}"
    by_question = "true" if select.per_question is None else f"question_rank <= {select.per_question}"
    # The limit of a teacher comes first: a place that it frees goes to the next best trace of another teacher.
    return f"""
        WITH judged AS (
            SELECT signals.*,
                list_filter([{", ".join(reasons)}], lambda reason: reason IS NOT NULL) AS failed,
                len(failed) = 0 AS kept
            FROM signals LEFT JOIN unreadable USING (sample_id)
        ), by_teacher AS (
            SELECT *, row_number() OVER (PARTITION BY sample_id, kept, teacher ORDER BY {order}) AS teacher_rank
            FROM judged
        ), by_question AS (
            SELECT *,
                row_number() OVER (PARTITION BY sample_id, kept, {by_teacher} ORDER BY {order}) AS question_rank
            FROM by_teacher
        )
        SELECT id, sample_id, teacher, k, domain, kept, kept AND {by_teacher} AND {by_question} AS selected,
            CASE
                WHEN NOT kept THEN failed
                WHEN NOT {by_teacher} THEN [{_not_selected("per_teacher", select.per_teacher, "teacher_rank")}]
                WHEN NOT {by_question} THEN [{_not_selected("per_question", select.per_question, "question_rank")}]
                ELSE []
            END AS reasons
        FROM by_question ORDER BY id"""


def _reason(condition: Condition) -> str:
    values = ", ".join(f"{_text(name)}, {_identifier(name)}" for name in condition.columns)
    reason = _struct(_text(condition.name), _text(condition.sql), f"json_object({values})")
    return f"CASE WHEN (\n{condition.sql}\n) THEN {reason} END"


def _not_selected(limit: str, value: int | None, rank: str) -> str:
    return _struct(_text(NOT_SELECTED), _text(f"{limit} = {value}"), f"json_object('rank', {rank})")


def _struct(rule: str, condition: str, values: str) -> str:
    return f"{{'rule': {rule}, 'condition': {condition}, 'values': CAST({values} AS VARCHAR)}}"


def _order(select: Select) -> str:
    """Best first; what was not measured comes last, ties fall to the id."""
    terms = [
        f"{_identifier(entry.removeprefix('-'))} {'DESC' if entry.startswith('-') else 'ASC'} NULLS LAST"
        for entry in select.order
    ]
    return ", ".join([*terms, "id"])


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _culprit(connection: duckdb.DuckDBPyConnection, conditions: list[Condition], error: duckdb.Error) -> Exception:
    """The rule whose condition cannot be evaluated on these values; the error itself when no rule is to blame."""
    for condition in conditions:
        try:
            connection.execute(f"SELECT count(*) FROM signals WHERE (\n{condition.sql}\n)").fetchall()
        except duckdb.Error as own:
            return RecipeError(f"filter.rules.{condition.name}: drop = {condition.sql!r}: {first_line(own)}")
    return error
