"""Lists the final traces: `plan.parquet`, one row for each that later stages see, and the manifest's counts.

This depends on the outcomes of the traces, so it comes last. It reads ids and outcomes, and a text only if a policy
needs it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import Output, atomic_path, describe
from distill.artifacts.layout import PLAN, QUARANTINE, SAMPLES
from distill.data.arrow import table_of
from distill.recipe.recipe import Recipe
from distill.types import Outcome, Sample
from teacher.messages.request import Author, Model
from teacher.scheduling.sampling_policy import Rules, TeacherPolicy
from teacher.store.question_plan import QuestionPlan
from teacher.store.trace_index import Entry, TraceIndex

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "sample_id": pa.string(),
    "teacher": pa.string(),
    "k": pa.int32(),
    "attempt": pa.int32(),
    "hinted": pa.bool_(),
}
_SCHEMA = pa.schema(_COLUMNS)
_ROW_GROUP = 8192


@dataclass(slots=True)
class Tally:
    """Counts of the traces that one teacher's work ended with."""

    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    errors_to_ask_again: int = 0
    dropped: int = 0
    """Final traces that later stages don't see."""
    hinted: int = 0
    repeated: int = 0
    """Attempts that a later one replaced."""
    proven: int = 0
    """Errors that are the rows' own."""
    open: int = 0
    """Traces still to be made."""

    def add(self, outcome: str, index: TraceIndex, trace_id: str, *, dropped: bool, hinted: bool) -> None:
        self.outcomes[outcome] += 1
        self.dropped += dropped
        self.hinted += hinted
        entry = index.entry(trace_id)
        if entry is None:
            self.errors_to_ask_again += bool(index.failure(trace_id))
            self.proven += 1
            return
        self._count(entry, wasted=outcome != Outcome.COMPLETE)

    def replaced(self, index: TraceIndex, trace_id: str) -> None:
        entry = index.entry(trace_id)
        if entry is not None:
            self.repeated += 1
            self._count(entry, wasted=True)

    def _count(self, entry: Entry, *, wasted: bool) -> None:
        self.tokens.update(entry.usage)
        if wasted:
            self.tokens["wasted"] += entry.usage["reasoning"] + entry.usage["answer"]


def teacher_policies(
    recipe: Recipe, models: Mapping[str, Model], indexes: Mapping[str, TraceIndex], *, include_failures: bool
) -> dict[str, TeacherPolicy]:
    """The policy of every teacher. `include_failures`: errors of earlier runs count as finished, too."""
    rules = Rules(
        teachers=recipe.teachers,
        outcomes=recipe.generate.outcomes,
        relative_tolerance=recipe.filter.answer.relative_tolerance,
    )
    policies: dict[str, TeacherPolicy] = {}
    for teacher in recipe.teachers:
        index = indexes[teacher.name]
        author = Author(teacher=teacher, model=models[teacher.name], seed=recipe.seed)
        status_of = index.status_or_failure if include_failures else index.status_of
        policies[teacher.name] = TeacherPolicy(author, rules, status_of, policies.get(teacher.after or ""))
    return policies


def write_final_traces(
    plan: QuestionPlan, policies: Mapping[str, TeacherPolicy], indexes: Mapping[str, TraceIndex]
) -> dict[str, Tally]:
    """Count what every teacher has finished, and write which traces later stages see to `plan.parquet`."""
    tallies = {name: Tally() for name in policies}
    with atomic_path(plan.folder / PLAN) as path, pq.ParquetWriter(path, _SCHEMA, compression="zstd") as table:
        rows: list[dict[str, Any]] = []
        for sample in plan.read():
            for name, policy in policies.items():
                rows += _final_rows(sample, policy, indexes[name], tallies[name])
            if len(rows) >= _ROW_GROUP:
                table.write_table(table_of(rows, _SCHEMA))
                rows.clear()
        table.write_table(table_of(rows, _SCHEMA))
    return tallies


def _final_rows(sample: Sample, policy: TeacherPolicy, index: TraceIndex, tally: Tally) -> Iterator[dict[str, Any]]:
    """The rows of one teacher's final traces of a sample, counted."""
    state = policy.state_of(sample)
    tally.open += len(state.open) + state.waiting
    for final in state.finals:
        request, outcome = final.request, final.status.outcome
        tally.add(outcome, index, request.id, dropped=final.dropped, hinted=policy.teacher.hinted)
        for replaced in final.replaced:
            tally.replaced(index, replaced.id)
        if not final.dropped:
            yield {
                "id": request.id,
                "sample_id": sample.id,
                "teacher": policy.teacher.name,
                "k": request.k,
                "attempt": request.attempt,
                "hinted": policy.teacher.hinted,
            }


def plan_outputs(plan: QuestionPlan, traces: int) -> dict[str, Output]:
    """The files of the plan with their digests and numbers of records."""
    counts = {SAMPLES: plan.samples, QUARANTINE: plan.quarantined.total(), PLAN: traces}
    return {name: describe(plan.folder / name, count) for name, count in counts.items()}
