"""Student fit of the traces: finds the traces to measure and reuses the values of earlier files.

The caller passes the function that measures with a model. Traces come in the order of their samples' ids and whole
samples make a part. A journal holds each chunk of a part as soon as it is measured, so after a kill only the missing
chunks are measured. A value stays valid as long as its own inputs are the same; other traces do not count.
"""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.files import storage_errors
from distill.artifacts.integrity import digest_note, note_digest
from distill.artifacts.journal import Journal
from distill.artifacts.json_lines import requiring
from distill.artifacts.manifest import canonical, fingerprint
from distill.errors import DistillError
from distill.types import Outcome, Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, UNDECIDABLE
from filters.signals.schema import STUDENT
from filters.tables import run_signal_tables
from filters.tables.run_signal_tables import Done, Item

VERSION = "2"
"""Raised whenever the same trace could get another value."""
PART_ROWS = 4096
CHUNK_ROWS = 256
"""Rows measured in one call: a kill loses at most these, and batches are chosen from them."""
_STAGING = ".next"
_IDENTITY, _KEYS, _KEY_DIGITS = "identity", "keys", 16
_UNREAD = "unread"
"""There where a row of a file has one of these reasons: the image may be readable now."""
_UNREAD_REASONS = frozenset({"missing_image", "changed_image", "unreadable_image", "truncated_image", "empty_image"})
_VALUES = ("nll", "rank_surprisal", "ifd", "blind_gap", "answer_nll")
_DECIMALS = 6

MeasureBatch = Callable[[list[tuple[Sample, Trace]]], list[dict[str, Any]]]
"""One dict a trace: the values by their columns' names without `student_`, or the `reason` why there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EarlierValues:
    """Values from earlier files by trace, each valid only for the content that it was measured on."""

    paths: Sequence[Path]
    sources: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Sequence[Path], identity: str) -> "_EarlierValues":
        earlier = cls(paths=paths)
        for number, path in enumerate(paths):
            metadata = run_signal_tables.metadata(path)
            if metadata.get(_IDENTITY) != identity:
                continue
            keys = metadata.get(_KEYS, "")
            for index, row in enumerate(run_signal_tables.read(path)):
                earlier.sources[row["id"]] = (keys[index * _KEY_DIGITS : (index + 1) * _KEY_DIGITS], number)
        return earlier

    def rows(self, keys: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """The valid values by trace id; `keys` has the content key of each requested trace."""
        names_of_file: dict[int, set[str]] = {}
        for name, key in keys.items():
            source = self.sources.get(name)
            if source is not None and source[0] == key:
                names_of_file.setdefault(source[1], set()).add(name)
        return {
            row["id"]: row
            for number, names in names_of_file.items()
            for row in run_signal_tables.read(self.paths[number])
            if row["id"] in names and row["student_reason"] not in _UNREAD_REASONS
        }


def measure(
    items: Iterable[Item],
    folder: Path,
    measure_batch: MeasureBatch,
    *,
    identity: Mapping[str, Any],
    per_teacher: int | None = None,
    on_done: Done = lambda rows, reused: None,
) -> list[Path]:
    """Write the values of all traces to `folder`; returns its files in order.

    `items` must be in ascending order of the sample's id, unless `per_teacher` is set. With `per_teacher`, at most
    this number of traces of each teacher is measured, chosen by the hashes of their ids; the others get no row.
    `identity` says what the values depend on besides the trace. `on_done` is called with the number of finished rows
    and whether they were reused.
    """
    staging = folder / _STAGING
    own_identity = fingerprint({**identity, "columns": STUDENT.names, "version": VERSION})
    with storage_errors(folder):
        staging.mkdir(parents=True, exist_ok=True)
    for path in staging.glob("*.parquet"):
        if run_signal_tables.metadata(path).get(_IDENTITY) != own_identity:
            path.unlink()
    earlier: _EarlierValues | None = None
    chosen = _group_by_sample(items) if per_teacher is None else _sample_per_teacher(items, per_teacher)
    count = 0
    for part in _parts(chosen):
        keys = {name: _key(sample, trace) for name, sample, trace in sorted(part, key=lambda item: item[0])}
        stamp = {
            run_signal_tables.FINGERPRINT: fingerprint({"identity": own_identity, "keys": keys}),
            _IDENTITY: own_identity,
        }
        stamp[_KEYS] = "".join(keys.values())
        part_paths = [run_signal_tables.part(where, count) for where in (staging, folder)]
        count += 1
        if any(run_signal_tables.metadata(path) == stamp for path in part_paths):
            on_done(len(part), True)
            continue
        if earlier is None:
            earlier = _EarlierValues.of(sorted([*folder.glob("*.parquet"), *staging.glob("*.parquet")]), own_identity)
        rows = earlier.rows(keys)
        if rows:
            on_done(len(rows), True)
        remaining = [item for item in part if item[0] not in rows]
        rows |= _measured(
            remaining,
            part_paths[0].with_suffix(".jsonl"),
            stamp[run_signal_tables.FINGERPRINT],
            measure_batch,
            on_done,
        )
        unread = sum(row.get("student_reason") in _UNREAD_REASONS for row in rows.values())
        stamp |= {_UNREAD: str(unread)} if unread else {}
        run_signal_tables.write(part_paths[0], list(rows.values()), STUDENT, stamp)
        part_paths[0].with_suffix(".jsonl").unlink(missing_ok=True)
    return _replace_parts(folder, staging, count)


def _measured(
    items: Sequence[Item], path: Path, stamp: str, measure_batch: MeasureBatch, on_done: Done
) -> dict[str, dict[str, Any]]:
    """Rows of a part, chunk by chunk; those that the journal of an interrupted run holds are taken from there."""
    rows: dict[str, dict[str, Any]] = {}
    records = recovered(path, requiring("first", "rows", "part"))
    chunks = {record["first"]: record["rows"] for record in records if record["part"] == stamp}
    with Journal(path, flush_interval_s=0) as journal:
        for start in range(0, len(items), CHUNK_ROWS):
            chunk = items[start : start + CHUNK_ROWS]
            names = [name for name, _, _ in chunk]
            chunk_rows = chunks.get(names[0])
            is_reused = chunk_rows is not None and [row["id"] for row in chunk_rows] == names
            if chunk_rows is None or not is_reused:
                chunk_rows = _rows(chunk, measure_batch)
                journal.append({"part": stamp, "first": names[0], "rows": chunk_rows})
            rows |= {row["id"]: row for row in chunk_rows}
            on_done(len(chunk), is_reused)
    return rows


def _rows(chunk: Sequence[Item], measure_batch: MeasureBatch) -> list[dict[str, Any]]:
    measurable = [(sample, trace) for _, sample, trace in chunk if _measurable(trace)]
    values = iter(measure_batch(measurable) if measurable else [])
    return [{"id": name} | _row(next(values) if _measurable(trace) else None) for name, _, trace in chunk]


def _measurable(trace: Trace) -> bool:
    return trace.outcome != Outcome.ERROR and bool(trace.reasoning.strip() or trace.answer.strip())


def _row(values: Mapping[str, Any] | None) -> dict[str, Any]:
    if values is None:
        return {"student_state": NOT_APPLICABLE}
    if "reason" in values:
        return {"student_state": UNDECIDABLE, "student_reason": values["reason"]}
    if not all(values[name] is None or isfinite(values[name]) for name in _VALUES):
        # In a rule NaN is larger than every number, and no journal holds it.
        return {"student_state": UNDECIDABLE, "student_reason": "not_finite"}
    # Further decimals depend on the rows of the same batch.
    numbers = {name: values[name] if values[name] is None else round(values[name], _DECIMALS) for name in _VALUES}
    return {"student_state": OK, "student_tokens": values["tokens"]} | {
        f"student_{name}": value for name, value in numbers.items()
    }


def _key(sample: Sample, trace: Trace) -> str:
    """Digest of what a trace's values depend on."""
    content = [
        sample.question,
        [image.sha256 for image in sample.images],
        trace.reasoning,
        trace.answer,
        _measurable(trace),
    ]
    return hashlib.blake2b(canonical(content), digest_size=_KEY_DIGITS // 2).hexdigest()


def _group_by_sample(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The traces sample by sample, each sample's in the order of their ids."""
    before = ""
    for sample_id, group in groupby(items, key=lambda item: item[1].id):
        if sample_id <= before:
            raise DistillError(f"samples out of order: {sample_id} after {before}; this is a fault of the toolkit")
        before = sample_id
        yield sorted(group, key=lambda item: item[0])


def _sample_per_teacher(items: Iterable[Item], per_teacher: int) -> Iterator[list[Item]]:
    """The traces of each teacher with the smallest hashes, sample by sample."""
    heaps: dict[str, list[tuple[int, str, Sample, Trace]]] = {}
    for name, sample, trace in items:
        heap = heaps.setdefault(trace.teacher, [])
        # Negative, so that the largest hash is the first to go; ids are distinct, so samples are never compared.
        priority = -int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())
        if len(heap) < per_teacher:
            heapq.heappush(heap, (priority, name, sample, trace))
        elif priority > heap[0][0]:
            heapq.heapreplace(heap, (priority, name, sample, trace))
    sampled = [(name, sample, trace) for heap in heaps.values() for _, name, sample, trace in heap]
    return _group_by_sample(sorted(sampled, key=lambda item: (item[1].id, item[0])))


def _parts(samples: Iterable[list[Item]]) -> Iterator[list[Item]]:
    """Whole samples, enough of them to fill a part."""
    part: list[Item] = []
    for traces in samples:
        part += traces
        if len(part) >= PART_ROWS:
            yield part
            part = []
    if part:
        yield part


def _replace_parts(folder: Path, staging: Path, count: int) -> list[Path]:
    """Put the new files in their places and remove what is left of an older table."""
    paths = [run_signal_tables.part(folder, number) for number in range(count)]
    with storage_errors(folder):
        for path in paths:
            new = staging / path.name
            if new.is_file():
                note_digest(new)
                new.replace(path)
                digest_note(new).replace(digest_note(path))
        for path in [*staging.iterdir(), *(set(folder.glob("*.parquet")) - set(paths))]:
            path.unlink(missing_ok=True)
            digest_note(path).unlink(missing_ok=True)
        staging.rmdir()
    return paths
