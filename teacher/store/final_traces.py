"""Lists the final traces: `plan.parquet`, one row for each that later stages see, and the manifest's counts.

A sample's traces are collected as soon as a teacher is done with it, 52 bytes each, and written in the order of the
plan when all are. They are kept for the next run (`.finals`), which then looks only at samples that are new or whose
traces failed.
"""

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.compact_map import KEY_BYTES
from distill.artifacts.files import Output, atomic_path, describe
from distill.artifacts.layout import PLAN, QUARANTINE, SAMPLES
from distill.artifacts.snapshot import read_snapshot, write_snapshot
from distill.data import sample_files
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.trace_records.trace_lines import USAGE
from distill.types import Outcome, Sample
from teacher.messages.request import Author, Model, Request
from teacher.scheduling.sampling_policy import Rules, SampleState, TeacherPolicy
from teacher.store.question_plan import DoneRows, QuestionPlan
from teacher.store.trace_index import OUTCOMES, TraceIndex

_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sample_id", pa.string()),
        ("teacher", pa.string()),
        ("k", pa.int32()),
        ("attempt", pa.int32()),
        ("hinted", pa.bool_()),
    ]
)
_ROW_GROUP = 8192
_KEPT, _DROPPED, _REPLACED = range(3)
"""A final trace; one that later stages do not see; an attempt that a later one replaced."""
_COMPLETE, _EMPTY, _ERROR = map(OUTCOMES.index, (Outcome.COMPLETE, Outcome.EMPTY_ANSWER, Outcome.ERROR))
_ROW = struct.Struct(f"<{KEY_BYTES}s{KEY_BYTES}sBBBBiii4I")
_COLUMNS: Any = np.dtype(
    [
        ("id", f"V{KEY_BYTES}"),
        ("sample", f"V{KEY_BYTES}"),
        ("teacher", "u1"),
        ("kind", "u1"),
        ("outcome", "u1"),
        ("may_pass", "u1"),
        ("row", "<i4"),
        ("k", "<i4"),
        ("attempt", "<i4"),
        *((name, "<u4") for name in USAGE),
    ]
)
"""`may_pass`: an error that is worth asking again. `row`: the sample's row of the plan, once it is known."""
_KEY = f"S{KEY_BYTES}"
_SNAPSHOT, _SNAPSHOT_VERSION = ".finals", 1


@dataclass(slots=True)
class Tally:
    """Counts of the traces that one teacher's work ended with."""

    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    errors_to_ask_again: int = 0
    dropped: int = 0
    """Final traces that later stages don't see."""
    hinted: int = 0
    without_usage: int = 0
    """Replies whose tokens the server did not report."""
    repeated: int = 0
    """Attempts that a later one replaced."""
    open: int = 0
    """Traces still to be made."""


class FinalTraces:
    """The final traces of a run, as the teachers come to be done with its samples."""

    def __init__(self, teachers: Sequence[Teacher], indexes: Mapping[str, TraceIndex]) -> None:
        self.done_before = DoneRows()
        """Samples of the plan whose traces an earlier run has collected."""
        self._teachers = {teacher.name: (number, teacher) for number, teacher in enumerate(teachers)}
        self._indexes = indexes
        self._open, self._done = Counter[str](), Counter[str]()
        self._rows = bytearray()
        self._saved_bytes = -1

    def are_complete(self, plan: QuestionPlan) -> bool:
        """Whether every teacher is done with every sample."""
        return all(self._done[name] == plan.samples for name in self._teachers)

    def add(self, teacher: Teacher, sample: Sample, state: SampleState) -> None:
        """Collect the final traces of one teacher for one sample."""
        number, _ = self._teachers[teacher.name]
        index = self._indexes[teacher.name]
        self._open[teacher.name] += len(state.open) + state.waiting
        self._done[teacher.name] += state.done
        for final in state.finals:
            kind = _DROPPED if final.dropped else _KEPT
            self._add_row(index, number, sample, final.request, kind, final.status.outcome)
            for replaced in final.replaced:
                if entry := index.entry(replaced.id):
                    self._add_row(index, number, sample, replaced, _REPLACED, entry.outcome)

    def _add_row(
        self, index: TraceIndex, teacher: int, sample: Sample, request: Request, kind: int, outcome: str
    ) -> None:
        usage = index.usage(request.id)
        self._rows += _ROW.pack(
            bytes.fromhex(request.id),
            bytes.fromhex(sample.id),
            teacher,
            kind,
            _ERROR if usage is None else OUTCOMES.index(outcome),
            usage is None and bool(index.failure(request.id)),
            -1,
            request.k,
            request.attempt,
            *(usage or (0,) * len(USAGE)),
        )

    def tallies(self) -> dict[str, Tally]:
        """The counts of every teacher."""
        rows = self._table()
        shape = (len(self._teachers), 3, len(OUTCOMES))
        group = (rows["teacher"].astype(np.intp) * shape[1] + rows["kind"]) * shape[2] + rows["outcome"]

        def total(column: str | None = None) -> Any:
            weights = None if column is None else rows[column]
            return np.bincount(group, weights, minlength=shape[0] * shape[1] * shape[2]).reshape(shape).astype(int)

        counts, may_pass = total(), total("may_pass")
        tokens = {name: total(name) for name in USAGE}
        # As `output_tokens` (distill/trace_records/token_counts.py) decides for one trace.
        unreported = (rows["reasoning"] + rows["answer"] == 0) & (rows["outcome"] != _ERROR)
        unreported &= (rows["outcome"] != _EMPTY) | (rows["prompt"] == 0)
        uncounted = np.bincount(rows["teacher"][unreported], minlength=len(self._teachers))
        tallies: dict[str, Tally] = {}
        for name, (number, teacher) in self._teachers.items():
            finals = counts[number, _KEPT] + counts[number, _DROPPED]
            generated = tokens["reasoning"][number] + tokens["answer"][number]
            used = {key: int(counted[number].sum()) for key, counted in tokens.items()}
            used["wasted"] = int(generated.sum() - generated[:_REPLACED, _COMPLETE].sum())
            tallies[name] = Tally(
                outcomes=Counter({outcome: int(finals[code]) for code, outcome in enumerate(OUTCOMES)}),
                tokens=Counter(used),
                errors_to_ask_again=int(may_pass[number].sum()),
                dropped=int(counts[number, _DROPPED].sum()),
                without_usage=int(uncounted[number]),
                hinted=int(finals.sum()) if teacher.hinted else 0,
                repeated=int(counts[number, _REPLACED].sum()),
                open=self._open[name],
            )
            tallies[name].outcomes = +tallies[name].outcomes
        return tallies

    def _table(self) -> Any:
        return np.frombuffer(self._rows, _COLUMNS)

    def write(self, plan: QuestionPlan) -> None:
        """Write `plan.parquet`, in the order of the plan."""
        self._find_rows(plan)
        rows = self._table()
        kept = np.flatnonzero(rows["kind"] == _KEPT)
        order = kept[np.lexsort((rows["teacher"][kept], rows["row"][kept]))]
        sample_of = rows["row"][order]
        start = 0
        with atomic_path(plan.folder / PLAN) as path, pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
            while len(order) - start >= _ROW_GROUP:
                end = start + _ROW_GROUP
                while end < len(order) and sample_of[end] == sample_of[end - 1]:
                    end += 1  # a sample's traces stay together
                writer.write_table(self._listed(rows[order[start:end]]))
                start = end
            writer.write_table(self._listed(rows[order[start:]]))

    def _find_rows(self, plan: QuestionPlan) -> None:
        """Note the row of the plan that each collected trace belongs to."""
        rows = self._table()
        new = np.flatnonzero(rows["row"] < 0)
        if not len(new):
            return
        # The new ones are sorted: after a resume they are few.
        samples, sample_of = np.unique(np.ascontiguousarray(rows["sample"][new]).view(_KEY), return_inverse=True)
        keys = np.frombuffer(sample_files.read_keys(plan.folder / SAMPLES), _KEY)
        places = np.minimum(np.searchsorted(samples, keys), len(samples) - 1)
        planned = np.flatnonzero(samples[places] == keys)
        row_of = np.empty(len(samples), np.int32)
        row_of[places[planned]] = planned
        rows["row"][new] = row_of[sample_of]

    def _listed(self, rows: Any) -> pa.Table:
        """Collected traces as rows of `plan.parquet`."""
        # From buffers: `pa.array` would import pandas where it is installed, and `take` all functions of Arrow.
        hinted = np.array([teacher.hinted for _, teacher in self._teachers.values()])[rows["teacher"]]
        columns = [
            _hex_column(rows["id"]),
            _hex_column(rows["sample"]),
            _text_column(list(self._teachers), rows["teacher"]),
            *(
                pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows[name]))])
                for name in ("k", "attempt")
            ),
            pa.Array.from_buffers(
                pa.bool_(), len(rows), [None, pa.py_buffer(np.packbits(hinted, bitorder="little"))]
            ),
        ]
        return pa.Table.from_arrays(columns, schema=_SCHEMA)

    def save(self, plan: QuestionPlan) -> None:
        """Store the collected rows for the next run, without samples that have errors, because the next run may ask
        these again.

        Only of a complete run, and after the journals and the plan are written.
        """
        if len(self._rows) == self._saved_bytes and self.done_before.rows == plan.samples:
            return
        rows = self._table()
        # `np.unique` would load masked arrays, which takes 10 ms.
        failed = np.array(sorted(set(rows["row"][rows["outcome"] == _ERROR].tolist())), np.int64)
        header = {
            "version": _SNAPSHOT_VERSION,
            "settings": plan.settings,
            "plan": [plan.samples, plan.digest],
            "failed": failed.tolist(),
            "parts": {name: index.prefixes() for name, index in self._indexes.items()},
        }
        kept = rows[~np.isin(rows["row"], failed)].tobytes() if len(failed) else self._rows
        write_snapshot(plan.folder / _SNAPSHOT, header, [kept])

    def load(self, plan: QuestionPlan) -> None:
        """Take over what an earlier run collected, if settings, samples and journals are still the same.

        Later samples and later traces are allowed.
        """
        snapshot = read_snapshot(plan.folder / _SNAPSHOT)
        if snapshot is None:
            return
        header, (collected,) = snapshot
        if (header.get("version"), header.get("settings")) != (_SNAPSHOT_VERSION, plan.settings):
            return
        rows, digest = header["plan"]
        if not plan.begins_with(rows, digest) or header["parts"].keys() != self._indexes.keys():
            return
        if all(self._indexes[name].begins_with(prefixes) for name, prefixes in header["parts"].items()):
            self._rows = collected
            self._saved_bytes = len(collected)
            self.done_before = DoneRows(rows=rows, but=frozenset(header["failed"]))
            self._done.update(dict.fromkeys(self._teachers, self.done_before.count))


def _text_column(texts: Sequence[str], numbers: Any) -> pa.Array:
    """For each number the text that has it."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum(np.array([len(text) for text in encoded])[numbers], dtype="<i4")
    offsets = np.concatenate([np.zeros(1, "<i4"), ends])
    data = b"".join([encoded[number] for number in numbers.tolist()])
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))


def _hex_column(ids: Any) -> pa.Array:
    """Ids as text."""
    offsets = np.arange(0, 2 * KEY_BYTES * (len(ids) + 1), 2 * KEY_BYTES, dtype="<i4")
    digits = np.ascontiguousarray(ids).tobytes().hex().encode()
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(digits))


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
    """The final traces of every sample, worked out again: for a run in which teachers were not there."""
    finals = FinalTraces([policy.teacher for policy in policies.values()], indexes)
    for sample in plan.read():
        for policy in policies.values():
            finals.add(policy.teacher, sample, policy.state_of(sample))
    return finals


def plan_outputs(plan: QuestionPlan, traces: int) -> dict[str, Output]:
    """The files of the plan with their digests and numbers of records."""
    counts = {SAMPLES: plan.samples, QUARANTINE: plan.quarantined.total(), PLAN: traces}
    return {name: describe(plan.folder / name, count) for name, count in counts.items()}
