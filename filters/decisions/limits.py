"""How many traces each limit of the selection leaves out, in the order in which the limits apply.

A limit that leaves out more than the share `MANY` of its input is reported; a mix reports its rarest kind, which
decides how large the dataset can be. Traces are not selected here (filters/decisions/decide.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from distill.recipe.sections.filter import Select
from distill.word_tables import counted
from filters.decisions.decide import kind_of
from filters.decisions.quotas import find_scarcest
from filters.decisions.rules import NOT_SELECTED
from filters.tables.signal_database import text

MANY = 0.1
_PER_TEACHER, _PER_QUESTION, MIX, _LIMIT = "per_teacher", "per_question", "mix", "limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of the selection."""

    name: str
    setting: str
    before: int
    """Traces that the limits before it left."""
    after: int
    kept: int
    """Traces that the rules kept."""
    why: str = ""
    """The kind of trace that sets the limit, with the number of its traces."""

    @property
    def left_out(self) -> int:
        return self.before - self.after

    @property
    def is_large(self) -> bool:
        return self.left_out > MANY * self.before

    def __str__(self) -> str:
        because = f": {self.why}" if self.why else ""
        kept = self.before == self.kept
        given = (
            f"{counted(self.before, 'kept trace')}"
            if kept
            else f"the {counted(self.before, 'trace')} that the limits before it left"
        )
        return f"filter.select: {self.setting} leaves {self.after:,} of {given}{because}"


def measure(database: duckdb.DuckDBPyConnection, select: Select) -> tuple[Limit, ...]:
    """The limits that left out many, from a database with the tables `signals` and `decisions`."""
    names = (_PER_TEACHER, _PER_QUESTION)
    cases = " ".join(f"WHEN starts_with(reasons[1].condition, {text(name)}) THEN {text(name)}" for name in names)
    rows = database.execute(
        f"""SELECT CASE WHEN selected THEN 'selected' {cases} ELSE 'quota' END, count(*)
        FROM decisions WHERE kept AND (selected OR reasons[1].rule = {text(NOT_SELECTED)}) GROUP BY 1"""
    ).fetchall()
    counts: dict[str, int] = dict(rows)
    limits: list[Limit] = []
    before = kept = sum(counts.values())
    for name, limit in ((_PER_TEACHER, select.per_teacher), (_PER_QUESTION, select.per_question)):
        after = before - counts.get(name, 0)
        limits.append(Limit(name=name, setting=f"{name} = {limit}", before=before, after=after, kept=kept))
        before = after
    if select.mix and before:
        scarcest_kind = find_scarcest(_kinds(database, select), select.mix)
        shares = " and ".join(mix.by for mix in select.mix)
        limits.append(
            Limit(
                name=MIX,
                setting=f"the mix by {shares}",
                before=before,
                after=scarcest_kind.total,
                kept=kept,
                why=str(scarcest_kind),
            )
        )
        before = scarcest_kind.total
    limits.append(
        Limit(
            name=_LIMIT, setting=f"limit = {select.limit}", before=before, after=counts.get("selected", 0), kept=kept
        )
    )
    return tuple(limit for limit in limits if limit.is_large)


def _kinds(database: duckdb.DuckDBPyConnection, select: Select) -> Mapping[tuple[str, ...], int]:
    """How many traces the limits of a question left of each kind of the mixes."""
    left_out = " OR ".join(f"starts_with(reasons[1].condition, '{name}')" for name in (_PER_TEACHER, _PER_QUESTION))
    rows = database.execute(
        f"""SELECT {kind_of(select)} AS kind, count(*) FROM signals SEMI JOIN (
            SELECT id FROM decisions WHERE kept AND (selected OR NOT ({left_out}))
        ) USING (id) GROUP BY 1"""
    ).fetchall()
    return {tuple(kind): count for kind, count in rows}
