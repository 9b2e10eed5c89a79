"""Which traces are kept and which enter the dataset: rules, then selection, over the signal table.

A condition that is NULL for a trace does not drop it. A dropped trace has every rule that failed, with the values
that the rule read; a kept trace that is not selected has the limit that left it out. Questions whose images cannot
be read any more are dropped with a reason of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.recipe.sections.filter import Select
from filters.decisions.copies import preferred_copies
from filters.decisions.quotas import target_counts
from filters.decisions.rules import NOT_SELECTED, UNREADABLE_IMAGE, Condition, expressions, faulty_expression
from filters.tables.id_columns import ids_of, order_of, tables_of_rows
from filters.tables.signal_database import Tables, connect, identifier, order, range_borders, ranges, text

VERSION = "2"
"""Raised whenever the same signals could give other decisions."""
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
_PIECES = 2
"""Of each of several parts: rows with their reasons need more memory than the ranks of a part."""


def decide(
    conditions: Iterable[Condition],
    select: Select,
    tables: Tables,
    path: Path,
    unreadable: Mapping[str, str] | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
) -> int:
    """Write the decision table of measured traces, sorted by id; returns its rows.

    `unreadable` maps a sample whose images cannot be read to the reason. Raises RecipeError when a condition
    cannot be evaluated on the values that were measured, DataError when the shares of a mix cannot be met.
    """
    conditions = list(conditions)
    connection = connect(tables, threads=threads)
    unreadable = unreadable or {}
    broken = {"sample_id": pa.array(list(unreadable), pa.string()), "why": pa.array(unreadable.values(), pa.string())}
    connection.register("unreadable", pa.table(broken))
    try:
        drops_of = {condition.name: drops(condition) for condition in conditions}
        drops_of[UNREADABLE_IMAGE] = "sample_id IN (SELECT sample_id FROM unreadable)"
        traces = preferred_copies(connection, conditions, select.order, drops_of)
        connection.execute(f"CREATE TEMP VIEW decided AS FROM {traces}")
        count = sum(pq.read_metadata(path).num_rows for path in tables.signals)
        parts = ranges(count)
        connection.execute(f"CREATE TEMP TABLE ranked AS {_ranked(conditions, select)} LIMIT 0")
        for within in parts:
            connection.execute(f"INSERT INTO ranked {_ranked(conditions, select, within.format('sample_id'))}")
        if mixed(select):
            connection.execute(_PLACED.format(place=place_in_kind(seed)))
        counts = connection.execute("SELECT kind, count(*) FROM ranked WHERE best GROUP BY kind").fetchall()
        create_quotas(connection, counts, select)
        rows = 0
        with atomic_path(path) as temporary, pq.ParquetWriter(temporary, DECISIONS, compression="zstd") as writer:
            pieces = _PIECES if len(parts) > 1 else 1
            queries = [_query(conditions, select, within.format("signals.id")) for within in ranges(count, pieces)]
            for start in range(0, len(queries), pieces):
                batches = (
                    batch
                    for query in queries[start : start + pieces]
                    for batch in connection.sql(query).to_arrow_reader(_ROW_GROUP)
                )
                for table in tables_of_rows(batches, _ROW_GROUP):
                    writer.write_table(table.cast(DECISIONS))
                    rows += len(table)
        return rows
    except duckdb.Error as error:
        raise faulty_expression(connection, expressions(conditions, select), error) from None


def merge(parts: Iterable[Path], path: Path) -> int:
    """Write the decision table of all traces from the decision tables of the files of signals; returns its number of
    rows."""
    table = pa.concat_tables(map(pq.read_table, parts)).combine_chunks()
    ids = ids_of(table["id"])
    rows = order_of(ids)
    # `decide` writes part by part, and ends a row group with each.
    borders = np.searchsorted(ids[rows], np.array(range_borders(len(ids)), np.bytes_))
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, DECISIONS, compression="zstd") as writer:
        for part in np.split(rows, borders):
            for start in range(0, len(part), _ROW_GROUP):
                writer.write_table(table.take(pa.array(part[start : start + _ROW_GROUP])).cast(DECISIONS))
    return len(table)


def database(
    tables: Tables, decisions: Path, *, threads: int | None = None, **more: Path
) -> duckdb.DuckDBPyConnection:
    """A database with the tables `signals` and `decisions`, and more tables of Parquet files."""
    return connect(tables, more={"decisions": decisions, **more}, threads=threads)


def _ranked(conditions: list[Condition], select: Select, within: str = "true") -> str:
    """What no rule drops, with its place among the traces of its question."""
    kept = f"""
        SELECT {_columns_of_rank(select)}, {kind_of(select)} AS kind, true AS kept
        FROM decided AS signals ANTI JOIN unreadable USING (sample_id)
        WHERE {within} AND NOT ({dropped(conditions)})"""
    return f"""
        SELECT id, teacher_rank, teacher_best, question_rank, best, kind, 1::BIGINT AS place
        FROM ({ranked(select, kept)})"""


def dropped(conditions: Iterable[Condition]) -> str:
    """SQL of whether any rule drops a trace."""
    return " OR ".join(drops(condition) for condition in conditions) or "false"


def drops(condition: Condition) -> str:
    """SQL of whether a rule drops a trace; NULL drops none."""
    return f"coalesce((\n{condition.sql}\n), false)"


def _columns_of_rank(select: Select) -> str:
    """SQL of the columns that `ranked` reads, each once."""
    names = ("id", "sample_id", "teacher", *(entry.removeprefix("-") for entry in select.order))
    return ", ".join(identifier(name) for name in dict.fromkeys(names))


def ranked(select: Select, traces: str) -> str:
    """SQL of `traces` with the ranks of each trace among the traces of its question that are kept as well.

    `traces` is a query with the columns sample_id, id, teacher, kept and the columns of the order. If two traces are
    equal in the order, the trace with the smaller id comes first. A rank that nothing limits is 1.
    """
    # The limit of a teacher comes first: a place that it frees goes to the next best trace of another teacher.
    return f"""
        SELECT *, {_rank(select, "sample_id, teacher_best", select.per_question)} AS question_rank,
            teacher_best AND {_within("question_rank", select.per_question)} AS best
        FROM (
            SELECT *, {_rank(select, "sample_id, teacher", select.per_teacher)} AS teacher_rank,
                {_within("teacher_rank", select.per_teacher)} AS teacher_best
            FROM ({traces})
        )"""


def _rank(select: Select, among: str, limit: int | None) -> str:
    # Sorting a million traces takes 0.4 s: it is left out where no limit reads the rank.
    if limit is None:
        return "1::BIGINT"
    return f"row_number() OVER (PARTITION BY kept, {among} ORDER BY {order((*select.order, 'id'))})"


_PLACED = """
    CREATE OR REPLACE TEMP TABLE ranked AS
    SELECT * REPLACE ({place} AS place) FROM ranked"""


def place_in_kind(seed: int) -> str:
    """SQL of the place of a trace within its kind of a mix, at random."""
    return f"row_number() OVER (PARTITION BY kind, best ORDER BY md5('{seed} ' || id), id)"


def kind_of(select: Select) -> str:
    """SQL of a trace's kind: its values of all mixes."""
    kinds = ", ".join(f"coalesce(CAST((\n{mix.by}\n) AS VARCHAR), 'null')" for mix in select.mix)
    return f"[{kinds}]::VARCHAR[]"


def mixed(select: Select) -> bool:
    """Whether anything beyond the limits of a question leaves traces out."""
    return bool(select.mix) or select.limit is not None


def _within(rank: str, limit: int | None) -> str:
    return "true" if limit is None else f"{rank} <= {limit}"


def create_quotas(connection: duckdb.DuckDBPyConnection, counts: Iterable[Sequence[Any]], select: Select) -> None:
    """A table of how many traces of each kind are taken, from rows of a kind and its number of traces.

    Not from Arrow: DuckDB loads pandas to read from Python.
    """
    connection.execute("CREATE OR REPLACE TEMP TABLE quotas (kind VARCHAR[], quota BIGINT)")
    taken = target_counts({tuple(kind): count for kind, count in counts}, select.mix, select.limit)
    for kind, quota in taken.items():
        connection.execute("INSERT INTO quotas VALUES (?, ?)", [list(kind), quota])


def _query(conditions: list[Condition], select: Select, within: str) -> str:
    """Every trace in the order of the ids, with all that is decided of it."""
    reasons = [_reason(condition) for condition in conditions]
    image = _struct(f"'{UNREADABLE_IMAGE}'", "'the image can be read'", "json_object('reason', why)")
    reasons.append(f"CASE WHEN why IS NOT NULL THEN {image} END")
    return f"""
        SELECT signals.id, sample_id, signals.teacher, k, domain, ranked.id IS NOT NULL AS kept,
            coalesce(best AND place <= quota, false) AS selected,
            CASE
                WHEN ranked.id IS NULL THEN list_filter([{", ".join(reasons)}], lambda reason: reason IS NOT NULL)
                WHEN NOT teacher_best THEN [{_left_out(limit_of_teacher(select), "teacher_rank")}]
                WHEN NOT best THEN [{_left_out(limit_of_question(select), "question_rank")}]
                WHEN place > quota THEN [{_left_out(limit_of_dataset(select), "place")}]
                ELSE []
            END AS reasons
        FROM decided AS signals LEFT JOIN ranked USING (id) LEFT JOIN quotas USING (kind)
        LEFT JOIN unreadable USING (sample_id)
        WHERE {within} ORDER BY signals.id"""


def limit_of_teacher(select: Select) -> str:
    """SQL of the limit's name."""
    return text(f"per_teacher = {select.per_teacher}")


def limit_of_question(select: Select) -> str:
    """SQL of the limit's name."""
    return text(f"per_question = {select.per_question}")


def limit_of_dataset(select: Select) -> str:
    """SQL of the name of the limit that leaves a trace of a `kind` and its `quota` out."""
    if not select.mix:
        return text(f"limit = {select.limit}")
    named = " || ', ' || ".join(
        f"{text(mix.by + ' = ')} || kind[{position}]" for position, mix in enumerate(select.mix, 1)
    )
    return f"'mix: ' || quota || ' of ' || {named}"


def _reason(condition: Condition) -> str:
    values = ", ".join(f"{text(name)}, {_json_value(identifier(name))}" for name in condition.columns)
    reason = _struct(text(condition.name), text(condition.sql), f"json_object({values})")
    return f"CASE WHEN (\n{condition.sql}\n) THEN {reason} END"


def _json_value(column: str) -> str:
    """SQL of a column as JSON, which has no infinite numbers: the error of an answer relative to 0 is one."""
    written = f"{column}::VARCHAR"
    return f"CASE WHEN {written} IN ('inf', '-inf', 'nan') THEN to_json({written}) ELSE to_json({column}) END"


def _left_out(limit: str, rank: str) -> str:
    return _struct(text(NOT_SELECTED), limit, f"json_object('rank', {rank})")


def _struct(rule: str, condition: str, values: str) -> str:
    return f"{{'rule': {rule}, 'condition': {condition}, 'values': CAST({values} AS VARCHAR)}}"
