"""The numbers of the dataset card that the funnel does not hold, counted in the signal table and the decisions.

What the recipe did not ask for has no number: it comes back as None, and the card says that it was not measured.
"""

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import duckdb

from filters.signals.base import ERROR, NOT_APPLICABLE, OK, TIMED_OUT, UNDECIDABLE, WORDS
from filters.tables.signal_database import ranges

STATES = (OK, NOT_APPLICABLE, UNDECIDABLE, TIMED_OUT, ERROR)
DUPLICATES: Mapping[str, str] = {
    "exact_duplicate": "the same words as a preferred trace of its question",
    "near_duplicate": "nearly the same words as a preferred trace of its question",
    "corpus_duplicate": "nearly the same words as a preferred trace of any question",
    "corpus_other_values": "the same words as a trace of any question, with other numbers or names",
}
"""Flags that mark a trace as a repetition, and what they mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuestions:
    """Questions that were compared with test sets."""

    checked: int
    undecidable: int
    """Those of them whose images could not be read."""
    matches: Mapping[tuple[str, str], tuple[int, int]]
    """Asked questions and questions of the dataset, by test set and kind of match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    verdicts: Mapping[str, int]
    """Examples by the verdict on the trace's answer; "" where it has none."""
    hinted: int
    """Examples whose teacher was shown the gold answer."""
    states: Mapping[str, Mapping[str, int]]
    """Traces by state, of each family of signals that was measured."""
    languages: Mapping[str, int] | None
    """Examples by the language of their rationale; "" where the language is unknown."""
    duplicates: Mapping[str, tuple[int, int]]
    """Traces with each flag of DUPLICATES that was measured, and how many of them are in the dataset."""
    contamination: ComparedQuestions | None


def facts(database: duckdb.DuckDBPyConnection) -> CardFacts:
    """Count in a database with the tables `signals` and `decisions`."""
    columns = [row[0] for row in database.execute("DESCRIBE signals").fetchall()]
    families = [name.removesuffix("_state") for name in columns if name.endswith("_state")]
    flags = [name for name in DUPLICATES if name in columns]
    # Few queries, for reading and joining is most of their time; parts of the ids, for a join holds all of its ids.
    ((traces,),) = database.execute("SELECT count(*) FROM decisions").fetchall()
    parts = [within.format("signals.id") for within in ranges(traces)]
    histograms = ", ".join(f'histogram("{name}_state")' for name in families)
    query = f"SELECT {histograms} FROM signals WHERE "
    states = _states(families, reduce(_sum, (_row(database, query + within) for within in parts)))
    counted = ["count(*) FILTER (hinted AND selected)"]
    counted += [f"histogram(coalesce({name}, '')) FILTER (selected)" for name in ("answer_verdict", "language")]
    counted += [
        f'[count("{name}"), count(*) FILTER ("{name}"), count(*) FILTER ("{name}" AND selected)]' for name in flags
    ]
    query = f"SELECT {', '.join(counted)} FROM signals JOIN decisions USING (id) WHERE "
    hinted, verdicts, languages, *flagged = reduce(_sum, (_row(database, query + within) for within in parts))
    return CardFacts(
        verdicts=_by_count(verdicts),
        hinted=hinted,
        states=states,
        languages=_by_count(languages) if "language" in states else None,
        duplicates={
            name: (count, chosen) for name, (measured, count, chosen) in zip(flags, flagged, strict=True) if measured
        },
        contamination=_contamination(database)
        if states.get("contamination", {}).keys() & {OK, UNDECIDABLE}
        else None,
    )


def _states(families: Sequence[str], counted: Sequence[Mapping[str, int] | None]) -> dict[str, dict[str, int]]:
    """Traces by state of every family that measured any."""
    states: dict[str, dict[str, int]] = {}
    for name, counts in zip(families, counted, strict=True):
        if counts:
            states[name] = _by_count(counts)
            if WORDS in counts:
                states[name][OK] = counts.get(OK, 0) + states[name].pop(WORDS)
    return states


def _by_count(counts: Mapping[str, int] | None) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted((counts or {}).items(), key=lambda item: (-item[1], item[0])))


def _contamination(database: duckdb.DuckDBPyConnection) -> ComparedQuestions:
    rows = database.execute(
        """SELECT contamination_source, contamination, count(DISTINCT local.sample_id),
            count(DISTINCT local.sample_id) FILTER (selected)
        FROM local JOIN decisions USING (id) WHERE contamination <> 'none' GROUP BY 1, 2 ORDER BY 1, 2"""
    ).fetchall()
    checked, undecidable = _row(
        database,
        f"""SELECT count(DISTINCT sample_id) FILTER (contamination_state IN ('{OK}', '{UNDECIDABLE}')),
            count(DISTINCT sample_id) FILTER (contamination_state = '{UNDECIDABLE}') FROM local""",
    )
    matches = {(source, kind): (asked, chosen) for source, kind, asked, chosen in rows}
    return ComparedQuestions(checked=checked, undecidable=undecidable, matches=matches)


def _sum(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
    """The counts of two parts together: numbers, lists of them, or numbers by value."""
    return tuple(_added(*pair) for pair in zip(left, right, strict=True))


def _added(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return list(map(operator.add, left, right))
    if isinstance(left, int):
        return left + right
    return dict(Counter(left) + Counter(right))


def _row(database: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    return tuple(database.execute(query).fetchall()[0])
