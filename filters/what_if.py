"""`distill filter --what-if`: what another policy would keep and select, by the signals already measured.

Nothing is measured and nothing is written: rules are applied to the signals, traces are ranked and counted. The
decisions come from `filters.decisions.decide`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts import integrity, manifest
from distill.artifacts.layout import SIGNALS, part_paths
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.errors import RecipeError
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import DEFAULT_RULES, Select
from distill.reports.text_table import table
from distill.trace_records.human_labels import read_labels
from filters.decisions import rules as conditions
from filters.decisions.array_decisions import ArrayDecisions, PolicyArrays
from filters.decisions.rules import NOT_SELECTED, UNREADABLE_IMAGE, Condition
from filters.decisions.trace_arrays import GROUPS, Flags, TraceArrays
from filters.run_signals import human_verdicts
from filters.signals.schema import FACTS, SIDE
from filters.tables.signal_database import parquet_rows, signals_of

_SHOWN = 3
_STATE = "_state"


class LastTraces:
    """The traces of the filter stage that was looked at last. One comparison after another uses them."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._key: tuple[Any, ...] = ()

    def of(self, folder: Path, columns: pa.Schema, threads: int | None) -> PolicyArrays:
        """The traces of a filter folder, read again where another stage has finished or other columns are known."""
        status = (folder / MANIFEST).stat()
        key = (folder, status.st_ino, status.st_mtime_ns, status.st_size, tuple(columns.names))
        if key != self._key:
            self._key = ()
            traces = TraceArrays(folder, columns, threads=threads)
            self.policies = PolicyArrays(traces)
            self.reasons = _reasons_before(traces)
            self._key = key
        return self.policies

    def unreadable(self) -> dict[str, Flags]:
        """The traces of samples whose images could not be read when the dataset was written, by that reason."""
        if UNREADABLE_IMAGE not in self.reasons:
            return {}
        traces = self.policies.traces
        numbers = traces.database.execute(
            "SELECT file_row_number AS number FROM "
            f"{parquet_rows([traces.decisions], 'file_row_number = true')} "
            f"WHERE list_contains(list_transform(reasons, lambda reason: reason.rule), '{UNREADABLE_IMAGE}')"
        ).fetchnumpy()["number"]
        of_question = np.zeros(len(traces.questions), np.bool_)
        of_question[traces.question[numbers]] = True
        return {UNREADABLE_IMAGE: of_question[traces.question]}


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


def what_if(recipe: Recipe, run: Path, *, threads: int | None = None, last: LastTraces | None = None) -> Comparison:
    """Compare the policy of `recipe` with the decisions of a run's finished filter stage.

    `last` keeps the traces for the next policy: it then reads only what is new to them.

    Raises RecipeError for a policy that cannot be right, StaleError when nothing was filtered yet, DataError when the
    shares of a mix cannot be met.
    """
    folder = run / "filter"
    columns, rules = _check_policy(recipe, folder)
    done = integrity.require_finished(
        run, "filter", next_step="run `distill filter` first; then policies can be compared"
    )
    last, select = last or LastTraces(), recipe.filter.select
    with last.lock:
        policies = last.of(folder, columns, threads)
        traces = policies.traces
        try:
            decisions = policies.decide(rules, select, recipe.seed, last.unreadable())
        except duckdb.Error as error:
            raise conditions.faulty_expression(
                traces.database, conditions.expressions(rules, select), error
            ) from None
        before, after = last.reasons, _ordered(_reasons(decisions, select))
        groups = _by_group(traces, decisions)
        return Comparison(
            total=_sum(groups.values()),
            groups={name: _counts_by_value(groups, position) for position, name in enumerate(GROUPS)},
            reasons={name: (before.get(name, 0), after.get(name, 0)) for name in {**before, **after}},
            moved=_moved(traces, decisions),
            notes=(*_notes(recipe, columns, rules, done), *_new_labels(run, done)),
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


def _reasons_before(traces: TraceArrays) -> dict[str, int]:
    # A rule is named by its name, a limit of the selection by its condition.
    rows: list[tuple[str, int]] = traces.database.execute(
        f"SELECT CASE WHEN reason.rule = '{NOT_SELECTED}' THEN reason.condition ELSE reason.rule END, count(*) "
        "FROM (SELECT unnest(reasons) AS reason FROM decisions) GROUP BY 1"
    ).fetchall()
    return _ordered(dict(rows))


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts above zero, the largest first."""
    return {name: counts[name] for name in sorted(counts, key=lambda name: (-counts[name], name)) if counts[name]}


def _reasons(decisions: ArrayDecisions, select: Select) -> dict[str, int]:
    """How many traces each rule drops, and each limit leaves out."""
    kept, within_teacher, best = (
        int(np.count_nonzero(flags)) for flags in (decisions.kept, decisions.teacher_best, decisions.best)
    )
    return {
        **{name: int(np.count_nonzero(flags)) for name, flags in decisions.dropped.items()},
        f"per_teacher = {select.per_teacher}": kept - within_teacher,
        f"per_question = {select.per_question}": within_teacher - best,
        **decisions.beyond,
    }


def _by_group(traces: TraceArrays, decisions: ArrayDecisions) -> dict[tuple[str, ...], PolicyCounts]:
    """Counts by teacher, domain and difficulty."""
    flags = (None, traces.was_kept, decisions.kept, traces.was_selected, decisions.selected)
    counts = (
        np.bincount(traces.group if each is None else traces.group[each], minlength=len(traces.groups)).tolist()
        for each in flags
    )
    return {name: PolicyCounts(*each) for name, *each in zip(traces.groups, *counts, strict=True)}


def _moved(traces: TraceArrays, decisions: ArrayDecisions) -> dict[str, tuple[int, tuple[str, ...]]]:
    """How many traces are newly kept and so on, with the ids of the first."""
    moved = {
        "newly kept": decisions.kept & ~traces.was_kept,
        "newly dropped": traces.was_kept & ~decisions.kept,
        "newly selected": decisions.selected & ~traces.was_selected,
        "no longer selected": traces.was_selected & ~decisions.selected,
    }
    return {
        name: (int(np.count_nonzero(flags)), _ids(traces.decisions, np.flatnonzero(flags)[:_SHOWN].tolist()))
        for name, flags in moved.items()
    }


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


def _new_labels(run: Path, done: Manifest) -> Iterable[str]:
    before = done.fields.get(human_verdicts.FIELD)
    if before is not None and before != human_verdicts.identity(read_labels(run))["labels"]:
        yield "labels were given since the run was filtered: `distill filter` reads them, this comparison does not"


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
