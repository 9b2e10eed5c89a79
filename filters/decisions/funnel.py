"""Counts of traces that came in, are complete, correct, kept and selected: in all, by teacher, domain and rule."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from filters.signals.base import ERROR, TIMED_OUT

_CORRECT = "outcome = 'complete' AND answer_verdict = 'correct'"
_STEPS = {
    "local": {"asked": "true", "complete": "outcome = 'complete'", "correct": _CORRECT},
    "decisions": {"kept": "kept", "selected": "selected"},
}
"""By table, for each is counted by itself: a join would hold the ids of all traces."""
STEPS = tuple(step for steps in _STEPS.values() for step in steps)


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
    timed_out: Mapping[str, int]
    """Traces on which a family of signals was given up."""
    questions: Mapping[str, int]
    """Different questions at each step."""

    @property
    def dropped(self) -> int:
        return self.total["asked"] - self.total["kept"]


def measure(database: duckdb.DuckDBPyConnection) -> Funnel:
    """The funnel of a database with the tables `local` and `decisions`."""
    groups = " UNION ALL BY NAME ".join(
        f"(SELECT teacher, domain, {_counted(steps, 'count(*)')} FROM {table} GROUP BY ALL)"
        for table, steps in _STEPS.items()
    )
    sums = ", ".join(f"sum({step})::BIGINT" for step in STEPS)
    cells = database.execute(f"SELECT teacher, domain, {sums} FROM ({groups}) GROUP BY ALL ORDER BY ALL").fetchall()
    return Funnel(
        total=_sum(cells),
        by_teacher={name: _sum(row for row in cells if row[0] == name) for name in sorted({row[0] for row in cells})},
        by_domain={name: _sum(row for row in cells if row[1] == name) for name in sorted({row[1] for row in cells})},
        rules=_count(
            database, "SELECT reason.rule, count(*) FROM (SELECT unnest(reasons) AS reason FROM decisions) GROUP BY 1"
        ),
        only=_count(
            database, "SELECT reasons[1].rule, count(*) FROM decisions WHERE len(reasons) = 1 AND NOT kept GROUP BY 1"
        ),
        errors=_in_state(database, ERROR),
        timed_out=_in_state(database, TIMED_OUT),
        questions=_questions(database),
    )


def _sum(cells: Iterable[Sequence[Any]]) -> dict[str, int]:
    columns = zip((0,) * len(STEPS), *(cell[2:] for cell in cells), strict=True)
    return dict(zip(STEPS, map(sum, columns), strict=True))


def _in_state(database: duckdb.DuckDBPyConnection, state: str) -> dict[str, int]:
    """How many traces each family of signals has in a state."""
    columns = [row[0] for row in database.execute("DESCRIBE local").fetchall()]
    names = [name.removesuffix("_state") for name in columns if name.endswith("_state")]
    failed = ", ".join(f"count(*) FILTER ({name}_state = '{state}')" for name in names)
    (counts,) = database.execute(f"SELECT {failed} FROM local").fetchall()
    return {name: count for name, count in zip(names, counts, strict=True) if count}


def _questions(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    tables = (
        f"(SELECT {_counted(steps, 'count(DISTINCT sample_id)')} FROM {table})" for table, steps in _STEPS.items()
    )
    (counts,) = database.execute(f"FROM {', '.join(tables)}").fetchall()
    return dict(zip(STEPS, counts, strict=True))


def _counted(steps: Mapping[str, str], count: str) -> str:
    return ", ".join(f"{count} FILTER ({condition}) AS {step}" for step, condition in steps.items())


def _count(database: duckdb.DuckDBPyConnection, query: str) -> dict[str, int]:
    rows: list[Any] = database.execute(f"{query} ORDER BY 2 DESC, 1").fetchall()
    return dict(rows)
