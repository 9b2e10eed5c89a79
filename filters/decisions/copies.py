"""Chooses the copy that takes the place of a preferred trace which another rule drops.

Signals name the preferred trace or question that another one repeats, before any rule is known. A rule that drops
copies must not drop a whole group. Another rule (one that does not read copies, or one for an earlier kind of copies)
may drop the preferred trace. Then the next copy that these rules keep counts as preferred. It is complete, then
correct, then has the smallest id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from filters.decisions.rules import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyKind:
    """One kind of copies."""

    name: str
    key: str
    """The column that tells members of a group apart."""
    is_copy: str
    original: str
    """SQL of the `key` that a copy repeats."""
    preferred: Mapping[str, str]
    """SQL of the kind's columns where nothing is repeated."""


KINDS = (
    CopyKind(
        name="question",
        key="sample_id",
        is_copy="question_duplicate_of IS NOT NULL",
        original="question_duplicate_of",
        preferred={"question_duplicate_of": "NULL"},
    ),
    CopyKind(
        name="exact",
        key="id",
        is_copy="exact_duplicate",
        original="duplicate_of",
        preferred={"exact_duplicate": "false"},
    ),
    CopyKind(
        name="near",
        key="id",
        is_copy="near_duplicate",
        original="duplicate_of",
        preferred={"near_duplicate": "false", "duplicate_of": "NULL", "duplicate_jaccard": "NULL"},
    ),
    CopyKind(
        name="corpus",
        key="id",
        is_copy="corpus_duplicate",
        original="corpus_duplicate_of",
        preferred={"corpus_duplicate": "false", "corpus_duplicate_of": "NULL", "corpus_jaccard": "NULL"},
    ),
)


def preferred_copies(
    connection: duckdb.DuckDBPyConnection,
    conditions: Iterable[Condition],
    order: Iterable[str],
    drops: Mapping[str, str],
) -> str:
    """SQL of the table `signals` in which a copy that takes the place of a preferred one repeats nothing.

    `drops` is SQL of whether a trace is dropped, by the name of the condition or of another reason.
    """
    conditions, traces = list(conditions), "signals"
    read = {entry.removeprefix("-").lower() for entry in order}
    read.update(column for condition in conditions for column in condition.columns)
    measured = {name for name, *_ in connection.execute("FROM signals LIMIT 0").description or ()}
    others = [sql for name, sql in drops.items() if name not in {condition.name for condition in conditions}]
    later = {column for kind in KINDS for column in kind.preferred}
    for kind in KINDS:
        if read & kind.preferred.keys():
            rules = [drops[each.name] for each in conditions if not later.intersection(each.columns)]
            count = _choose(connection, kind, traces, [*others, *rules], "answer_verdict" in measured)
            traces = _replaced(kind, traces) if count else traces
        later -= kind.preferred.keys()
    return traces


def _replaced(kind: CopyKind, traces: str) -> str:
    chosen = f"{kind.key} IN (SELECT unit FROM preferred_{kind.name})"
    columns = (
        f"CASE WHEN {chosen} THEN {value} ELSE {column} END AS {column}" for column, value in kind.preferred.items()
    )
    return f"(SELECT * REPLACE ({', '.join(columns)}) FROM {traces})"


def _choose(
    connection: duckdb.DuckDBPyConnection, kind: CopyKind, traces: str, drops: Sequence[str], judged: bool
) -> int:
    """Make a table of the copies that take the place of their preferred one; returns how many there are."""
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE copies AS
        SELECT DISTINCT {kind.key} AS unit, {kind.original} AS named FROM {traces} WHERE {kind.is_copy}""")
    ((copies,),) = connection.execute("SELECT count(*) FROM copies").fetchall()
    if not copies:
        return 0
    # A trace with the same words as one that repeats the preferred trace names that one.
    connection.execute("""
        CREATE OR REPLACE TEMP TABLE units AS
        WITH copies AS (
            SELECT unit, coalesce(best.named, copies.named) AS original
            FROM copies LEFT JOIN (SELECT unit AS named_unit, named FROM copies) AS best ON copies.named = named_unit)
        FROM copies UNION SELECT original, original FROM copies""")
    correct = "answer_verdict IS NOT DISTINCT FROM 'correct'" if judged else "false"
    dropped = " OR ".join(drops) or "false"
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE preferred_{kind.name} AS
        WITH passing AS (
            SELECT {kind.key} AS unit, outcome = 'complete' AS complete, {correct} AS correct
            FROM {traces} AS signals WHERE {kind.key} IN (SELECT unit FROM units) AND NOT ({dropped}))
        SELECT unit FROM (
            SELECT original, first(unit ORDER BY unit <> original, NOT complete, NOT correct, unit) AS unit
            FROM passing JOIN units USING (unit) GROUP BY original)
        WHERE unit <> original""")
    ((count,),) = connection.execute(f"SELECT count(*) FROM preferred_{kind.name}").fetchall()
    return int(count)
