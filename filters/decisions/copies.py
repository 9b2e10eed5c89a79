"""The copy that takes the place of a preferred trace which another rule drops.

Signals say which trace or question repeats which preferred one, before any rule is known. A rule that drops copies
must not drop all of a group: if the preferred one is dropped by a rule that does not ask for copies, or by one that
asks for copies of an earlier kind, the next one that those rules keep counts as preferred. It is complete, then
correct, then has the smallest id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from filters.decisions.rules import Condition

_ORIGINALS = """
    SELECT id, duplicate_of AS original FROM {traces} WHERE exact_duplicate"""
_NEAR_ORIGINALS = """
    SELECT near.id, coalesce(best.duplicate_of, near.duplicate_of) AS original
    FROM (SELECT id, duplicate_of FROM {traces} WHERE near_duplicate) AS near
    LEFT JOIN (SELECT id, duplicate_of FROM {traces} WHERE near_duplicate) AS best ON near.duplicate_of = best.id"""
"""A trace with the same words as one that repeats the preferred trace names that one."""
_CORPUS_ORIGINALS = """
    SELECT id, corpus_duplicate_of AS original FROM {traces} WHERE corpus_duplicate"""
_QUESTION_ORIGINALS = """
    SELECT DISTINCT sample_id AS id, question_duplicate_of AS original FROM {traces}
    WHERE question_duplicate_of IS NOT NULL"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One kind of copies."""

    name: str
    key: str
    """The column that tells members of a group apart."""
    originals: str
    """SQL of each copy's `id` (a value of `key`) and `original`."""
    preferred: Mapping[str, str]
    """SQL of the kind's columns where nothing is repeated."""


_KINDS = (
    _Kind(
        name="question",
        key="sample_id",
        originals=_QUESTION_ORIGINALS,
        preferred={"question_duplicate_of": "NULL"},
    ),
    _Kind(name="exact", key="id", originals=_ORIGINALS, preferred={"exact_duplicate": "false"}),
    _Kind(
        name="near",
        key="id",
        originals=_NEAR_ORIGINALS,
        preferred={"near_duplicate": "false", "duplicate_of": "NULL", "duplicate_jaccard": "NULL"},
    ),
    _Kind(
        name="corpus",
        key="id",
        originals=_CORPUS_ORIGINALS,
        preferred={"corpus_duplicate": "false", "corpus_duplicate_of": "NULL", "corpus_jaccard": "NULL"},
    ),
)


def preferred_copies(
    connection: duckdb.DuckDBPyConnection,
    conditions: Iterable[Condition],
    order: Iterable[str],
    drops: Mapping[str, str],
    traces: str = "signals",
) -> str:
    """SQL of `traces` in which a copy that takes the place of a preferred one repeats nothing.

    `drops` is SQL of whether a trace is dropped, by the name of the condition or of another reason.
    """
    conditions = list(conditions)
    read = {entry.removeprefix("-").lower() for entry in order}
    read.update(column for condition in conditions for column in condition.columns)
    measured = {name for name, *_ in connection.execute(f"FROM {traces} LIMIT 0").description or ()}
    others = [sql for name, sql in drops.items() if name not in {condition.name for condition in conditions}]
    later = {column for kind in _KINDS for column in kind.preferred}
    for kind in _KINDS:
        if read & kind.preferred.keys():
            rules = [drops[each.name] for each in conditions if not later.intersection(each.columns)]
            count = _choose(connection, kind, traces, [*others, *rules], "answer_verdict" in measured)
            traces = _replaced(kind, traces) if count else traces
        later -= kind.preferred.keys()
    return traces


def _replaced(kind: _Kind, traces: str) -> str:
    chosen = f"{kind.key} IN (SELECT unit FROM preferred_{kind.name})"
    columns = (
        f"CASE WHEN {chosen} THEN {value} ELSE {column} END AS {column}" for column, value in kind.preferred.items()
    )
    return f"(SELECT * REPLACE ({', '.join(columns)}) FROM {traces})"


def _choose(
    connection: duckdb.DuckDBPyConnection, kind: _Kind, traces: str, drops: Sequence[str], judged: bool
) -> int:
    """Make a table of the copies that take the place of their preferred one; returns how many there are."""
    correct = "answer_verdict IS NOT DISTINCT FROM 'correct'" if judged else "false"
    dropped = " OR ".join(drops) or "false"
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE preferred_{kind.name} AS
        WITH copies AS ({kind.originals.format(traces=traces)}),
        units AS (SELECT id AS unit, original FROM copies UNION SELECT original, original FROM copies),
        passing AS (
            SELECT {kind.key} AS unit, outcome = 'complete' AS complete, {correct} AS correct
            FROM {traces} AS signals WHERE {kind.key} IN (SELECT unit FROM units) AND NOT ({dropped}))
        SELECT unit FROM (
            SELECT original, first(unit ORDER BY unit <> original, NOT complete, NOT correct, unit) AS unit
            FROM passing JOIN units USING (unit) GROUP BY original)
        WHERE unit <> original""")
    ((count,),) = connection.execute(f"SELECT count(*) FROM preferred_{kind.name}").fetchall()
    return int(count)
