"""The numbers of the dataset card that the funnel does not hold, counted in the signal table and the decisions.

What the recipe did not ask for has no number: it comes back as None, and the card says that it was not measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from filters.signals.base import ERROR, NOT_APPLICABLE, OK, TIMED_OUT, UNDECIDABLE, WORDS

STATES = (OK, NOT_APPLICABLE, UNDECIDABLE, TIMED_OUT, ERROR)
DUPLICATES: Mapping[str, str] = {
    "exact_duplicate": "the same words as a preferred trace of its question",
    "near_duplicate": "nearly the same words as a preferred trace of its question",
    "corpus_duplicate": "nearly the same words as a preferred trace of any question",
    "corpus_other_values": "the same words as a trace of any question, with other numbers or names",
}
"""Flags that mark a trace as a repetition, and what they mean."""

_SELECTED = "FROM signals JOIN decisions USING (id) WHERE selected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuestions:
    """Questions that were compared with test sets."""

    checked: int
    undecidable: int
    """Of them, those whose pictures could not be read."""
    matches: Mapping[tuple[str, str], tuple[int, int]]
    """By test set and kind of match: questions asked, and questions of the dataset."""


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
    states = _states(database, [name.removesuffix("_state") for name in columns if name.endswith("_state")])
    return CardFacts(
        verdicts=_counts(database, f"SELECT coalesce(answer_verdict, ''), count(*) {_SELECTED} GROUP BY 1"),
        hinted=_row(database, f"SELECT count(*) {_SELECTED} AND hinted")[0],
        states=states,
        languages=_counts(database, f"SELECT coalesce(language, ''), count(*) {_SELECTED} GROUP BY 1")
        if "language" in states
        else None,
        duplicates={
            name: flagged for name in DUPLICATES if name in columns and (flagged := _flagged(database, name))
        },
        contamination=_contamination(database)
        if states.get("contamination", {}).keys() & {OK, UNDECIDABLE}
        else None,
    )


def _states(database: duckdb.DuckDBPyConnection, families: Sequence[str]) -> dict[str, dict[str, int]]:
    """Traces by state of every family that measured any, the most frequent state first."""
    histograms = ", ".join(f'histogram("{name}_state")' for name in families)
    counted = _row(database, f"SELECT {histograms} FROM signals")
    states: dict[str, dict[str, int]] = {}
    for name, counts in zip(families, counted, strict=True):
        if counts:
            states[name] = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
            if WORDS in counts:
                states[name][OK] = counts.get(OK, 0) + states[name].pop(WORDS)
    return states


def _flagged(database: duckdb.DuckDBPyConnection, flag: str) -> tuple[int, int] | None:
    """How many traces have a flag, and how many of them are selected; None when it was not measured."""
    measured, *flag_counts = _row(
        database,
        f'SELECT count("{flag}"), count(*) FILTER ("{flag}"), count(*) FILTER ("{flag}" AND selected) '
        "FROM signals JOIN decisions USING (id)",
    )
    return (flag_counts[0], flag_counts[1]) if measured else None


def _contamination(database: duckdb.DuckDBPyConnection) -> ComparedQuestions:
    rows = database.execute(
        """SELECT contamination_source, contamination, count(DISTINCT signals.sample_id),
            count(DISTINCT signals.sample_id) FILTER (selected)
        FROM signals JOIN decisions USING (id) WHERE contamination <> 'none' GROUP BY 1, 2 ORDER BY 1, 2"""
    ).fetchall()
    checked, undecidable = _row(
        database,
        f"""SELECT count(DISTINCT sample_id) FILTER (contamination_state IN ('{OK}', '{UNDECIDABLE}')),
            count(DISTINCT sample_id) FILTER (contamination_state = '{UNDECIDABLE}') FROM signals""",
    )
    matches = {(source, kind): (asked, chosen) for source, kind, asked, chosen in rows}
    return ComparedQuestions(checked=checked, undecidable=undecidable, matches=matches)


def _counts(database: duckdb.DuckDBPyConnection, query: str) -> dict[str, int]:
    return dict(database.execute(f"{query} ORDER BY 2 DESC, 1").fetchall())


def _row(database: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    return tuple(database.execute(query).fetchall()[0])
