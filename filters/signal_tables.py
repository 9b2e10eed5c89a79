"""The files of signals of a run in a store, made by all agents.

    filter/tables/<fingerprint>/*   attempts and commits: for each range of samples the digest of its file, and the
                                    keys of its texts (filters/key_units.py)
    run/filter/files/<sha256>       the files, which are those of a run in a folder

The agent that decides reads finished files; it puts no rows in order.
"""

import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from distill.artifacts.files import Output, describe
from distill.artifacts.layout import part_path
from distill.artifacts.manifest import canonical, fingerprint
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, Commit, Unit, append_piece, read_file, read_piece
from distill.units.stored_run import finished_commit
from distill.units.stored_stage import finished_place, pull_file
from filters.apply import corpus_scheme
from filters.run_signals.shared_keys import MOST_BUCKETS, keys_by_bucket
from filters.signal_units import PARTITION, SignalUnits
from filters.tables import measure
from filters.tables.trace_index import partition_count
from filters.unit_rounds import work_together

TABLE_UNITS = "filter/tables"
"""Units of all filters are below it, by the fingerprint of what their files depend on."""
_TABLE, _KEYS, _PARTITIONS = "table.json", "keys", "partitions"
_FORMAT = 2
"""Raised when the objects of a range change."""
_PULLED_AT_ONCE = 4
"""Files that are written at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTables:
    """The files of signals, as one agent works on them."""

    signals: SignalUnits
    _known: dict[Unit, tuple[Commit, list[list[Any]]]] = field(default_factory=dict)
    """Commits with their pieces of keys, which are read once."""

    @property
    def store(self) -> ObjectStore:
        return self.signals.store

    @property
    def work(self) -> str:
        fields = {**self.signals.fields, "partitions": self.partitions, "tables": _FORMAT}
        return f"{TABLE_UNITS}/{fingerprint(fields)[:16]}"

    @property
    def partitions(self) -> int:
        return partition_count(self.signals.planned, self.signals.recipe.filter.partition_rows)

    @property
    def units(self) -> list[Unit]:
        work = self.work
        return [Unit(round=0, partition=f"{number:05d}", work=work) for number in range(self.partitions)]

    @property
    def buckets(self) -> int:
        """Of the keys of texts; 0 where near duplicates are not looked for."""
        return min(self.partitions, MOST_BUCKETS) if corpus_scheme(self.signals.recipe) is not None else 0

    def write(self, agent: AgentRecord) -> None:
        """Let this process write files until all are committed. Raises DistillError where units are set aside."""
        # Rows are sorted and compressed outside the interpreter's lock.
        work_together(agent, self.units, self._commit, self.signals.recipe)
        shutil.rmtree(self._folder, ignore_errors=True)

    def read_keys(self, bucket: int) -> Iterator[bytes]:
        """The keys of a bucket of the texts of each file, in the order of the files."""

        def read(unit: Unit) -> bytes:
            if unit not in self._known:
                commit = finished_commit(self.store, unit)
                self._known[unit] = commit, orjson.loads(read_file(self.store, unit, commit, _TABLE))["keys"]
            commit, pieces = self._known[unit]
            key, remedy = f"{unit.folder}/{commit.attempt}/{_KEYS}", f"delete {unit.commit_key}"
            return read_piece(self.store, key, pieces[bucket], remedy)

        return thread_map(read, self.units)

    def pull(self, folder: Path) -> tuple[dict[Path, Output], list[int]]:
        """Write all files to a new folder; returns their digests by path, in order, and the digests of their
        inputs."""
        outputs: dict[Path, Output] = {}
        contents = []
        for path, output, content in thread_map(lambda unit: self._pull(unit, folder), self.units, _PULLED_AT_ONCE):
            outputs[path] = output
            contents.append(content)
        return outputs, contents

    def pull_file(self, name: str, folder: Path) -> tuple[Path, Output, int]:
        """Write the file of a range below a folder; returns its path, its digest, and the digest of its inputs."""
        return self._pull(self._unit(name), folder)

    def read_partitions(self, name: str) -> NDArray[np.int32]:
        """The number of the partition of the run of each row of the file of a range."""
        unit = self._unit(name)
        return np.frombuffer(read_file(self.store, unit, finished_commit(self.store, unit), _PARTITIONS), np.int32)

    def _unit(self, name: str) -> Unit:
        return Unit(round=0, partition=name, work=self.work)

    @property
    def _folder(self) -> Path:
        return self.signals.traces.scratch / "tables"

    def _commit(self, unit: Unit) -> None:
        path = self._folder / f"{unit.partition}.parquet"
        rows, output, content = self._make(unit, path)
        partitions = rows[PARTITION].to_numpy().astype(np.int32)
        if not self._is_there(output):
            self.store.put(_key(output), path)
        path.unlink()
        attempt = Attempt(store=self.store, unit=unit)
        file, scheme = BytesIO(), corpus_scheme(self.signals.recipe)
        parts = keys_by_bucket(rows, scheme, self.buckets) if scheme is not None else ()
        keys = [append_piece(file, part) for part in parts]
        attempt.put_file(_KEYS, file.getvalue())
        attempt.put_file(_PARTITIONS, partitions.tobytes())
        attempt.put_file(_TABLE, canonical({"output": asdict(output), "content": f"{content:032x}", "keys": keys}))
        attempt.commit({"traces": len(rows)})

    def _make(self, unit: Unit, path: Path) -> tuple[pa.Table, Output, int]:
        """Write the file of a range; returns its rows, its digest, and the digest of the traces and samples of its
        rows."""
        rows = self.signals.read_range(int(unit.partition), self.partitions).sort_by("id")
        path.parent.mkdir(parents=True, exist_ok=True)
        scheme = corpus_scheme(self.signals.recipe)
        signals = rows.drop_columns([PARTITION])
        content = measure.write_measured(signals, path, self.signals.inputs.extractors, scheme)
        return rows, describe(path, len(rows)), content

    def _pull(self, unit: Unit, folder: Path) -> tuple[Path, Output, int]:
        table = orjson.loads(read_file(self.store, unit, finished_commit(self.store, unit), _TABLE))
        path, output = part_path(folder, int(unit.partition), ".parquet"), Output(**table["output"])
        if self._is_there(output):
            pull_file(self.store, "filter", output, path)
        else:  # a person has deleted the result, so that it is made again
            self._make(unit, path)
        return path, output, int(table["content"], 16)

    def _is_there(self, output: Output) -> bool:
        try:
            return self.store.look_up(_key(output)).bytes == output.bytes
        except FileNotFoundError:
            return False


def _key(output: Output) -> str:
    return finished_place("filter")("", output)
