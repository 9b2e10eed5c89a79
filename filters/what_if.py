"""`distill filter --what-if`: what another policy would keep and select, by the signals already measured.

Nothing is measured. The decisions of the finished stage stay unchanged; those of the other policy are in a temporary
file during the comparison.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import duckdb

from distill.artifacts import manifest
from distill.artifacts.layout import DECISIONS
from distill.artifacts.manifest import Manifest
from distill.recipe.effects import affecting
from distill.recipe.filter import DEFAULT_RULES
from distill.recipe.recipe import Recipe
from distill.reports.text_table import table
from filters.decisions import decide
from filters.decisions import rules as conditions
from filters.decisions.rules import UNREADABLE_IMAGE, Condition
from filters.signals import registry
from filters.tables.signal_database import Tables, connect

_GROUPS = ("teacher", "domain", "difficulty")
_SHOWN = 3


class Counts(NamedTuple):
    traces: int
    kept: int
    now_kept: int
    selected: int
    now_selected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two policies do with the same traces."""

    total: Counts
    groups: Mapping[str, Mapping[str, Counts]]
    """Counts by the value of each thing that traces are grouped by."""
    reasons: Mapping[str, tuple[int, int]]
    """Traces with each reason, before and after: a rule, or a limit of the selection."""
    moved: Mapping[str, tuple[int, tuple[str, ...]]]
    """How many traces are newly kept and so on, with the ids of some."""
    notes: tuple[str, ...]
    """What the comparison cannot show, because it was measured otherwise or not at all."""


def what_if(recipe: Recipe, run: Path, *, threads: int | None = None) -> Comparison:
    """Compare the policy of `recipe` with the decisions of a run's finished filter stage.

    Raises RecipeError for a policy that cannot be right, StaleError when nothing was filtered yet, DataError when the
    shares of a mix cannot be met.
    """
    columns = registry.columns(recipe)
    rules = conditions.check(recipe.filter, columns)
    folder = run / "filter"
    done = manifest.require(run, "filter", next_step="run `distill filter` first; then policies can be compared")
    tables = Tables.of(folder, columns)
    before = folder / DECISIONS
    with TemporaryDirectory(prefix="distill-what-if-") as temporary:
        after = Path(temporary) / DECISIONS
        unreadable = _unreadable(before)
        decide.decide(rules, recipe.filter.select, tables, after, unreadable, seed=recipe.seed, threads=threads)
        database = connect(tables, more={"before": before, "after": after}, threads=threads)
        groups = _groups(database)
        return Comparison(
            total=_sum(groups.values()),
            groups={name: _counts_by_value(groups, position) for position, name in enumerate(_GROUPS)},
            reasons=_reasons(database),
            moved=_moved(database),
            notes=tuple(_notes(recipe, rules, done)),
        )


def as_text(comparison: Comparison) -> str:
    """The funnel of both policies, and the difference, for a terminal."""
    lines = {"all": comparison.total}
    for name, rows in comparison.groups.items():
        if len(rows) > 1:
            lines |= {f"{name} {value}": counts for value, counts in rows.items()}
    funnel = [
        (name, counts.traces, *_pair(counts.kept, counts.now_kept), *_pair(counts.selected, counts.now_selected))
        for name, counts in lines.items()
    ]
    blocks = [
        table(("", "traces", "kept", "now", "change", "selected", "now", "change"), [_commas(row) for row in funnel]),
        table(
            ("dropped or left out by", "before", "now", "change"),
            [_commas((name, *_pair(*both))) for name, both in comparison.reasons.items()],
        ),
        table(
            ("trace by trace", "traces", "such as"),
            [_commas((name, count, " ".join(ids))) for name, (count, ids) in comparison.moved.items()],
        ),
    ]
    return "\n\n".join(blocks + [f"note: {note}" for note in comparison.notes])


def _unreadable(decisions: Path) -> dict[str, str]:
    """Samples whose images could not be read when the dataset was written."""
    connection = connect(Tables(signals=()), more={"before": decisions})
    rows = connection.execute(
        "SELECT DISTINCT sample_id, reason.values->>'reason' FROM "
        f"(SELECT sample_id, unnest(reasons) AS reason FROM before) WHERE reason.rule = '{UNREADABLE_IMAGE}'"
    ).fetchall()
    return dict(rows)


def _groups(database: duckdb.DuckDBPyConnection) -> dict[tuple[str, ...], Counts]:
    """Counts by teacher, domain and difficulty together."""
    names = ", ".join(f"coalesce(nullif(signals.{name}, ''), '(none)')" for name in _GROUPS)
    flags = ("before.kept", "after.kept", "before.selected", "after.selected")
    counts = ", ".join(f"count(*) FILTER ({flag})" for flag in flags)
    rows = database.execute(
        f"SELECT {names}, count(*), {counts} FROM signals JOIN before USING (id) JOIN after USING (id) "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    size = len(_GROUPS)
    return {row[:size]: Counts(*row[size:]) for row in rows}


def _counts_by_value(groups: Mapping[tuple[str, ...], Counts], position: int) -> dict[str, Counts]:
    values = sorted({key[position] for key in groups})
    return {value: _sum(counts for key, counts in groups.items() if key[position] == value) for value in values}


def _sum(counts: Iterable[Counts]) -> Counts:
    return Counts(*(sum(column) for column in zip((0,) * 5, *counts, strict=True)))


def _reasons(database: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    # A rule is named by its name, a limit of the selection by its condition.
    def count_reasons(decisions: str) -> dict[str, int]:
        rows: list[tuple[str, int]] = database.execute(
            "SELECT CASE WHEN reason.rule = 'not_selected' THEN reason.condition ELSE reason.rule END, count(*) "
            f"FROM (SELECT unnest(reasons) AS reason FROM {decisions}) GROUP BY 1 ORDER BY 2 DESC, 1"
        ).fetchall()
        return dict(rows)

    before, after = count_reasons("before"), count_reasons("after")
    return {name: (before.get(name, 0), after.get(name, 0)) for name in {**before, **after}}


def _moved(database: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, tuple[str, ...]]]:
    kinds = {
        "newly kept": "after.kept AND NOT before.kept",
        "newly dropped": "before.kept AND NOT after.kept",
        "newly selected": "after.selected AND NOT before.selected",
        "no longer selected": "before.selected AND NOT after.selected",
    }
    columns = ", ".join(f"count(*) FILTER ({sql}), min(id, {_SHOWN}) FILTER ({sql})" for sql in kinds.values())
    row = database.execute(f"SELECT {columns} FROM before JOIN after USING (id)").fetchall()[0]
    return {name: (row[2 * position], tuple(row[2 * position + 1] or ())) for position, name in enumerate(kinds)}


def _notes(recipe: Recipe, rules: Iterable[Condition], done: Manifest) -> Iterable[str]:
    family_of = registry.family_of(recipe)
    now = manifest.flatten({"filter": affecting(recipe.filter, "filter")})
    measured = set(done.fields["filter.signals"])
    for key, (old, new) in manifest.changes(done.fields, now).items():
        section, _, rest = key.partition(".")
        if section == "filter" and rest.split(".")[0] in measured:
            yield f"{key} = {new} is asked for, but the signals were measured with {old}; they are used as they are"
    usual = {(rule.name, rule.drop) for rule in DEFAULT_RULES}  # which drop what was measured, and nothing else
    for rule in rules:
        missing = sorted({family_of[column] for column in rule.columns if column in family_of} - measured)
        if missing and (rule.name, rule.sql) not in usual:
            yield (
                f"the rule {rule.name} reads {', '.join(missing)}, which was not measured: it drops nothing here; "
                "name it in filter.signals and run `distill filter --fresh`"
            )


def _pair(before: int, after: int) -> tuple[int, int, str]:
    return before, after, f"{after - before:+,}" if after != before else ""


def _commas(row: Iterable[Any]) -> list[str]:
    return [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
