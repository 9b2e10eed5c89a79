"""The table `page` of the report: the measured columns and the decision of every trace.

The view `signals` joins files at each query, and a page needs about a hundred queries, so the numbers are copied once
into a table, without texts. Names and descriptions of columns come from the families' schemas. Nothing is counted
here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import orjson
import pyarrow as pa

from filters.signals.base import ERROR, NOT_APPLICABLE, OK, TIMED_OUT, UNDECIDABLE, VALUE_TYPES, WORDS
from filters.tables.signal_database import SCRATCH, ranges

Kind = Literal["number", "count", "flag", "text"]
STATES = (OK, WORDS, NOT_APPLICABLE, UNDECIDABLE, TIMED_OUT, ERROR)
_TEXTS = ("answer_verdict", "corpus_duplicate_of", "contamination", "contamination_source", "contamination_sample")
"""Texts that sections of the page read of all traces; every other text is looked up for single traces."""
_COPIED_AT_ONCE = 100_000
"""Traces that are copied before the table is compressed: with all columns they need 0.6 KB each until then."""
_KINDS: Mapping[pa.DataType, Kind] = {kind: name for name, kind in VALUE_TYPES.items()}  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A measured column."""

    name: str
    kind: Kind
    family: str
    description: str

    @property
    def sql(self) -> str:
        return f'"{self.name}"'

    @property
    def finite(self) -> str:
        """Whether the column holds a number that can be drawn."""
        return f"coalesce(isfinite({self.sql}::DOUBLE), false)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The table `page` with its measured columns.

    It also has id, sample_id, teacher, domain, outcome, kept and selected. `rules` has the names of the rules that
    the trace fails. `single` has the name of its only failed rule, '' without a failed rule, and NULL for several.
    """

    database: duckdb.DuckDBPyConnection
    columns: Mapping[str, Column]
    families: tuple[str, ...]
    absent: tuple[str, ...]
    """Families that were not asked to measure anything."""
    schemas: Mapping[str, pa.Schema]
    """The columns of every family, measured or not."""

    def rows(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        return self.database.execute(query, list(values)).fetchall()

    def row(self, query: str, values: Iterable[Any] = ()) -> tuple[Any, ...]:
        (row,) = self.rows(query, values)
        return row

    def has(self, *names: str) -> bool:
        return all(name in self.columns for name in names)


def gather(database: duckdb.DuckDBPyConnection, every: Mapping[str, pa.Schema]) -> TableFacts:
    """Make the table `page` of a database with `signals` and `decisions`; `every` has the columns by family."""
    counted = ", ".join(f'count("{name}_state")' for name in every)
    (counts,) = database.execute(f"SELECT {counted} FROM signals").fetchall()
    measured = tuple(name for name, count in zip(every, counts, strict=True) if count)
    columns = {
        field.name: Column(
            name=field.name,
            kind=_KINDS[field.type],
            family=family,
            description=(field.metadata or {}).get(b"description", b"").decode(),
        )
        for family in measured
        for field in every[family]
        if field.name != f"{family}_state" and (field.type != pa.string() or field.name in _TEXTS)
    }
    states = ", ".join(map(repr, STATES))
    chosen = [f'signals."{name}"' for name in columns]
    chosen += [f'TRY_CAST("{name}_state" AS ENUM({states})) AS "{name}_state"' for name in measured]
    query = f"""
        SELECT signals.id, signals.sample_id, signals.teacher, signals.domain, outcome, kept, selected,
            CASE WHEN kept THEN [] ELSE list_transform(reasons, lambda reason: reason.rule) END AS rules,
            CASE WHEN kept THEN '' WHEN len(reasons) = 1 THEN reasons[1].rule END AS single
            {"".join(f", {column}" for column in chosen)}
        FROM signals JOIN decisions USING (id)"""
    database.execute(f"CREATE OR REPLACE TABLE {SCRATCH}.page AS {query} LIMIT 0")
    ((rows,),) = database.execute("SELECT count(*) FROM decisions").fetchall()
    for within in ranges(rows, at_once=_COPIED_AT_ONCE):
        database.execute(f"INSERT INTO {SCRATCH}.page {query} WHERE {within.format('signals.id')}")
        database.execute(f"CHECKPOINT {SCRATCH}")
    database.execute(f"USE {SCRATCH}")
    absent = tuple(name for name in every if name not in measured)
    return TableFacts(database=database, columns=columns, families=measured, absent=absent, schemas=every)


def states(facts: TableFacts) -> list[tuple[str, dict[str, int], str]]:
    """For each measured family how many traces are in each state, and one reason why it failed."""
    states_of_families = []
    histograms = ", ".join(f"histogram(coalesce({name}_state::VARCHAR, 'no row'))" for name in facts.families)
    counted = facts.row(f"SELECT {histograms} FROM page") if histograms else ()
    for name, found in zip(facts.families, counted, strict=True):
        counts = dict(sorted((found or {}).items(), key=lambda item: (-item[1], item[0])))
        reason = ""
        failed = next((state for state in (ERROR, TIMED_OUT) if counts.get(state)), None)
        if failed:
            (text,) = facts.row(f"SELECT min(signal_errors) FROM signals WHERE {name}_state = '{failed}'")
            reason = str(orjson.loads(text or "{}").get(name, ""))
        states_of_families.append((name, counts, reason))
    return states_of_families
