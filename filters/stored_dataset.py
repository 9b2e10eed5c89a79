"""The dataset of a filter in a store, which all of its agents write.

    filter/dataset/step.json                     what the agents do now: a round, and the names of its units
    filter/dataset/<result>/rows/<partition>     the selected traces of a partition, with file and place of each row
    filter/dataset/<result>/files/<file>         where the rows of a file are
    filter/dataset/<result>/p/, commits/         attempts and commits of the units of both rounds
    run/filter/files/<sha256>                    the files of the dataset

The order of a dataset has nothing to do with the partitions of its run, so each row changes hands once. In the first
round an agent makes the rows of a partition from its traces and images, and puts them as one object, file by file. In
the second round an agent brings the rows of a file from all partitions into their order, and writes the file as a run
in a folder does. The agent that decides what is selected leads. One that takes over from it decides the same, and
finds the units that are committed. When the stage is finished, all objects but the files are deleted.
"""

import heapq
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.files import Output, file_sha256
from distill.artifacts.manifest import canonical, fingerprint
from distill.errors import DataError
from distill.local_paths import is_store_address
from distill.machine.child_process import available_cores
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.types import Sample
from distill.units import image_shards
from distill.units.agent_record import CLAIMS, AgentRecord
from distill.units.commits import Attempt, Unit, append_piece, committed_units, read_file, read_piece
from distill.units.run_state import DATASET_STEP
from distill.units.stored_run import finished_commit
from distill.units.stored_stage import finished_place, parse_files, pull_file
from distill.units.unit_queue import UnitQueue
from filters.dataset.writer import (
    SCHEMA,
    DatasetTask,
    Row,
    RowsTask,
    Written,
    file_name,
    read_rows,
    row_groups,
    rows_task,
    write_files,
)
from filters.placed_rows import FILE, PLACE, TracePartitions, rows_by_partition, with_signals
from filters.signal_units import SignalUnits
from filters.tables.trace_index import PlannedTraces
from filters.tables.workers import Workers
from filters.unit_traces import UnitTraces

_FOLDER = "filter/dataset"
_PLACED = SCHEMA.append(pa.field(PLACE, pa.int64()))
_ROWS, _PIECES, _FILES = "rows", "pieces.json", "files.json"
_BY_PARTITION, _BY_FILE = 0, 1
"""The two rounds."""
_LOOK_S = 0.5
_BATCH = 64
"""Rows of each partition in memory while a file is put in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What all agents do now."""

    work: str
    round: int
    names: Sequence[str]

    @property
    def units(self) -> list[Unit]:
        return [Unit(round=self.round, partition=name, work=self.work) for name in self.names]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetUnits:
    """The units of a dataset, as one agent works on them."""

    agent: AgentRecord
    signals: SignalUnits
    leads: bool = False

    @property
    def traces(self) -> UnitTraces:
        return self.signals.traces

    @property
    def store(self) -> ObjectStore:
        return self.agent.store

    def help(self) -> None:
        """Work on the units of the present step, if there is one, until none of them is open."""
        try:
            step = _Step(**orjson.loads(self.store.read(DATASET_STEP)))
        except FileNotFoundError:
            pass
        else:
            with Workers(self.traces.recipe.filter.workers or available_cores()) as workers:
                self.work(step, workers)
        time.sleep(_LOOK_S)

    def work(self, step: _Step, workers: Workers) -> None:
        """Work on units of a step until all are committed, by this agent or another one.

        Raises DistillError where units are set aside.
        """
        open_units = set(step.units).difference(committed_units(self.store, step.work))
        queue = UnitQueue(self.agent, open_units, work=step.work, retries=self.traces.recipe.engine.retries)
        self.agent.live = lambda: {"units": queue.at_work}
        while not queue.ended:
            drawn: list[Unit] = []
            most = workers.count if step.round == _BY_FILE else 1
            while len(drawn) < most and (unit := queue.draw()) is not None:
                drawn.append(unit)
            if not drawn:
                time.sleep(_LOOK_S)
                continue
            over = False
            try:
                if step.round == _BY_FILE:
                    self._make_files(drawn, workers)
                else:
                    self._make_rows(drawn[0], workers)
            except FileNotFoundError:
                over = self._is_over(step)  # another agent has finished the stage
                if not over:
                    raise
            for unit in drawn:
                queue.done(unit)
            if over:
                return
        queue.require_all()

    def remove(self, but: str = "") -> None:
        """Delete all objects but the files of the dataset, and but those of a result."""
        store = self.store
        store.delete([DATASET_STEP])  # first: an agent that misses another object looks whether its step is over
        for folder in (_FOLDER, f"{CLAIMS}/{_FOLDER}"):
            store.delete(stored.key for stored in store.list_objects(folder) if not (but and f"{but}/" in stored.key))

    def _is_over(self, step: _Step) -> bool:
        try:
            return _Step(**orjson.loads(self.store.read(DATASET_STEP))).work != step.work
        except FileNotFoundError:
            return True

    def _make_rows(self, unit: Unit, workers: Workers) -> None:
        """The rows of a partition, those of one file after those of another."""
        table = pq.read_table(pa.BufferReader(self.store.read(_rows_key(unit.work, unit.partition))))
        table = with_signals(table, self.signals.read(unit.partition))
        attempt = Attempt(store=self.store, unit=unit)
        with self.traces.opened(unit.partition, images=True, workers=workers) as (folder, traces):
            numbers = pc.unique(table[FILE]).to_pylist()
            parts = (table.filter(pc.equal(table[FILE], number)) for number in numbers)
            tasks = (
                (
                    folder / f"{number}.parquet",
                    part[PLACE],
                    rows_task(traces, self.traces.recipe, part.drop_columns([FILE, PLACE])),
                )
                for number, part in zip(numbers, parts, strict=True)
            )
            pieces: dict[str, list[Any]] = {}
            unreadable: dict[str, str] = {}
            with (folder / _ROWS).open("wb") as rows:
                for number, (path, left_out) in zip(numbers, workers.map(_write_piece, tasks), strict=True):
                    pieces[str(number)] = append_piece(rows, path.read_bytes())
                    path.unlink()
                    unreadable |= left_out
            if not self.leads:
                _require_store_images(traces, unreadable)
            attempt.put_file(_ROWS, folder / _ROWS)
        attempt.put_file(_PIECES, canonical({"pieces": pieces, "unreadable": unreadable}))
        attempt.commit({"rows": len(table)})

    def _make_files(self, units: Sequence[Unit], workers: Workers) -> None:
        """The files of the dataset with these numbers."""
        folder = self.traces.scratch / "dataset"  # `files` of a scratch folder has what was fetched
        shutil.rmtree(folder, ignore_errors=True)
        tasks = ((folder / unit.partition, int(unit.partition), self._pull_pieces(unit, folder)) for unit in units)
        for unit, files in zip(units, workers.map(_write_file, tasks), strict=True):
            attempt, place = Attempt(store=self.store, unit=unit), finished_place("filter")
            for name, output in files.items():
                self.store.put(place(name, output), folder / unit.partition / name)
            attempt.put_file(_FILES, canonical(files))
            attempt.commit({"rows": sum(output.count or 0 for output in files.values())})
            shutil.rmtree(folder / unit.partition)

    def _pull_pieces(self, unit: Unit, folder: Path) -> list[Path]:
        """The rows of a file, from each partition that has some."""
        pieces = orjson.loads(self.store.read(_file_key(unit.work, int(unit.partition))))
        paths = [folder / unit.partition / f"{number}.parquet" for number in range(len(pieces))]
        (folder / unit.partition).mkdir(parents=True)

        def pull(piece: tuple[Path, Sequence[Any]]) -> None:
            path, (key, *place) = piece
            path.write_bytes(read_piece(self.store, key, place, f"delete {_FOLDER}/ in the store"))

        for _ in thread_map(pull, zip(paths, pieces, strict=True)):
            pass
        return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """The dataset of a run in a store, for the agent that leads."""

    units: DatasetUnits
    fields: Mapping[str, Any]
    """What the result of the stage depends on."""
    partitions: TracePartitions

    def start(self, task: DatasetTask) -> "_Writing":
        """Let the other agents begin, and say how this one goes on."""
        folder, store = task.folder, self.units.store
        files, parts = rows_by_partition(task, self.units.traces.recipe.filter.select, self.partitions)
        folder.mkdir(parents=True, exist_ok=True)
        tables = folder.with_name(f".{folder.name}.rows")
        shutil.rmtree(tables, ignore_errors=True)
        tables.mkdir()
        paths: dict[str, Path] = {}
        for name, rows in parts:
            paths[name] = tables / f"{name}.parquet"
            pq.write_table(rows, paths[name], use_dictionary=False)
        digests = {name: file_sha256(path) for name, path in paths.items()}
        work = f"{_FOLDER}/{fingerprint({'fields': dict(self.fields), 'rows': digests})[:16]}"
        self.units.remove(but=work)
        for _ in thread_map(lambda item: store.put(_rows_key(work, item[0]), item[1]), paths.items()):
            pass
        shutil.rmtree(tables)
        writing = _Writing(
            units=self.units, work=work, partitions=list(paths), files=files, folder=folder, workers=task.workers
        )
        writing.begin(_BY_PARTITION)
        return writing

    def bring_images(self, samples: Sequence[Sample]) -> None:
        """Fetch the images of some samples to this machine."""
        for partition, shown in self.partitions.split(samples).items():
            image_shards.fetch_shards(
                self.units.store, self.units.traces.plan["attempt"], image_shards.stored_refs(shown).keys(), partition
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """A dataset that agents write."""

    units: DatasetUnits
    work: str
    partitions: Sequence[str]
    files: int
    folder: Path
    workers: Workers

    def begin(self, number: int) -> _Step:
        """Tell all agents that a round begins."""
        step = self._step(number)
        self.units.store.put(DATASET_STEP, canonical(asdict(step)))
        return step

    def _step(self, number: int) -> _Step:
        names = self.partitions if number == _BY_PARTITION else [f"{file:05d}" for file in range(self.files)]
        return _Step(work=self.work, round=number, names=names)

    def result(self) -> Written:
        """Work with the other agents until the dataset is there; its files are not brought to this machine."""
        store = self.units.store
        step = self._step(_BY_PARTITION)
        self.units.work(step, self.workers)
        unreadable: dict[str, str] = {}
        pieces: list[list[Any]] = [[] for _ in range(self.files)]
        for unit, (attempt, made) in zip(step.units, thread_map(self._read_pieces, step.units), strict=True):
            unreadable |= made["unreadable"]
            for number, piece in made["pieces"].items():
                pieces[int(number)].append([f"{unit.folder}/{attempt}/{_ROWS}", *piece])
        if unreadable:
            return Written(unreadable=unreadable)
        listed = ((_file_key(self.work, number), canonical(each)) for number, each in enumerate(pieces))
        for _ in thread_map(lambda item: store.put(*item), listed):
            pass
        step = self.begin(_BY_FILE)
        self.units.work(step, self.workers)
        made_files = [file for files in thread_map(self._read_files, step.units) for file in files]
        written = Written(files={file_name(number): file for number, file in enumerate(made_files)})
        if self.units.traces.recipe.filter.exports:
            for name, output in written.files.items():
                pull_file(store, "filter", output, self.folder / name)
        return written

    def _read_pieces(self, unit: Unit) -> tuple[str, dict[str, Any]]:
        commit = finished_commit(self.units.store, unit)
        return commit.attempt, orjson.loads(read_file(self.units.store, unit, commit, _PIECES))

    def _read_files(self, unit: Unit) -> list[Output]:
        store = self.units.store
        listed = parse_files(orjson.loads(read_file(store, unit, finished_commit(store, unit), _FILES)))
        return [listed[name] for name in sorted(listed)]


def _require_store_images(traces: PlannedTraces, unreadable: Mapping[str, str]) -> None:
    """Raise DataError for a question whose images are no objects of a store: other machines may have them."""
    for sample in traces.samples_of(unreadable).values():
        if any(not is_store_address(ref.path) for ref in sample.images):
            raise DataError(
                f"{sample.images[0].path}: {unreadable[sample.id]} on this machine, where the images of "
                f"{len(unreadable):,} questions of a partition cannot be read; other processes go on. Let all "
                "machines see the images under one path, or put them in a store (data.NAME.images_root)"
            )


def _write_piece(task: tuple[Path, pa.ChunkedArray, RowsTask]) -> tuple[Path, dict[str, str]]:
    """Write the rows of a partition for one file, and give the questions whose images cannot be read.

    Where there are some, the traces are selected again and the file is not used.
    """
    path, places, rows = task
    unreadable: dict[str, str] = {}
    start = 0
    with pq.ParquetWriter(path, _PLACED, compression="zstd") as writer:
        for group, _ in row_groups(read_rows(rows, unreadable)):
            table = pa.Table.from_pylist(group, schema=SCHEMA)
            writer.write_table(table.append_column(PLACE, places.slice(start, len(group))))
            start += len(group)
    return path, unreadable


def _write_file(task: tuple[Path, int, Sequence[Path]]) -> dict[str, Output]:
    """Write a file of the dataset from its rows in the files of partitions."""
    folder, number, pieces = task
    placed = heapq.merge(*map(_read_placed, pieces), key=itemgetter(0))
    return write_files((row for _, row in placed), folder, number)


def _read_placed(path: Path) -> Iterator[tuple[int, Row]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH):
            for row in batch.to_pylist():
                yield row.pop(PLACE), row


def _rows_key(work: str, partition: str) -> str:
    return f"{work}/rows/{partition}.parquet"


def _file_key(work: str, number: int) -> str:
    return f"{work}/files/{number:05d}.json"
