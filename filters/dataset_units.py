"""The dataset of a filter in a store, which all of its agents write.

    filter/dataset/step.json                     what the agents do now: a round, and the names of its units
    filter/dataset/<result>/rows/<partition>     the selected traces of a partition, with file and place of each row
    filter/dataset/<result>/files/<file>         where the rows of a file are
    filter/dataset/<result>/sides/<file>         what was measured across partitions of the rows of a file
    filter/dataset/<result>/p/, commits/         attempts and commits of the units of both rounds
    run/filter/files/<sha256>                    the files of the dataset

The order of a dataset has nothing to do with the partitions of its run, so each row changes hands once. In the first
round an agent makes the rows of a partition from its traces and images, and puts them as one object, file by file. In
the second round an agent brings the rows of a file from all partitions into their order, and writes the file as a run
in a folder does. The agent that decides what is selected leads. One that takes over from it decides the same, and
finds the units that are committed. When the stage is finished, all objects but the files are deleted.

If agents have decided file by file (filters/decision_units.py), the first round begins before the leader reads
traces; signals that were measured across partitions are added to the rows in the second round.
"""

import heapq
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.artifacts.files import Output
from distill.artifacts.layout import dataset_file_rows
from distill.artifacts.manifest import canonical, fingerprint
from distill.data.images.image_files import SHARE
from distill.errors import DataError
from distill.local_paths import is_store_address
from distill.machine.child_process import available_cores
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.units.agent_record import CLAIMS, AgentRecord
from distill.units.commits import Attempt, Unit, append_piece, committed_units, read_piece
from distill.units.run_state import DATASET_STEP
from distill.units.stored_stage import finished_place
from distill.units.unit_queue import UnitQueue
from distill.word_tables import counted
from filters.dataset.writer import SCHEMA, Row, RowsTask, read_rows, row_groups, rows_task, write_files
from filters.decision_units import DECISION_UNITS, SelectedTraces
from filters.placed_rows import FILE, PLACE, add_signals, read_rows_of, rows_in_files, with_signals
from filters.signal_units import SignalUnits
from filters.tables.id_columns import ids_of
from filters.tables.trace_index import PlannedTraces
from filters.tables.workers import Workers
from filters.unit_traces import UnitTraces, from_bytes

FOLDER = "filter/dataset"
_PLACED = SCHEMA.append(pa.field(PLACE, pa.int64()))
ROWS, PIECES, FILES = "rows", "pieces.json", "files.json"
BY_PARTITION, BY_FILE = 0, 1
"""The two rounds."""
_LOOK_S = 0.5
_BATCH = 64
"""Rows of each partition in memory while a file is put in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What all agents do now."""

    work: str
    round: int
    names: Sequence[str]
    decided: bool = False
    """Whether the rows of a partition are named by those who decided file by file."""

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
        """Work on the units of the present step, if there is one, until all are committed."""
        if (step := self._present_step()) is not None:
            with Workers(self.traces.recipe.filter.workers or available_cores()) as workers:
                self.work(step, workers)
        time.sleep(_LOOK_S)

    def work(self, step: Step, workers: Workers) -> None:
        """Work on units of a step until all are committed, by this agent or another one.

        Raises DistillError where units are set aside.
        """
        open_units = set(step.units).difference(committed_units(self.store, step.work))
        queue = UnitQueue(self.agent, open_units, work=step.work, retries=self.traces.recipe.engine.retries)
        self.agent.live = lambda: {"units": queue.at_work}
        for drawn in queue.batches(workers.count if step.round == BY_FILE else 1):
            over = False
            try:
                if step.round == BY_FILE:
                    self._make_files(drawn, workers)
                else:
                    self._make_rows(drawn[0], step, workers)
            except FileNotFoundError:
                present = self._present_step()
                over = present is None or present.work != step.work  # another agent has finished the stage
                if not over:
                    raise
            for unit in drawn:
                queue.done(unit)
            if over:
                return

    def remove(self, but: str = "") -> None:
        """Delete all objects except the files of the dataset and the objects of a result."""
        store = self.store
        store.delete([DATASET_STEP])  # first: an agent that misses another object looks whether its step is over
        for folder in (FOLDER, f"{CLAIMS}/{FOLDER}"):
            store.delete(stored.key for stored in store.list_objects(folder) if not (but and f"{but}/" in stored.key))

    def _present_step(self) -> Step | None:
        try:
            return Step(**orjson.loads(self.store.read(DATASET_STEP)))
        except FileNotFoundError:
            return None

    def begin(self, fields: Mapping[str, Any], decided: Sequence[SelectedTraces]) -> "Begun | None":
        """Let all agents make the rows that they have selected file by file; None where there are none."""
        before = list(accumulate((each.rows for each in decided), initial=0))
        if not before[-1]:
            return None
        store, file_rows = self.store, dataset_file_rows(before[-1])
        keys = [(each.rows, each.key) for each in decided]
        work = f"{FOLDER}/{fingerprint({'fields': dict(fields), 'decided': keys})[:16]}"
        pieces: dict[str, list[list[Any]]] = {}
        for each, rows_before in zip(decided, before, strict=False):
            for partition, piece in each.pieces.items():
                pieces.setdefault(partition, []).append([each.key, piece, rows_before])
        self.remove(but=work)
        listed = {name: canonical({"file_rows": file_rows, "pieces": own}) for name, own in sorted(pieces.items())}
        list(thread_map(lambda item: store.put(rows_key(work, item[0]), item[1]), listed.items()))
        begun = Begun(work=work, partitions=list(listed), rows=before[-1], file_rows=file_rows)
        store.put(DATASET_STEP, canonical(asdict(begun.step)))
        return begun

    def _make_rows(self, unit: Unit, step: Step, workers: Workers) -> None:
        """The rows of a partition, grouped by file."""
        data = self.store.read(rows_key(unit.work, unit.partition))
        measured = self.signals.read(unit.partition)
        rows = self._decided_rows(data, measured) if step.decided else pq.read_table(pa.BufferReader(data))
        table = with_signals(rows, measured)
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
            with (folder / ROWS).open("wb") as rows:
                for number, (path, left_out) in zip(numbers, workers.map(_write_piece, tasks), strict=True):
                    pieces[str(number)] = append_piece(rows, path.read_bytes())
                    path.unlink()
                    unreadable |= left_out
            if not self.leads:
                _require_store_images(traces, unreadable)
            attempt.put_file(ROWS, folder / ROWS)
        attempt.put_file(PIECES, canonical({"pieces": pieces, "unreadable": unreadable}))
        attempt.commit({"rows": len(table)})

    def _decided_rows(self, data: bytes, measured: pa.Table) -> pa.Table:
        """Which of the measured traces of a partition are rows, and where, by what was decided file by file."""
        listed = orjson.loads(data)
        parts = (
            (from_bytes(read_piece(self.store, key, piece, f"delete {DECISION_UNITS}/ in the store")), before)
            for key, piece, before in listed["pieces"]
        )
        return rows_in_files(parts, ids_of(measured["id"]), listed["file_rows"])

    def _make_files(self, units: Sequence[Unit], workers: Workers) -> None:
        """The files of the dataset with these numbers."""
        folder = self.traces.scratch / "dataset"  # `files` of a scratch folder has what was fetched
        shutil.rmtree(folder, ignore_errors=True)
        tasks = ((folder / unit.partition, int(unit.partition), *self._pull_pieces(unit, folder)) for unit in units)
        for unit, files in zip(units, workers.map(_write_file, tasks), strict=True):
            attempt, place = Attempt(store=self.store, unit=unit), finished_place("filter")
            for name, output in files.items():
                self.store.put(place(name, output), folder / unit.partition / name)
            attempt.put_file(FILES, canonical(files))
            attempt.commit({"rows": sum(output.count or 0 for output in files.values())})
            shutil.rmtree(folder / unit.partition)

    def _pull_pieces(self, unit: Unit, folder: Path) -> tuple[list[Path], Path | None]:
        """The rows of a file, from each partition that has some, and what was measured of them across partitions."""
        listed = orjson.loads(self.store.read(file_key(unit.work, int(unit.partition))))
        pieces, side = listed["pieces"], None
        paths = [folder / unit.partition / f"{number}.parquet" for number in range(len(pieces))]
        (folder / unit.partition).mkdir(parents=True)

        def pull(piece: tuple[Path, Sequence[Any]]) -> None:
            path, (key, *place) = piece
            path.write_bytes(read_piece(self.store, key, place, f"delete {FOLDER}/ in the store"))

        list(thread_map(pull, zip(paths, pieces, strict=True)))
        if listed["side"]:
            side = folder / unit.partition / "side.parquet"
            side.write_bytes(self.store.read(side_key(unit.work, int(unit.partition))))
        return paths, side


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A dataset whose rows agents have begun to make before the leader has read any trace."""

    work: str
    partitions: Sequence[str]
    rows: int
    file_rows: int

    @property
    def step(self) -> Step:
        return Step(work=self.work, round=BY_PARTITION, names=self.partitions, decided=True)


def _require_store_images(traces: PlannedTraces, unreadable: Mapping[str, str]) -> None:
    """Raise DataError for a question whose images are no objects of a store: other machines may have them."""
    for sample in traces.samples_of(unreadable).values():
        if any(not is_store_address(ref.path) for ref in sample.images):
            raise DataError(
                f"{sample.images[0].path}: {unreadable[sample.id]} on this machine, where the images of "
                f"{counted(len(unreadable), 'question')} of a partition cannot be read; other processes go on. "
                f"{SHARE}"
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


def _write_file(task: tuple[Path, int, Sequence[Path], Path | None]) -> dict[str, Output]:
    """Write a file of the dataset from its rows in the files of partitions."""
    folder, number, pieces, side = task
    placed = heapq.merge(*map(_read_placed, pieces), key=itemgetter(0))
    rows = (row for _, row in placed)
    return write_files(rows if side is None else map(add_signals, rows, read_rows_of(side)), folder, number)


def _read_placed(path: Path) -> Iterator[tuple[int, Row]]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH):
            for row in batch.to_pylist():
                yield row.pop(PLACE), row


def rows_key(work: str, partition: str) -> str:
    return f"{work}/rows/{partition}"


def side_key(work: str, number: int) -> str:
    return f"{work}/sides/{number:05d}.parquet"


def file_key(work: str, number: int) -> str:
    return f"{work}/files/{number:05d}.json"
