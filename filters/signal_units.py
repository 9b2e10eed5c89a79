"""The signals of a run in a store, partition by partition: measured and committed by all agents.

    filter/signals/<fingerprint>/*   attempts and commits, by what measures the signals

A partition of the run is a range of images. Its signals are in pieces by ranges of sample ids, because each file of
signals in a folder holds a range of samples; filters/signal_tables.py joins the pieces.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.files import atomic_path
from distill.artifacts.integrity import traces_digest
from distill.artifacts.layout import PLACES, PLAN, SAMPLE_PARTS, SIGNALS
from distill.artifacts.manifest import canonical, fingerprint
from distill.errors import require_rows
from distill.machine.child_process import available_cores
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.recipe.recipe import Recipe
from distill.types import Progress, ProgressCallback
from distill.units.agent_record import AgentRecord
from distill.units.commits import (
    Attempt,
    Commit,
    Unit,
    append_piece,
    committed_units,
    compress,
    decompress,
    read_file,
    read_piece,
)
from distill.units.run_state import SIGNAL_UNITS, traces_of
from distill.units.stored_run import collected_journals, finished_commit, generate_units, journals_of, pull_journals
from distill.units.unit_queue import UnitQueue
from filters.apply import FilterInputs, corpus_scheme
from filters.run_signals import question_duplicates
from filters.tables import measure
from filters.tables.id_columns import ids_of, split_rows
from filters.tables.journal_pieces import Maker
from filters.tables.trace_index import PlannedTraces, partition_count, partitions_of, read_lines
from filters.tables.unit_index import UnitIndex
from filters.tables.workers import Workers
from filters.unit_traces import UnitTraces, from_bytes, to_bytes

_ROWS, _PIECES, _MAKERS, _HASHES = "signals", "pieces.json", "makers.json", "image_hashes.jsonl"
_COPIES = "copies.jsonl.zst"
_FIRST_TRACES, _FIRST_SAMPLES = 16_384, 2_048
"""Traces of a run with the smallest ids, and traces of the samples with the smallest ids, about, that are copied.
Checks compare 2,000 selected traces."""
_FORMAT = 3
"""Raised when the objects of a measured partition change."""
_PIECE_ROWS = 10_000
"""Traces of the run for each range of pieces, at most: the recipe's default for the files, so that most of these are
one piece of each partition."""
PARTITION = "partition of the run"
_LOOKING = frozenset({"contamination", "ocr"})
"""Families of signals that look at images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalUnits:
    """The partitions of a run with their signals, as one process reads and measures them."""

    traces: UnitTraces
    inputs: FilterInputs
    _known: dict[Unit, tuple[Commit, dict[str, list[Any]]]] = field(default_factory=dict)
    """Commits with their pieces, which are read once."""

    @property
    def recipe(self) -> Recipe:
        return self.traces.recipe

    @property
    def store(self) -> ObjectStore:
        return self.traces.store

    @property
    def planned(self) -> int:
        """Traces of the run."""
        return self.inputs.generated.outputs[PLAN].count or 0

    @property
    def fields(self) -> dict[str, Any]:
        """What the signals depend on."""
        return {
            "format": _FORMAT,
            "by": measure.measured_by(self.inputs.extractors, corpus_scheme(self.recipe)),
            "traces": traces_digest(self.inputs.generated),
            "pictures": question_duplicates.identity(self.recipe.max_pixels) if self.have_hashes else None,
        }

    @property
    def have_hashes(self) -> bool:
        """Whether the images of all questions are compared."""
        return "question" in self.recipe.filter.signals

    @property
    def units(self) -> list[Unit]:
        work = f"{SIGNAL_UNITS}/{fingerprint(self.fields)[:16]}"
        return [Unit(round=0, partition=name, work=work) for name in sorted(self.traces.plan["partitions"])]

    def measure(self, agent: AgentRecord, on_progress: ProgressCallback) -> None:
        """Let this process measure until the signals of every partition are committed."""
        plan, units, started = self.traces.plan, self.units, time.monotonic()
        work = units[0].work if units else SIGNAL_UNITS
        done, own = set(committed_units(self.store, work)), 0

        def tell(unit: Unit) -> None:
            done.add(unit)
            count = traces_of(plan, generate_units(plan, (each.partition for each in done)))
            on_progress(Progress(stage="filter: signals", done=count, total=plan["traces"], unit="traces"))

        queue = UnitQueue(agent, set(units) - done, tell, work, retries=self.recipe.engine.retries)
        agent.live = lambda: {"traces": own, "seconds": time.monotonic() - started, "units": queue.at_work}
        with Workers(self.recipe.filter.workers or available_cores()) as workers:
            for (unit,) in queue.batches():
                own += self._measure_unit(Attempt(store=self.store, unit=unit), workers)
                queue.done(unit)
                tell(unit)

    def _measure_unit(self, attempt: Attempt, workers: Workers) -> int:
        """Measure the traces of a partition, and commit. Returns their number."""
        recipe, extractors = self.recipe, self.inputs.extractors
        images = self.have_hashes or bool(_LOOKING & {extractor.name for extractor in extractors})
        cores = recipe.filter.workers or available_cores()
        with self.traces.opened(attempt.unit.partition, images=images, workers=workers) as (folder, index):
            files = measure.measure(
                index,
                extractors,
                folder / SIGNALS,
                scheme=corpus_scheme(recipe),
                workers=workers,
                readers=cores,
            )
            if self.have_hashes:
                partitions = range(len(index.digests))
                samples, hashes = folder / SAMPLE_PARTS, folder / "question"
                limits = {"max_pixels": recipe.max_pixels, "workers": cores}
                attempt.put_file(_HASHES, question_duplicates.hash_images(samples, partitions, hashes, **limits))
            rows = pa.concat_tables([pq.read_table(file).replace_schema_metadata(None) for file in files])
            attempt.put_file(PLACES, folder / SAMPLE_PARTS / PLACES)
            attempt.put_file(_MAKERS, canonical([[asdict(maker), count] for maker, count in index.makers.items()]))
            copied = np.flatnonzero(self._is_copied(index) & (index.journal >= 0))
            lines = b"".join(read_lines(index.journals, index.locations(copied)))
            attempt.put_file(_COPIES, compress(lines), count=len(copied))
        self._put(attempt, rows)
        attempt.commit({"traces": len(rows)})
        return len(rows)

    def _put(self, attempt: Attempt, rows: pa.Table) -> None:
        """Write the signals of a partition in pieces."""
        file, pieces = BytesIO(), dict[str, list[Any]]()
        for number, own in split_rows(rows, partitions_of(ids_of(rows["sample_id"]), self._piece_count)):
            pieces[str(number)] = append_piece(file, to_bytes(own))
        attempt.put_file(_ROWS, file.getvalue(), count=len(rows))
        attempt.put_file(_PIECES, canonical(pieces))

    def read(self, partition: str) -> pa.Table:
        """The signals of a partition."""
        unit = next(unit for unit in self.units if unit.partition == partition)
        data, pieces = memoryview(self._read_file(unit, _ROWS)), orjson.loads(self._read_file(unit, _PIECES))
        return pa.concat_tables([from_bytes(data[start:end]) for start, end, _ in pieces.values()])

    def read_range(self, number: int, ranges: int) -> pa.Table:
        """The signals of one of so many ranges of samples; the ranges are equal, and their number a power of two.

        The column PARTITION has the number of the unit of each trace.
        """
        pieces = self._piece_count
        first = number * pieces // ranges
        wanted = range(first, max(first + 1, (number + 1) * pieces // ranges))
        tables = [_numbered(measure.file_columns(self.inputs.extractors).empty_table(), 0)]
        for unit_number, read in enumerate(thread_map(lambda unit: self._read_pieces(unit, wanted), self.units)):
            tables += [_numbered(table, unit_number) for table in read]
        rows = pa.concat_tables(tables)
        if pieces < ranges:
            rows = rows.filter(pa.array(partitions_of(ids_of(rows["sample_id"]), ranges) == number))
        return rows

    def _read_pieces(self, unit: Unit, numbers: Iterable[int]) -> list[pa.Table]:
        """Of the signals of a partition, the pieces with these numbers."""
        if unit not in self._known:
            commit = finished_commit(self.store, unit)
            self._known[unit] = commit, orjson.loads(read_file(self.store, unit, commit, _PIECES))
        commit, pieces = self._known[unit]
        key, remedy = f"{unit.folder}/{commit.attempt}/{_ROWS}", f"delete {unit.commit_key}"
        named = (pieces[str(number)] for number in numbers if str(number) in pieces)
        return [from_bytes(read_piece(self.store, key, piece, remedy)) for piece in named]

    def read_hashes(self) -> bytes:
        """The hashes of the images of all questions, as lines."""
        return b"".join(thread_map(lambda unit: self._read_file(unit, _HASHES), self.units))

    def bring_copies(self, index: PlannedTraces, numbers: NDArray[np.int32], path: Path) -> None:
        """Let an index read the traces that every partition has copied from a file; `numbers`: their partitions.

        Pages and checks show the traces with the smallest ids, and the traces of the samples with the smallest ids.
        """
        is_copied = self._is_copied(index)
        rows, starts, size = list[NDArray[np.int64]](), list[NDArray[np.int64]](), 0
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            copies = thread_map(lambda unit: decompress(self._read_file(unit, _COPIES)), self.units)
            for number, lines in enumerate(copies):
                rows.append(np.flatnonzero(is_copied & (numbers == number)))
                ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")) + 1
                problem = f"{_COPIES} of {self.units[number].partition}: {len(ends):,} traces of {len(rows[-1]):,}"
                require_rows(len(ends) == len(rows[-1]), problem)
                starts.append(size + np.concatenate([[0], ends])[: len(ends)])
                size += file.write(lines)
        found = np.concatenate(rows)
        order = np.argsort(found)
        index.copies, index.copied, index.copy_start = path, found[order], np.concatenate(starts)[order]

    def bring_journals(self, generate: Path, paths: Iterable[Path]) -> None:
        """Fetch journals that are not on this machine, below the folder `generate` of a run directory."""
        missing = {path.relative_to(generate).as_posix() for path in paths if not path.exists()}
        journals = (journal for each in journals_of(self.traces.plan).values() for journal in each)
        pull_journals(self.store, (journal for journal in journals if journal.name in missing), generate.parent)

    @property
    def journals(self) -> list[str]:
        """The journals of the run, by their names in the folder of the whole run."""
        return [journal.name for each in journals_of(self.traces.plan).values() for journal in each]

    def _is_copied(self, index: PlannedTraces) -> NDArray[np.bool_]:
        """Which planned traces each partition copies, so that no journal is read for them."""
        return (index.ids < self._border(_FIRST_TRACES)) | (index.sample_ids < self._border(_FIRST_SAMPLES))

    def _border(self, count: int) -> np.bytes_:
        """An id below which about so many traces of the run are; ids are hexadecimal digests."""
        return np.bytes_(f"{(count << 32) // self.planned:08x}" if count < self.planned else "g")

    def read_indexes(self) -> Iterator[UnitIndex]:
        """The journals of each partition, as the agent that measured it read them."""
        journals = collected_journals(self.traces.plan)
        return thread_map(lambda unit: self._read_index(unit, journals[unit.partition]), self.units)

    def _read_index(self, unit: Unit, journals: Mapping[str, str]) -> UnitIndex:
        makers = orjson.loads(self._read_file(unit, _MAKERS))
        return UnitIndex(
            places=pq.read_table(pa.BufferReader(self._read_file(unit, PLACES))),
            journals=journals,
            makers={Maker(**maker): count for maker, count in makers},
        )

    def _read_file(self, unit: Unit, name: str) -> bytes:
        return read_file(self.store, unit, finished_commit(self.store, unit), name)

    @property
    def _piece_count(self) -> int:
        return partition_count(self.planned, _PIECE_ROWS)


def _numbered(rows: pa.Table, number: int) -> pa.Table:
    return rows.append_column(PARTITION, pa.array(np.full(len(rows), number, np.int32)))
