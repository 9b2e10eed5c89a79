"""An index of the traces in the generate stage's journals, and the functions that read them by it.

The journals are read once, in pieces that processes share; after that a partition reads only its own lines. Memory
holds about sixty bytes a trace, no texts. The first finished record of an id counts; an error counts only where the
id has no other record; ids that are not in the plan do not count. A partition is a range of sample ids, which are
hashes. So it holds whole samples, in any order of journals and plan. The samples are copied once, by partition.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.files import atomic_path, storage_errors
from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import record_at, seal
from distill.artifacts.layout import PLACES, PLAN, SAMPLES, part_path, part_paths
from distill.data.sample_files import from_record, read_samples, to_record
from distill.errors import DataError
from distill.types import Sample, Trace, Usage
from distill.word_tables import counted
from filters.tables.id_columns import Ids, heads_of, ids_of, order_of, text_array
from filters.tables.journal_pieces import Maker, content, pieces, read_piece
from filters.tables.workers import SERIAL, Workers

_BATCH = 4096
_HEAD = 8
"""Bytes of an id that are compared as a number."""
_OPEN_FILES = 64
"""Journals that are open at once: a run in a store has one for each unit, and a process may open 1,024 files."""
_SHARES = 16
"""Partitions of a run that `partition_rows` would not cut, if each has so many rows:"""
_LEAST_SHARED_ROWS = 1_000

Location = tuple[int, int]
"""Number of the file, and the byte at which the line starts."""
Item = TypeVar("Item")


@dataclass(slots=True, kw_only=True)
class PlannedTraces:
    """The planned traces in the order of their ids, each with the location of its record.

    `digests` has a number for each partition that changes exactly when its traces or samples do.
    """

    journals: list[Path]
    samples: Path
    """Folder for the asked samples of each partition; `copy_samples` writes them."""
    sample_file: Path
    """The samples of the run."""
    ids: Ids
    sample_ids: Ids
    partition: NDArray[np.int32]
    journal: NDArray[np.int32]
    """Number of the journal; -1 where the plan has a trace that no journal holds yet."""
    start: NDArray[np.int64]
    digests: list[int]
    asked: Ids = field(default_factory=lambda: np.empty(0, "S1"))
    """The samples of live traces, in the order of their ids."""
    asked_start: NDArray[np.int64] | None = None
    """Where the line of each starts in its partition's file."""
    makers: Counter[Maker] = field(default_factory=Counter)
    bring_images: Callable[[Sequence[Sample]], None] = lambda samples: None
    """Makes the images of some samples readable on this machine."""
    bring_journals: Callable[[Sequence[Path]], None] = lambda journals: None
    """Makes these journals readable on this machine."""
    copies: Path | None = None
    """A file on this machine with the records of some traces, too."""
    copied: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """These traces, in order."""
    copy_start: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Where the line of each starts there."""

    @property
    def count(self) -> int:
        return int((self.journal >= 0).sum())

    @property
    def planned(self) -> int:
        return len(self.ids)

    def rows(self, partition: int) -> NDArray[np.int64]:
        """The live traces of a partition."""
        return np.flatnonzero((self.partition == partition) & (self.journal >= 0))

    def locations(self, rows: NDArray[np.int64]) -> list[Location]:
        journal, start = self.journal[rows], self.start[rows]
        if self.copies is not None and len(self.copied):
            places = np.minimum(np.searchsorted(self.copied, rows), len(self.copied) - 1)
            is_copied = self.copied[places] == rows
            journal = np.where(is_copied, len(self.journals), journal)
            start = np.where(is_copied, self.copy_start[places], start)
        numbers = np.unique(journal).tolist()
        self.bring_journals([self.journals[number] for number in numbers if number < len(self.journals)])
        return list(zip(journal.tolist(), start.tolist(), strict=True))

    @property
    def files(self) -> list[Path]:
        """The files of `locations`, by their numbers."""
        return self.journals if self.copies is None else [*self.journals, self.copies]

    def ranges(self, traces: int) -> list[tuple[str, str]]:
        """Ranges of sample ids in order, the upper end not in them, that hold about so many traces each."""
        return list(pairwise(["", *_borders(partitions(self.planned, max(1, traces))), "\x7f"]))

    def rows_of(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The rows of these ids; all of them are planned."""
        rows: NDArray[np.int64] = np.searchsorted(self.ids, np.array(ids, self.ids.dtype))
        return rows

    def traces(self, ids: Sequence[str]) -> Iterator[Trace]:
        """The traces with these ids, in their order."""
        return read_traces(self.files, self.locations(self.rows_of(ids)))

    def items(self) -> Iterator[tuple[str, Sample, Trace]]:
        """Every live trace with its id and sample, in the order of samples, then traces; one partition in memory."""
        self.copy_samples()
        for partition in range(len(self.digests)):
            samples = {sample.id: sample for sample in read_partition(self.samples, partition)}
            rows = self.rows(partition)
            rows = rows[np.lexsort((self.ids[rows], self.sample_ids[rows]))]
            for next_trace in read_traces(self.files, self.locations(rows)):
                yield next_trace.id, samples[next_trace.sample_id], next_trace

    def samples_of(self, ids: Iterable[str]) -> dict[str, Sample]:
        """The samples with these ids, all of them asked."""
        if self.asked_start is None:
            return {sample.id: sample for sample in read_samples(self.sample_file, set(ids))}
        return read_samples_at(*self.sample_locations(ids))

    def sample_locations(self, ids: Iterable[str]) -> tuple[list[Path], list[Location]]:
        """The files of the samples, and where in them those with these ids are."""
        starts = self.copy_samples()
        rows = np.searchsorted(self.asked, np.unique(np.array(list(ids), self.asked.dtype)))
        partition_numbers = partitions_of(self.asked[rows], len(self.digests))
        files = [_part(self.samples, number) for number in range(len(self.digests))]
        return files, list(zip(partition_numbers.tolist(), starts[rows].tolist(), strict=True))

    def copy_samples(self) -> NDArray[np.int64]:
        """Write the asked samples to their folder, unless they are there. Returns where the line of each starts."""
        if self.asked_start is None:
            self.asked_start = _copy_samples(self, lambda partition, sample: None)
        return self.asked_start


def partitions(traces: int, partition_rows: int) -> int:
    """How many partitions: a power of two, so that a growing run seldom moves a sample to another one."""
    return 1 << max(0, -(-traces // partition_rows) - 1).bit_length()


def partition_count(traces: int, partition_rows: int) -> int:
    """Partitions of a run. A partition of few traces has several, too, so that processes can share it."""
    return max(partitions(traces, partition_rows), min(_SHARES, partitions(traces, _LEAST_SHARED_ROWS)))


def index(generate: Path, samples: Path, partition_rows: int, workers: Workers = SERIAL) -> PlannedTraces:
    """Read the plan, the journals and the samples of a finished generate stage; raises DataError.

    The samples that were asked are written to the folder `samples`, by partition.
    """
    planned, teachers = read_plan(generate, samples, partition_rows=partition_rows)
    ids = planned.ids
    errors: dict[int, tuple[int, Maker]] = {}
    for records in workers.map(read_piece, pieces(planned.journals)):
        rows, number = _rows_in(ids, records.ids), records.piece.number
        columns = (records.starts, records.digests, records.failed, records.makers)
        for row, start, digest, failed, maker in zip(rows, *columns, strict=True):
            # A trace of a teacher that was renamed lies in the folder of its former name, too.
            if row >= 0 and maker.teacher.encode() == teachers[row]:
                _add_record(planned, errors, row, (number, start), digest, maker, failed=failed)
    planned.makers = +planned.makers

    def add_digest(partition: int, sample: Sample) -> None:
        planned.digests[partition] = _add_digest(planned.digests[partition], content(sample))

    planned.asked_start = _copy_samples(planned, add_digest)
    write_places(planned, generate)
    return planned


def read_traces(journals: Sequence[Path], locations: Sequence[Location]) -> Iterator[Trace]:
    """The traces at these locations, in their order."""
    return map(trace, _records_at(journals, locations))


def read_lines(files: Sequence[Path], locations: Sequence[Location]) -> Iterator[bytes]:
    """The lines at these locations, in their order."""
    for _, file, start in _opened(files, locations):
        file.seek(start)
        yield file.readline()


def read_samples_at(files: Sequence[Path], locations: Sequence[Location]) -> dict[str, Sample]:
    """The samples at these locations, by their ids."""
    return {sample.id: sample for sample in map(from_record, _records_at(files, locations))}


def read_partition(samples: Path, partition: int) -> Iterator[Sample]:
    """The asked samples of a partition."""
    return map(from_record, read_jsonl(_part(samples, partition)))


def trace(record: dict[str, Any]) -> Trace:
    """A journal's record as a trace; what no filter looks at (log-probabilities) stays in the journal."""
    known = {key: record[key] for key in Trace.__slots__ if key in record and key != "logprobs"}
    # Another program may have written further counts.
    counts = {key: record["usage"][key] for key in Usage.__slots__ if key in record["usage"]}
    return Trace(**(known | {"usage": Usage(**counts)}))


_PLANNED = ("id", "sample_id", "teacher")


def read_plan(
    generate: Path, samples: Path, count: int | None = None, *, partition_rows: int = 1
) -> tuple[PlannedTraces, Ids]:
    """The planned traces in `count` partitions (no trace is marked as live yet), and the teacher of each."""
    ids, sample_ids, teachers = _plan(generate / PLAN)
    count = partition_count(len(ids), partition_rows) if count is None else count
    planned = PlannedTraces(
        # Quarantined rows and other notes lie beside the teachers' folders, not in them.
        journals=part_paths(generate, ".jsonl", below="*"),
        samples=samples,
        sample_file=generate / SAMPLES,
        ids=ids,
        sample_ids=sample_ids,
        partition=partitions_of(sample_ids, count),
        journal=np.full(len(ids), -1, np.int32),
        start=np.zeros(len(ids), np.int64),
        digests=[0] * count,
    )
    return planned, teachers


def _plan(path: Path) -> tuple[Ids, Ids, Ids]:
    """Trace ids in order, and the sample and the teacher of each."""
    parts: list[list[Ids]] = []
    try:
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=_BATCH, columns=list(_PLANNED)):
                parts.append([ids_of(batch[name]) for name in _PLANNED])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read: {error}; run the generate stage again") from None
    if not parts:
        return np.empty(0, "S1"), np.empty(0, "S1"), np.empty(0, "S1")
    ids, sample_ids, teachers = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = order_of(ids)
    return ids[order], sample_ids[order], teachers[order]


def partitions_of(sample_ids: Ids, count: int) -> NDArray[np.int32]:
    """The partition of each sample, of so many."""
    return np.searchsorted(np.array(_borders(count), "S8"), sample_ids, side="right").astype(np.int32)


def _borders(count: int) -> list[str]:
    """The borders that divide sample ids into `count` equal parts."""
    # Ids are hexadecimal digests, so equal ranges of their first eight digits hold equally many of them.
    return [f"{number * (1 << 32) // count:08x}" for number in range(1, count)]


def _rows_in(ids: Ids, requested_ids: Sequence[str]) -> list[int]:
    """The row of each id; -1 for an id that is not planned."""
    rows: list[int] = rows_of_ids(ids, np.array(requested_ids, np.bytes_)).tolist()
    return rows


def rows_of_ids(ids: Ids, requested_ids: Ids) -> NDArray[np.int64]:
    """The row of each id; -1 for an id that is not planned."""
    if not len(ids):
        return np.full(len(requested_ids), -1)
    if ids.itemsize != requested_ids.itemsize or ids.itemsize < _HEAD or len(requested_ids) * _HEAD < len(ids):
        rows = np.searchsorted(ids, requested_ids)
    else:  # numpy finds numbers ten times as fast as texts; a few ids begin alike
        rows = np.minimum(np.searchsorted(heads_of(ids), heads_of(requested_ids)), len(ids) - 1)
        other = np.flatnonzero(ids[rows] != requested_ids)
        rows[other] = np.searchsorted(ids, requested_ids[other])
    rows = np.minimum(rows, len(ids) - 1)
    return np.where(ids[rows] == requested_ids, rows, -1)


def _add_record(
    planned: PlannedTraces,
    errors: dict[int, tuple[int, Maker]],
    row: int,
    location: Location,
    digest: int,
    maker: Maker,
    *,
    failed: bool,
) -> None:
    """Store the location of a planned trace's record, unless a better record is known."""
    partition = int(planned.partition[row])
    if planned.journal[row] >= 0:
        if row not in errors or failed:
            return
        before, failed_maker = errors.pop(row)
        planned.digests[partition] = _add_digest(planned.digests[partition], -before)
        planned.makers[failed_maker] -= 1
    if failed:
        errors[row] = (digest, maker)
    planned.journal[row], planned.start[row] = location
    planned.makers[maker] += 1
    planned.digests[partition] = _add_digest(planned.digests[partition], digest)


def _copy_samples(planned: PlannedTraces, on_copied: Callable[[int, Sample], None]) -> NDArray[np.int64]:
    """Write the asked samples by partition; where their lines start. Raises DataError when one is not there."""
    planned.asked = asked_ids = np.unique(planned.sample_ids[planned.journal >= 0])
    path, starts = planned.sample_file, np.full(len(asked_ids), -1, np.int64)
    sizes = [0] * len(planned.digests)
    with storage_errors(planned.samples):
        for before in part_paths(planned.samples, ".jsonl"):
            before.unlink()
        planned.samples.mkdir(parents=True, exist_ok=True)
        for batch in _batches(read_samples(path)):
            lines: dict[int, list[bytes]] = {}
            rows = _rows_in(asked_ids, [sample.id for sample in batch])
            partition_numbers = (
                partitions_of(asked_ids[rows], len(planned.digests)).tolist() if len(asked_ids) else rows
            )
            for sample, row, partition in zip(batch, rows, partition_numbers, strict=True):
                if row >= 0:
                    starts[row] = sizes[partition]
                    on_copied(partition, sample)
                    lines.setdefault(partition, []).append(seal(to_record(sample)))
                    sizes[partition] += len(lines[partition][-1])
            for partition, records in lines.items():
                with _part(planned.samples, partition).open("ab") as file:
                    file.writelines(records)
    if missing := asked_ids[starts < 0].tolist():
        raise DataError(
            f"{path}: {counted(len(missing), 'sample')} of the traces are not there (first: {missing[0].decode()}); "
            "the generate stage's files do not belong together, run it again"
        )
    return starts


def write_places(planned: PlannedTraces, generate: Path) -> None:
    """Write beside the samples where the record of each trace is."""
    names = pa.array([journal.relative_to(generate).as_posix() for journal in planned.journals], pa.string())
    live_rows = np.flatnonzero(planned.journal >= 0)
    schema = pa.schema([("id", pa.string()), ("journal", pa.string()), ("start", pa.int64())])
    with (
        atomic_path(planned.samples / PLACES) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        for rows in (live_rows[start : start + _BATCH] for start in range(0, len(live_rows), _BATCH)):
            journals = names.take(pa.array(planned.journal[rows]))
            columns = [text_array(planned.ids[rows]), journals, pa.array(planned.start[rows])]
            writer.write_table(pa.table(columns, schema=schema))


def _records_at(paths: Sequence[Path], locations: Sequence[Location]) -> Iterator[dict[str, Any]]:
    """The records whose lines start at these locations, in their order."""
    for path, file, start in _opened(paths, locations):
        record = record_at(file, start)
        if record is None:
            raise DataError(
                f"{path}: the record that began at byte {start:,} can no longer be read; the file was changed while "
                "it was being read. Run the same command again"
            )
        yield record


def _opened(paths: Sequence[Path], locations: Sequence[Location]) -> Iterator[tuple[Path, IO[bytes], int]]:
    """Path, open file and byte of each location."""
    files: dict[int, IO[bytes]] = {}
    try:
        for number, start in locations:
            if number not in files:
                if len(files) == _OPEN_FILES:
                    files.pop(next(iter(files))).close()
                files[number] = paths[number].open("rb")
            yield paths[number], files[number], start
    finally:
        for file in files.values():
            file.close()


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    return iter(lambda: list(islice(iterator, _BATCH)), [])


def _add_digest(digest: int, number: int) -> int:
    return (digest + number) % (1 << 128)


def _part(samples: Path, partition: int) -> Path:
    return part_path(samples, partition, ".jsonl")
