"""The files of signals of a run in a store, made by all agents.

    filter/tables/<fingerprint>/*   attempts and commits: for each range of samples the digest of its file
    run/filter/files/<sha256>       the files, which are those of a run in a folder

The agent that decides reads finished files; it puts no rows in order.
"""

import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from distill.artifacts.files import Output, describe
from distill.artifacts.layout import part_path
from distill.artifacts.manifest import canonical, fingerprint
from distill.machine.child_process import available_cores
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, Unit, committed_units, read_file
from distill.units.stored_run import finished_commit
from distill.units.stored_stage import finished_place, pull_file
from distill.units.unit_queue import UnitQueue, remove_all_leftovers
from filters.apply import corpus_scheme
from filters.signal_units import SignalUnits
from filters.tables import measure
from filters.tables.trace_index import partition_count

TABLE_UNITS = "filter/tables"
"""Units of all filters are below it, by the fingerprint of what their files depend on."""
_TABLE = "table.json"
_LOOK_S = 0.5
_PULLED_AT_ONCE = 4
"""Files that are written at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTables:
    """The files of signals, as one agent works on them."""

    signals: SignalUnits

    @property
    def store(self) -> ObjectStore:
        return self.signals.store

    @property
    def work(self) -> str:
        return f"{TABLE_UNITS}/{fingerprint({**self.signals.fields, 'partitions': self.partitions})[:16]}"

    @property
    def partitions(self) -> int:
        return partition_count(self.signals.planned, self.signals.recipe.filter.partition_rows)

    @property
    def units(self) -> list[Unit]:
        work = self.work
        return [Unit(round=0, partition=f"{number:05d}", work=work) for number in range(self.partitions)]

    def write(self, agent: AgentRecord) -> None:
        """Let this process write files until all are committed. Raises DistillError where units are set aside."""
        recipe, units = self.signals.recipe, self.units
        open_units = set(units).difference(committed_units(self.store, self.work))
        queue = UnitQueue(agent, open_units, work=self.work, retries=recipe.engine.retries)
        agent.live = lambda: {"units": queue.at_work}
        workers = recipe.filter.workers or available_cores()
        while not queue.ended:
            drawn: list[Unit] = []
            while len(drawn) < workers and (unit := queue.draw()) is not None:
                drawn.append(unit)
            if not drawn:
                time.sleep(_LOOK_S)
            # Rows are sorted and compressed outside the interpreter's lock.
            for unit in thread_map(self._commit, drawn, workers):
                queue.done(unit)
        queue.require_all()
        shutil.rmtree(self._folder, ignore_errors=True)

    def pull(self, folder: Path) -> tuple[dict[Path, Output], list[int]]:
        """Write all files to a new folder: their digests by path, in order, and those of what they are made from."""
        outputs: dict[Path, Output] = {}
        contents = []
        for path, output, content in thread_map(lambda unit: self._pull(unit, folder), self.units, _PULLED_AT_ONCE):
            outputs[path] = output
            contents.append(content)
        return outputs, contents

    def remove_leftovers(self) -> None:
        """Delete what killed agents have left."""
        commits = thread_map(lambda unit: (unit, finished_commit(self.store, unit)), self.units)
        remove_all_leftovers(self.store, dict(commits), self.work)

    @property
    def _folder(self) -> Path:
        return self.signals.traces.scratch / "tables"

    def _commit(self, unit: Unit) -> Unit:
        path = self._folder / f"{unit.partition}.parquet"
        output, content = self._make(unit, path)
        if not self._is_there(output):
            self.store.put(_key(output), path)
        path.unlink()
        attempt = Attempt(store=self.store, unit=unit)
        attempt.put_file(_TABLE, canonical({"output": asdict(output), "content": f"{content:032x}"}))
        attempt.commit({"traces": output.count or 0})
        return unit

    def _make(self, unit: Unit, path: Path) -> tuple[Output, int]:
        """Write the file of a range; its digest, and that of the traces and samples of its rows."""
        rows = self.signals.read_range(int(unit.partition), self.partitions)
        path.parent.mkdir(parents=True, exist_ok=True)
        scheme = corpus_scheme(self.signals.recipe)
        content = measure.write_measured(rows, path, self.signals.inputs.extractors, scheme)
        return describe(path, len(rows)), content

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
