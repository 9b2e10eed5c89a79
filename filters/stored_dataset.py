"""The dataset of a run in a store, for the agent that leads those who write it (filters/dataset_units.py)."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import Output, file_sha256
from distill.artifacts.manifest import canonical, fingerprint
from distill.errors import require_rows
from distill.machine.thread_map import thread_map
from distill.types import Sample
from distill.units import image_shards
from distill.units.commits import Unit, read_file
from distill.units.run_state import DATASET_STEP
from distill.units.stored_run import finished_commit
from distill.units.stored_stage import parse_files, pull_file
from distill.word_tables import counted
from filters.dataset.writer import DatasetTask, Written, file_name
from filters.dataset_units import (
    BY_FILE,
    BY_PARTITION,
    FILES,
    FOLDER,
    PIECES,
    ROWS,
    Begun,
    DatasetUnits,
    Step,
    file_key,
    rows_key,
    side_key,
)
from filters.placed_rows import TracePartitions, rows_by_partition, side_columns_of_files
from filters.tables.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """The dataset of a run in a store, for the agent that leads."""

    units: DatasetUnits
    fields: Mapping[str, Any]
    """What the result of the stage depends on."""
    partitions: TracePartitions
    begun: Begun | None = None

    def start(self, task: DatasetTask) -> "_Writing":
        """Let the other agents begin, if they have not, and return the next work of this agent."""
        if self.begun is not None and not task.unreadable:
            return self._go_on(task, self.begun)
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
        work = f"{FOLDER}/{fingerprint({'fields': dict(self.fields), 'rows': digests})[:16]}"
        self.units.remove(but=work)
        list(thread_map(lambda item: store.put(rows_key(work, item[0]), item[1]), paths.items()))
        shutil.rmtree(tables)
        writing = _Writing(
            units=self.units, work=work, partitions=list(paths), files=files, folder=folder, workers=task.workers
        )
        writing.begin(BY_PARTITION)
        return writing

    def _go_on(self, task: DatasetTask, begun: Begun) -> "_Writing":
        """Give the agents what was measured across partitions, for their second round."""
        select, store = self.units.traces.recipe.filter.select, self.units.store
        task.folder.mkdir(parents=True, exist_ok=True)
        rows, tables = side_columns_of_files(task, select, self.partitions, begun.file_rows)
        problem = (
            f"{begun.work}: {counted(begun.rows, 'row was', 'rows were')} selected file by file, {rows:,} from all "
            "traces"
        )
        require_rows(rows == begun.rows, problem)
        sides = 0
        for sides, table in enumerate(tables, 1):
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            store.put(side_key(begun.work, sides - 1), bytes(sink.getvalue()))
        return _Writing(
            units=self.units,
            work=begun.work,
            partitions=begun.partitions,
            files=-(-rows // begun.file_rows),
            folder=task.folder,
            workers=task.workers,
            first_step=begun.step,
            have_sides=sides > 0,
        )

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
    first_step: Step | None = None
    """The step of the first round where it has begun."""
    have_sides: bool = False

    def begin(self, number: int) -> Step:
        """Announce to all agents that a round begins."""
        step = self._step(number)
        self.units.store.put(DATASET_STEP, canonical(asdict(step)))
        return step

    def _step(self, number: int) -> Step:
        names = self.partitions if number == BY_PARTITION else [f"{file:05d}" for file in range(self.files)]
        return Step(work=self.work, round=number, names=names)

    def result(self) -> Written:
        """Work with the other agents until the dataset is there; its files are not brought to this machine."""
        store = self.units.store
        step = self.first_step or self._step(BY_PARTITION)
        self.units.work(step, self.workers)
        unreadable: dict[str, str] = {}
        pieces: list[list[Any]] = [[] for _ in range(self.files)]
        for unit, (attempt, made) in zip(step.units, thread_map(self._read_pieces, step.units), strict=True):
            unreadable |= made["unreadable"]
            for number, piece in made["pieces"].items():
                pieces[int(number)].append([f"{unit.folder}/{attempt}/{ROWS}", *piece])
        if unreadable:
            return Written(unreadable=unreadable)
        listed = (
            (file_key(self.work, number), canonical({"pieces": each, "side": self.have_sides}))
            for number, each in enumerate(pieces)
        )
        list(thread_map(lambda item: store.put(*item), listed))
        step = self.begin(BY_FILE)
        self.units.work(step, self.workers)
        made_files = [file for files in thread_map(self._read_files, step.units) for file in files]
        written = Written(files={file_name(number): file for number, file in enumerate(made_files)})
        if self.units.traces.recipe.filter.exports:
            for name, output in written.files.items():
                pull_file(store, "filter", output, self.folder / name)
        return written

    def _read_pieces(self, unit: Unit) -> tuple[str, dict[str, Any]]:
        commit = finished_commit(self.units.store, unit)
        return commit.attempt, orjson.loads(read_file(self.units.store, unit, commit, PIECES))

    def _read_files(self, unit: Unit) -> list[Output]:
        store = self.units.store
        listed = parse_files(orjson.loads(read_file(store, unit, finished_commit(store, unit), FILES)))
        return [listed[name] for name in sorted(listed)]
