"""`distill filter --what-if`: what another policy would keep and select, by the signals already measured.

Nothing is measured and nothing is written: one query reads the signals, applies rules and ranks, and counts. The
rules, ranks and places are those of `filters.decisions.decide`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow.parquet as pq

from distill.artifacts import manifest
from distill.artifacts.layout import DECISIONS
from distill.artifacts.manifest import Manifest
from distill.recipe.effects import affecting
from distill.recipe.filter import DEFAULT_RULES, Filter, Select
from distill.recipe.recipe import Recipe
from distill.reports.text_table import table
from filters.decisions import decide
from filters.decisions import rules as conditions
from filters.decisions.quotas import target_counts
from filters.decisions.rules import NOT_SELECTED, UNREADABLE_IMAGE, Condition
from filters.signals import registry
from filters.signals.schema import SIDE
from filters.tables.signal_database import Tables, connect, identifier, join_aligned, ranges, text

_GROUPS = ("teacher", "domain", "difficulty")
_SHOWN = 3
_AT_ONCE = 2_000_000
"""Traces that are ranked at once: a million need some 150 MB."""


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
    database = connect(tables, more={"before": folder / DECISIONS}, threads=threads)
    reasons_before = _reasons_before(database)
    unreadable = _unreadable(database) if UNREADABLE_IMAGE in reasons_before else []
    policy = _Policy(tuple(rules), recipe.filter.select, recipe.seed, _traces(database, recipe.filter), unreadable)
    try:
        tally = _tally(database, policy, pq.read_metadata(folder / DECISIONS).num_rows)
    except duckdb.Error as error:
        raise decide.faulty_rule(database, rules, error) from None
    reasons_after = _ordered(tally.reasons)
    return Comparison(
        total=_sum(tally.groups.values()),
        groups={name: _counts_by_value(tally.groups, position) for position, name in enumerate(_GROUPS)},
        reasons={
            name: (reasons_before.get(name, 0), reasons_after.get(name, 0))
            for name in {**reasons_before, **reasons_after}
        },
        moved=tally.moved(),
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


def _unreadable(database: duckdb.DuckDBPyConnection) -> list[str]:
    """Samples whose images could not be read when the dataset was written."""
    rows = database.execute(
        "SELECT DISTINCT sample_id FROM (SELECT sample_id, unnest(reasons) AS reason FROM before) "
        f"WHERE reason.rule = '{UNREADABLE_IMAGE}' ORDER BY 1"
    ).fetchall()
    return [sample_id for (sample_id,) in rows]


def _reasons_before(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    # A rule is named by its name, a limit of the selection by its condition.
    rows: list[tuple[str, int]] = database.execute(
        f"SELECT CASE WHEN reason.rule = '{NOT_SELECTED}' THEN reason.condition ELSE reason.rule END, count(*) "
        "FROM (SELECT unnest(reasons) AS reason FROM before) GROUP BY 1"
    ).fetchall()
    return _ordered(dict(rows))


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """What occurs, the most frequent first."""
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name)) if counts[name]}


def _traces(database: duckdb.DuckDBPyConnection, settings: Filter) -> str:
    """SQL of the traces: the signals that the policy reads, and `was_kept` and `was_selected` of the run.

    Side tables that nothing reads are not joined.
    """
    read = " ".join([*(rule.drop for rule in settings.rules), *settings.select.order]).lower()
    read += " ".join(mix.by for mix in settings.select.mix).lower()
    by_key: dict[str, list[str]] = {"id": [], "sample_id": []}
    columns = ["before.id", "before.kept AS was_kept", "before.selected AS was_selected"]
    for name, (key, schema) in SIDE.items():
        if any(column.lower() in read for column in schema.names):
            by_key[key].append(f"side_{name}")
            columns += [identifier(column) for column in schema.names] if key == "id" else []
    earlier = f"SELECT {', '.join(columns)} FROM {join_aligned(database, 'before', by_key['id'])}"
    by_sample = "".join(f" LEFT JOIN {name} USING (sample_id)" for name in by_key["sample_id"])
    return f"local JOIN ({earlier}) USING (id){by_sample}"


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy on the traces of a run, as SQL."""

    rules: tuple[Condition, ...]
    select: Select
    seed: int
    traces: str
    unreadable: list[str]

    def flags(self) -> dict[str, str]:
        """SQL of whether each rule drops a trace, by the rule's name."""
        listed = ", ".join(map(text, self.unreadable))
        flags = {rule.name: decide.drops(rule) for rule in self.rules}
        return flags | ({UNREADABLE_IMAGE: f"sample_id IN ({listed})"} if listed else {})

    def ranked(self, within: str) -> str:
        """Every trace with what the rules and its question's limits make of it."""
        flags = self.flags()
        named = "".join(f", {sql} AS {identifier(_flag(name))}" for name, sql in flags.items())
        dropped = " OR ".join(identifier(_flag(name)) for name in flags) or "false"
        judged = f"""
            SELECT {decide.columns_of_rank(self.select, *_GROUPS)}, was_kept, was_selected{named},
                NOT ({dropped}) AS kept, CASE WHEN kept THEN {decide.kind_of(self.select)} END AS kind
            FROM {self.traces} WHERE {within}"""
        return decide.ranked(self.select, judged)


def _flag(rule: str) -> str:
    return f"dropped by {rule}"


@dataclass(slots=True)
class _Tally:
    """Counts of a comparison, added up over parts of the traces."""

    groups: dict[tuple[str, ...], Counts] = field(default_factory=dict)
    """By teacher, domain and difficulty together."""
    reasons: Counter[str] = field(default_factory=Counter)
    counts_moved: Counter[str] = field(default_factory=Counter)
    ids_moved: dict[str, list[str]] = field(default_factory=dict)

    def moved(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        return {name: (self.counts_moved[name], tuple(self.ids_moved.get(name, ()))) for name in _MOVED}

    def add(self, rows: Iterable[Sequence[Any]], reasons: Sequence[str]) -> None:
        """Add rows of `_query`, whose reasons have these names."""
        for row in rows:
            cells = iter(row)
            key, counts = tuple(islice(cells, len(_GROUPS))), Counts(*islice(cells, len(Counts._fields)))
            self.groups[key] = _sum([self.groups[key], counts]) if key in self.groups else counts
            for name, count in zip(reasons, cells, strict=False):
                self.reasons[name] += count
            moved = row[len(row) - 2 * len(_MOVED) :]
            for name, count, ids in zip(_MOVED, moved[::2], moved[1::2], strict=True):
                self.counts_moved[name] += count
                self.ids_moved[name] = sorted([*self.ids_moved.get(name, ()), *(ids or ())])[:_SHOWN]


_MOVED = {
    "newly kept": "kept AND NOT was_kept",
    "newly dropped": "was_kept AND NOT kept",
    "newly selected": "selected AND NOT was_selected",
    "no longer selected": "was_selected AND NOT selected",
}


def _tally(database: duckdb.DuckDBPyConnection, policy: _Policy, rows: int) -> _Tally:
    """One pass over the traces; a mix needs the counts of all traces first, so their ranks are kept for a second."""
    tally, select = _Tally(), policy.select
    parts = [within.format("sample_id") for within in ranges(rows, _AT_ONCE)]
    names = list(policy.flags())
    if not decide.mixed(select):
        for within in parts:
            ranked = f"SELECT *, kept AND best AS selected FROM ({policy.ranked(within)})"
            tally.add(database.execute(_query(policy, ranked)).fetchall(), [*names, *_limits(select)])
        return tally
    for number, within in enumerate(parts):
        start = "INSERT INTO ranked" if number else "CREATE TEMP TABLE ranked AS"
        database.execute(f"{start} {policy.ranked(within)}")
    counts = database.execute("SELECT kind, count(*) FROM ranked WHERE kept AND best GROUP BY kind").fetchall()
    taken = target_counts({tuple(kind): count for kind, count in counts}, select.mix, select.limit)
    database.register("quotas", decide.quota_table(taken))
    database.execute(f"""
        CREATE TEMP TABLE placed AS
        SELECT *, place <= quota AS selected
        FROM (SELECT *, {decide.place_in_kind(policy.seed)} AS place FROM ranked WHERE kept AND best)
        JOIN quotas USING (kind)""")
    beyond = database.execute(
        f"SELECT {decide.limit_of_dataset(select)}, count(*) FROM placed WHERE NOT selected GROUP BY 1"
    ).fetchall()
    tally.reasons.update(dict(beyond))
    everything = """
        SELECT * FROM placed
        UNION ALL BY NAME SELECT *, false AS selected FROM ranked WHERE NOT (kept AND best)"""
    tally.add(database.execute(_query(policy, everything)).fetchall(), [*names, *_limits(select)])
    return tally


def _limits(select: Select) -> list[str]:
    return [f"per_teacher = {select.per_teacher}", f"per_question = {select.per_question}"]


def _query(policy: _Policy, traces: str) -> str:
    """Counts and some ids by teacher, domain and difficulty."""
    groups = ", ".join(f"coalesce(nullif({name}, ''), '(none)')" for name in _GROUPS)
    dropped = (identifier(_flag(name)) for name in policy.flags())
    conditions = (
        *("true", "was_kept", "kept", "was_selected", "selected"),
        *dropped,
        *("kept AND NOT teacher_best", "kept AND teacher_best AND NOT best"),
    )
    counts = ", ".join(f"count(*) FILTER ({condition})" for condition in conditions)
    moved = ", ".join(f"count(*) FILTER ({sql}), min(id, {_SHOWN}) FILTER ({sql})" for sql in _MOVED.values())
    return f"SELECT {groups}, {counts}, {moved} FROM ({traces}) GROUP BY ALL"


def _counts_by_value(groups: Mapping[tuple[str, ...], Counts], position: int) -> dict[str, Counts]:
    values = sorted({key[position] for key in groups})
    return {value: _sum(counts for key, counts in groups.items() if key[position] == value) for value in values}


def _sum(counts: Iterable[Counts]) -> Counts:
    return Counts(*(sum(column) for column in zip((0,) * 5, *counts, strict=True)))


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
