"""Lists the final traces: `plan.parquet`, one row for each that later stages see, and the manifest's counts.

A sample's final traces are collected as soon as a teacher is done with it, and written in the order of the plan when
all are. It reads ids and outcomes, and a text only if a policy needs it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.files import Output, atomic_path, describe
from distill.artifacts.layout import PLAN, QUARANTINE, SAMPLES
from distill.data.arrow import table_of
from distill.recipe.recipe import Recipe
from distill.recipe.teachers import Teacher
from distill.types import Sample
from teacher.messages.request import Author, Model
from teacher.scheduling.sampling_policy import Rules, SampleState, TeacherPolicy
from teacher.store.question_plan import QuestionPlan
from teacher.store.trace_index import USAGE, TraceIndex

_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "sample_id": pa.string(),
    "teacher": pa.string(),
    "k": pa.int32(),
    "attempt": pa.int32(),
    "hinted": pa.bool_(),
}
_SCHEMA = pa.schema(_COLUMNS)
_COLLECTED = pa.schema(
    [
        ("id", pa.string()),
        ("sample_id", pa.string()),
        ("teacher", pa.int32()),
        ("k", pa.int32()),
        ("attempt", pa.int32()),
    ]
)
_OF_TEACHER = pa.schema([("teacher", pa.string()), ("hinted", pa.bool_())])
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
    samples: int = 0
    """Samples that the teacher is done with."""

    def add(self, state: SampleState, index: TraceIndex, *, hinted: bool) -> None:
        """Count what a teacher's work on a sample ended with."""
        self.open += len(state.open) + state.waiting
        self.samples += state.done
        for final in state.finals:
            self.outcomes[final.status.outcome] += 1
            self.dropped += final.dropped
            self.hinted += hinted
            usage = index.usage(final.request.id)
            if usage is None:
                self.errors_to_ask_again += bool(index.failure(final.request.id))
                self.proven += 1
            else:
                self._count(usage, wasted=not final.complete)
            for replaced in final.replaced:
                usage = index.usage(replaced.id)
                if usage is not None:
                    self.repeated += 1
                    self._count(usage, wasted=True)

    def _count(self, usage: Sequence[int], *, wasted: bool) -> None:
        tokens = self.tokens
        for name, count in zip(USAGE, usage, strict=True):
            tokens[name] += count
        if wasted:
            tokens["wasted"] += sum(usage[-2:])


class FinalTraces:
    """The final traces of a run, as the teachers come to be done with its samples."""

    def __init__(self, teachers: Sequence[Teacher], indexes: Mapping[str, TraceIndex]) -> None:
        self.tallies = {teacher.name: Tally() for teacher in teachers}
        self._teachers = {teacher.name: (number, teacher) for number, teacher in enumerate(teachers)}
        self._indexes = indexes
        self._rows: list[dict[str, Any]] = []
        self._packed: list[pa.Table] = []

    def are_complete(self, plan: QuestionPlan) -> bool:
        """Whether every teacher is done with every sample."""
        return all(tally.samples == plan.samples for tally in self.tallies.values())

    def add(self, teacher: Teacher, sample: Sample, state: SampleState) -> None:
        """Take what a teacher's work on a sample has come to."""
        number, _ = self._teachers[teacher.name]
        self.tallies[teacher.name].add(state, self._indexes[teacher.name], hinted=teacher.hinted)
        for final in state.finals:
            if not final.dropped:
                request = final.request
                values = (request.id, sample.id, number, request.k, request.attempt)
                self._rows.append(dict(zip(_COLLECTED.names, values, strict=True)))
        if len(self._rows) >= _ROW_GROUP:
            self._pack()

    def _pack(self) -> None:
        self._packed.append(table_of(self._rows, _COLLECTED))
        self._rows.clear()

    def write(self, plan: QuestionPlan) -> None:
        """Write `plan.parquet`, in the order of the plan."""
        self._pack()
        # `pq.read_table` and arrays of NumPy would import pandas where it is installed, for 0.3 s.
        found = pa.concat_tables(self._packed).combine_chunks()
        with pq.ParquetFile(plan.folder / SAMPLES) as file:
            samples = file.read(columns=["id"])["id"]
        found = found.append_column("row", pc.index_in(found["sample_id"], value_set=samples.combine_chunks()))
        found = found.take(pc.sort_indices(found, [("row", "ascending"), ("teacher", "ascending")]))
        about = [{"teacher": name, "hinted": teacher.hinted} for name, (_, teacher) in self._teachers.items()]
        columns = table_of(about, _OF_TEACHER).take(found["teacher"])
        table = pa.table(
            {name: columns[name] if name in _OF_TEACHER.names else found[name] for name in _COLUMNS}, _SCHEMA
        )
        start, rows = 0, found["row"]
        with atomic_path(plan.folder / PLAN) as path, pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
            while len(rows) - start >= _ROW_GROUP:
                end = start + _ROW_GROUP
                while end < len(rows) and rows[end] == rows[end - 1]:
                    end += 1  # a sample's traces stay together
                writer.write_table(table.slice(start, end - start))
                start = end
            writer.write_table(table.slice(start))


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


def collect_final_traces(
    plan: QuestionPlan, policies: Mapping[str, TeacherPolicy], indexes: Mapping[str, TraceIndex]
) -> FinalTraces:
    """The final traces of every sample, worked out anew: for a run in which teachers were not there."""
    finals = FinalTraces([policy.teacher for policy in policies.values()], indexes)
    for sample in plan.read():
        for policy in policies.values():
            finals.add(policy.teacher, sample, policy.state_of(sample))
    return finals


def plan_outputs(plan: QuestionPlan, traces: int) -> dict[str, Output]:
    """The files of the plan with their digests and numbers of records."""
    counts = {SAMPLES: plan.samples, QUARANTINE: plan.quarantined.total(), PLAN: traces}
    return {name: describe(plan.folder / name, count) for name, count in counts.items()}
