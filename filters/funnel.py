"""How many traces came in, were complete, correct, kept and selected: overall, by teacher, by domain, by rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from filters.registry import FAMILIES

STEPS = ("asked", "complete", "correct", "kept", "selected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """Counts of traces. `rules` counts every failing rule of a trace, so it may add up to more than was dropped."""

    total: Mapping[str, int]
    by_teacher: Mapping[str, Mapping[str, int]]
    by_domain: Mapping[str, Mapping[str, int]]
    rules: Mapping[str, int]
    only: Mapping[str, int]
    """Traces that this rule alone drops."""
    errors: Mapping[str, int]
    """Traces on which a family of signals failed."""
    questions: Mapping[str, int]
    """Different questions at each step."""

    @property
    def dropped(self) -> int:
        return self.total["asked"] - self.total["kept"]


def measure(database: duckdb.DuckDBPyConnection) -> Funnel:
    """The funnel of a database with the tables `signals` and `decisions`."""
    return Funnel(
        total=_steps(database, "'all'").get("all", dict.fromkeys(STEPS, 0)),
        by_teacher=_steps(database, "teacher"),
        by_domain=_steps(database, "domain"),
        rules=_count(
            database, "SELECT reason.rule, count(*) FROM (SELECT unnest(reasons) AS reason FROM decisions) GROUP BY 1"
        ),
        only=_count(
            database, "SELECT reasons[1].rule, count(*) FROM decisions WHERE len(reasons) = 1 AND NOT kept GROUP BY 1"
        ),
        errors={
            name: found
            for name in FAMILIES
            if (
                found := database.execute(f"SELECT count(*) FROM signals WHERE {name}_state = 'error'").fetchall()[0][
                    0
                ]
            )
        },
        questions=_steps(database, "'all'", count="count(DISTINCT signals.sample_id)").get(
            "all", dict.fromkeys(STEPS, 0)
        ),
    )


def _steps(database: duckdb.DuckDBPyConnection, group: str, count: str = "count(*)") -> dict[str, dict[str, int]]:
    column = f"signals.{group}" if group in ("teacher", "domain") else group
    rows = database.execute(
        f"""SELECT {column}, {count},
            {count} FILTER (outcome = 'complete'),
            {count} FILTER (answer_verdict = 'correct'),
            {count} FILTER (kept),
            {count} FILTER (selected)
        FROM signals JOIN decisions USING (id) GROUP BY 1 ORDER BY 1"""
    ).fetchall()
    return {name: dict(zip(STEPS, counts, strict=True)) for name, *counts in rows}


def _count(database: duckdb.DuckDBPyConnection, query: str) -> dict[str, int]:
    rows: list[Any] = database.execute(f"{query} ORDER BY 2 DESC, 1").fetchall()
    return dict(rows)
