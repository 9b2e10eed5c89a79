"""`distill filter --what-if`: what another policy would keep and select, by the signals already measured.

Nothing is measured and nothing is written: one query reads the signals, applies rules and ranks, and counts. The
rules, ranks and places are those of `filters.decisions.decide`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts import integrity, manifest
from distill.artifacts.layout import DECISIONS, SIGNALS, part_paths
from distill.artifacts.manifest import Manifest
from distill.errors import RecipeError
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import DEFAULT_RULES, Filter, Select
from distill.reports.text_table import table
from filters.decisions import decide
from filters.decisions import rules as conditions
from filters.decisions.copies import preferred_copies
from filters.decisions.rules import NOT_SELECTED, UNREADABLE_IMAGE, Condition
from filters.signals.schema import FACTS, SIDE
from filters.tables.signal_database import (
    Tables,
    connect,
    identifier,
    join_aligned,
    parquet_rows,
    ranges,
    signals_of,
    text,
)

_GROUPS = ("teacher", "domain", "difficulty")
_SHOWN = 3
_AT_ONCE = 2_000_000
"""Traces that are ranked at once: a million need some 150 MB."""
_FLAGS_A_NUMBER = 30
_STATE = "_state"


class PolicyCounts(NamedTuple):
    traces: int = 0
    kept: int = 0
    now_kept: int = 0
    selected: int = 0
    now_selected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What two policies do with the same traces."""

    total: PolicyCounts
    groups: Mapping[str, Mapping[str, PolicyCounts]]
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
    folder = run / "filter"
    columns, rules = _check_policy(recipe, folder)
    done = integrity.require_finished(
        run, "filter", next_step="run `distill filter` first; then policies can be compared"
    )
    database = connect(Tables.of(folder, columns), more={"decisions": folder / DECISIONS}, threads=threads)
    database.execute(f"""
        CREATE TEMP VIEW before AS SELECT *, file_row_number AS number
        FROM {parquet_rows([folder / DECISIONS], "file_row_number = true")}""")
    reasons_before = _reasons_before(database)
    unreadable = _unreadable(database) if UNREADABLE_IMAGE in reasons_before else []
    policy = _Policy(tuple(rules), recipe.filter.select, recipe.seed, _traces(database, recipe.filter), unreadable)
    try:
        traces = preferred_copies(database, rules, recipe.filter.select.order, policy.drops(), policy.traces)
        policy = replace(policy, traces=f"(FROM {traces}) AS signals")
        tally = _tally(database, policy, pq.read_metadata(folder / DECISIONS).num_rows)
    except duckdb.Error as error:
        raise conditions.faulty_expression(
            database, conditions.expressions(rules, recipe.filter.select), error
        ) from None
    reasons_after = _ordered(tally.reasons)
    groups = _by_name(database, tally.groups)
    return Comparison(
        total=_sum(groups.values()),
        groups={name: _counts_by_value(groups, position) for position, name in enumerate(_GROUPS)},
        reasons={
            name: (reasons_before.get(name, 0), reasons_after.get(name, 0))
            for name in {**reasons_before, **reasons_after}
        },
        moved={name: (tally.counts_moved[name], _ids(folder / DECISIONS, tally.moved[name])) for name in _MOVED},
        notes=tuple(_notes(recipe, columns, rules, done)),
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


def _check_policy(recipe: Recipe, folder: Path) -> tuple[pa.Schema, list[Condition]]:
    """The signal table's columns and the checked rules. The run's own files name the columns.

    The families name them only where a rule needs a column that no file has: loading all families takes 0.4 s of
    processor time.
    """
    files = part_paths(folder / SIGNALS, ".parquet")
    measured = signals_of(pq.read_schema(files[0])) if files else FACTS
    columns = pa.schema([*measured, *(column for _, schema in SIDE.values() for column in schema)])
    try:
        return columns, conditions.check(recipe.filter, columns)
    except RecipeError:
        from filters.signals import registry

        columns = registry.columns(recipe)
        return columns, conditions.check(recipe.filter, columns)


def _ids(decisions: Path, numbers: Sequence[int]) -> tuple[str, ...]:
    """The ids of the traces with these numbers: their rows in the decision table."""
    ids = []
    with pq.ParquetFile(decisions) as file:
        first, groups = 0, iter(range(file.num_row_groups))
        group = next(groups, 0)
        for number in numbers:
            while number >= first + file.metadata.row_group(group).num_rows:
                first, group = first + file.metadata.row_group(group).num_rows, next(groups)
            ids.append(file.read_row_group(group, columns=["id"])["id"][number - first].as_py())
    return tuple(ids)


def _unreadable(database: duckdb.DuckDBPyConnection) -> list[str]:
    """Samples whose images could not be read when the dataset was written."""
    rows = database.execute(
        "SELECT DISTINCT sample_id FROM (SELECT sample_id, unnest(reasons) AS reason FROM decisions) "
        f"WHERE reason.rule = '{UNREADABLE_IMAGE}' ORDER BY 1"
    ).fetchall()
    return [sample_id for (sample_id,) in rows]


def _reasons_before(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    # A rule is named by its name, a limit of the selection by its condition.
    rows: list[tuple[str, int]] = database.execute(
        f"SELECT CASE WHEN reason.rule = '{NOT_SELECTED}' THEN reason.condition ELSE reason.rule END, count(*) "
        "FROM (SELECT unnest(reasons) AS reason FROM decisions) GROUP BY 1"
    ).fetchall()
    return _ordered(dict(rows))


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts above zero, the largest first."""
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name)) if counts[name]}


def _traces(database: duckdb.DuckDBPyConnection, settings: Filter) -> str:
    """SQL of the traces: the signals that the policy reads, and `was_kept` and `was_selected` of the run.

    `number` is the place of a trace in the order of the ids.

    Side tables that nothing reads are not joined.
    """
    read = " ".join([*(rule.drop for rule in settings.rules), *settings.select.order]).lower()
    read += " ".join(mix.by for mix in settings.select.mix).lower()
    by_key: dict[str, list[str]] = {"id": [], "sample_id": []}
    columns = ["before.id", "number", "before.kept AS was_kept", "before.selected AS was_selected"]
    for name, (key, schema) in SIDE.items():
        if any(column.lower() in read for column in schema.names):
            by_key[key].append(f"side_{name}")
            columns += [identifier(column) for column in schema.names] if key == "id" else []
    earlier = f"SELECT {', '.join(columns)} FROM {join_aligned(database, 'before', by_key['id'])}"
    by_sample = "".join(f" LEFT JOIN {name} USING (sample_id)" for name in by_key["sample_id"])
    return f"(FROM local JOIN ({earlier}) USING (id){by_sample})"


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy on the traces of a run, as SQL."""

    rules: tuple[Condition, ...]
    select: Select
    seed: int
    traces: str
    unreadable: list[str]

    def drops(self) -> dict[str, str]:
        """SQL of whether each rule drops a trace, by the rule's name."""
        listed = ", ".join(map(text, self.unreadable))
        drops = {rule.name: decide.drops(rule) for rule in self.rules}
        return drops | ({UNREADABLE_IMAGE: f"sample_id IN ({listed})"} if listed else {})

    def flags(self) -> list[str]:
        """State of a trace before selection: its last decision, and the rules that drop it now."""
        return ["was_kept", "was_selected", *self.drops()]

    def ranked(self, within: str) -> str:
        """Every trace with what the rules and its question's limits make of it.

        Sorting is most of the work, so a trace is as few numbers as possible: a question and a group are hashes,
        flags are bits of `flags_0`, `flags_1` and so on. A trace's id is its `number`, except in a mix, whose chance
        is made from ids. Two of a million questions have the same hash with a probability of one to 37 million.
        """
        drops = [f"{sql} AS {identifier(_dropped_by(name))}" for name, sql in self.drops().items()]
        kept = " OR ".join(identifier(_dropped_by(name)) for name in self.drops()) or "false"
        bits = ["was_kept", "was_selected", *(identifier(_dropped_by(name)) for name in self.drops())]
        numbers = [
            " + ".join(
                f"{1 << place} * {bit}::INTEGER" for place, bit in enumerate(bits[start : start + _FLAGS_A_NUMBER])
            )
            for start in range(0, len(bits), _FLAGS_A_NUMBER)
        ]
        order = (identifier(entry.removeprefix("-")) for entry in self.select.order)
        columns = [
            *("number", "hash(sample_id) AS question", f"hash({', '.join(_GROUPS)}) AS groups", "kept", *order),
            *(f"{sql} AS flags_{place}" for place, sql in enumerate(numbers)),
            *(["teacher"] if self.select.per_teacher is not None else []),
            *(
                ["id", f"CASE WHEN kept THEN {decide.kind_of(self.select)} END AS kind"]
                if decide.mixed(self.select)
                else []
            ),
        ]
        judged = f"""
            SELECT {", ".join(dict.fromkeys(columns))} FROM (
                SELECT *, NOT ({kept}) AS kept FROM (
                    SELECT {", ".join(["*", *drops])} FROM {self.traces} WHERE {within}))"""
        return decide.ranked(self.select, judged, question="question", tie="number")


def _dropped_by(rule: str) -> str:
    return f"dropped by {rule}"


_MOVED: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "newly kept": lambda of: of["kept"] and not of["was_kept"],
    "newly dropped": lambda of: of["was_kept"] and not of["kept"],
    "newly selected": lambda of: of["selected"] and not of["was_selected"],
    "no longer selected": lambda of: of["was_selected"] and not of["selected"],
}


@dataclass(slots=True)
class _Tally:
    """Counts of a comparison, added up over parts of the traces."""

    groups: dict[int, list[int]] = field(default_factory=dict)
    """Counts by the hash of teacher, domain and difficulty."""
    reasons: Counter[str] = field(default_factory=Counter)
    counts_moved: Counter[str] = field(default_factory=Counter)
    moved: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in _MOVED})
    """The numbers of the first traces that moved."""

    def add(self, rows: Iterable[Sequence[Any]], policy: _Policy) -> None:
        """Add rows of `_query`."""
        select, names = policy.select, policy.flags()
        for group, count, numbers, kept, teacher_best, best, selected, *flags in rows:
            bits = (number >> place & 1 for number in flags for place in range(_FLAGS_A_NUMBER))
            known = dict(zip(names, bits, strict=False)) | {"kept": kept, "selected": selected}
            seen = (True, known["was_kept"], kept, known["was_selected"], selected)
            counts = self.groups.setdefault(group, [0] * len(seen))
            self.groups[group] = [before + count * bool(flag) for before, flag in zip(counts, seen, strict=True)]
            for name in names[2:]:
                self.reasons[name] += count * known[name]
            self.reasons[f"per_teacher = {select.per_teacher}"] += count * (kept and not teacher_best)
            self.reasons[f"per_question = {select.per_question}"] += count * (kept and teacher_best and not best)
            for name, has_moved in _MOVED.items():
                if has_moved(known):
                    self.counts_moved[name] += count
                    self.moved[name] = sorted([*self.moved[name], *numbers])[:_SHOWN]


def _tally(database: duckdb.DuckDBPyConnection, policy: _Policy, rows: int) -> _Tally:
    """One pass over the traces; a mix needs the counts of all traces first, so their ranks are kept for a second."""
    tally, select = _Tally(), policy.select
    parts = [within.format("sample_id") for within in ranges(rows, _AT_ONCE)]
    if not decide.mixed(select):
        for within in parts:
            ranked = f"SELECT *, kept AND best AS selected FROM ({policy.ranked(within)})"
            tally.add(database.execute(_query(ranked)).fetchall(), policy)
        return tally
    for number, within in enumerate(parts):
        start = "INSERT INTO ranked" if number else "CREATE TEMP TABLE ranked AS"
        database.execute(f"{start} {policy.ranked(within)}")
    counts = database.execute("SELECT kind, count(*) FROM ranked WHERE kept AND best GROUP BY kind").fetchall()
    decide.create_quotas(database, counts, select)
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
    tally.add(database.execute(_query(everything)).fetchall(), policy)
    return tally


def _query(traces: str) -> str:
    """Counts and the first numbers of the traces in the same state."""
    return f"""
        SELECT groups, count(*), min(number, {_SHOWN}), kept, teacher_best, best, selected, COLUMNS('flags_[0-9]+')
        FROM ({traces}) GROUP BY ALL"""


def _by_name(
    database: duckdb.DuckDBPyConnection, counts: Mapping[int, Sequence[int]]
) -> dict[tuple[str, ...], PolicyCounts]:
    """Counts by teacher, domain and difficulty."""
    names = ", ".join(f"coalesce(nullif(any_value({name}), ''), '(none)')" for name in _GROUPS)
    rows = database.execute(f"SELECT hash({', '.join(_GROUPS)}), {names} FROM local GROUP BY 1").fetchall()
    named: dict[tuple[str, ...], PolicyCounts] = {}
    for group, *key in rows:  # an empty value has the name of a missing one
        if group in counts:
            named[tuple(key)] = _sum([named.get(tuple(key), PolicyCounts()), PolicyCounts(*counts[group])])
    return named


def _counts_by_value(groups: Mapping[tuple[str, ...], PolicyCounts], position: int) -> dict[str, PolicyCounts]:
    values = sorted({key[position] for key in groups})
    return {value: _sum(counts for key, counts in groups.items() if key[position] == value) for value in values}


def _sum(counts: Iterable[PolicyCounts]) -> PolicyCounts:
    return PolicyCounts(*(sum(column) for column in zip((0,) * 5, *counts, strict=True)))


def _notes(recipe: Recipe, columns: pa.Schema, rules: Iterable[Condition], done: Manifest) -> Iterable[str]:
    family_of = _families(columns)
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


def _families(columns: pa.Schema) -> dict[str, str]:
    """The family that measures each column: a family's columns follow its state. Facts need no measuring."""
    family_of: dict[str, str] = {}
    family = ""
    for name in columns.names:
        if name not in FACTS.names and name != "signal_errors":
            family = name.removesuffix(_STATE) if name.endswith(_STATE) else family
            family_of[name] = family
    return family_of


def _pair(before: int, after: int) -> tuple[int, int, str]:
    return before, after, f"{after - before:+,}" if after != before else ""


def _commas(row: Iterable[Any]) -> list[str]:
    return [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
