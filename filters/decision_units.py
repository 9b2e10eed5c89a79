"""What a policy selects of each file of signals of a run in a store, decided by all agents.

    filter/decisions/<fingerprint>/*   attempts and commits: the decisions on each file, and its selected traces by
                                       partitions of the run

A file has whole questions. So an agent can decide on it alone where no rule reads what is measured across files, and
no limit holds for the whole dataset. The rows of the dataset are in the order of the files, so their positions follow
from the numbers of selected traces of all files. So agents begin to write rows before one agent has read all traces.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.layout import DECISIONS
from distill.artifacts.manifest import canonical, fingerprint
from distill.errors import require_rows
from distill.machine.thread_map import thread_map
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import Select
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, Unit, append_piece, read_file
from distill.units.stored_run import finished_commit, write_object
from distill.word_tables import counted
from filters.decisions.decide import decide, merge, mixed
from filters.decisions.rules import Condition
from filters.placed_rows import ID, PLACE
from filters.signal_tables import SignalTables
from filters.signals import registry
from filters.signals.schema import SIDE
from filters.tables.id_columns import ids_of, order_of, split_rows
from filters.tables.signal_database import Tables
from filters.unit_rounds import work_together
from filters.unit_traces import to_bytes

DECISION_UNITS = "filter/decisions"
"""Units of all filters are below it, by the fingerprint of what their decisions depend on."""
_SELECTED, _PIECES = "selected", "pieces.json"

_FORMAT = 2
"""Raised when the objects of a file change."""


class SelectedTraces(NamedTuple):
    """The selected traces of a file of signals: an object with a piece for each partition that has some."""

    rows: int
    key: str
    """The object has the ids of the traces and their places among the selected traces of the file."""
    pieces: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionUnits:
    """The files of signals, as one agent decides on their traces."""

    tables: SignalTables
    rules: Sequence[Condition]

    @property
    def units(self) -> list[Unit]:
        """None where the agent that decides needs all traces."""
        if not decides_by_file(self.tables.signals.recipe, self.rules):
            return []
        inputs = dict(self.tables.signals.inputs.fields)
        fields = {"tables": self.tables.work, "inputs": inputs, "format": _FORMAT}
        work = f"{DECISION_UNITS}/{fingerprint(fields)[:16]}"
        return [Unit(round=0, partition=unit.partition, work=work) for unit in self.tables.units]

    def decide(self, agent: AgentRecord) -> None:
        """Let this process decide on files until all are committed. Raises RecipeError for a faulty rule."""
        work_together(agent, self.units, self._commit, self.tables.signals.recipe)
        shutil.rmtree(self._folder, ignore_errors=True)

    def read(self) -> list[SelectedTraces]:
        """What is selected of each file, in the order of the files; nothing where no file was decided on alone."""
        return list(thread_map(self._read, self.units))

    def write_decisions(self, path: Path) -> int:
        """Write the decision table of all traces; returns its rows."""
        folder = self._folder
        shutil.rmtree(folder, ignore_errors=True)
        rows = merge(thread_map(lambda unit: self._pull_decisions(unit, folder), self.units), path)
        shutil.rmtree(folder)
        return rows

    @property
    def _folder(self) -> Path:
        return self.tables.signals.traces.scratch / "decided"

    def _commit(self, unit: Unit) -> None:
        folder = self._folder / unit.partition
        shutil.rmtree(folder, ignore_errors=True)  # of an agent that was killed
        rows, partitions = self._select(unit, folder)
        names = [each.partition for each in self.tables.signals.units]
        attempt, file = Attempt(store=self.tables.store, unit=unit), BytesIO()
        pieces = {names[number]: append_piece(file, to_bytes(own)) for number, own in split_rows(rows, partitions)}
        attempt.put_file(DECISIONS, folder / DECISIONS)
        attempt.put_file(_SELECTED, file.getvalue(), count=len(rows))
        attempt.put_file(_PIECES, canonical({"rows": len(rows), "pieces": pieces}))
        attempt.commit({"rows": len(rows)})
        shutil.rmtree(folder)

    def _select(self, unit: Unit, folder: Path) -> tuple[pa.Table, NDArray[np.int32]]:
        """The selected traces of a file in the order of samples, then of traces, and the partition of each."""
        recipe = self.tables.signals.recipe
        path, *_ = self.tables.pull_file(unit.partition, folder)
        decided = folder / DECISIONS
        tables = Tables(signals=(path,), columns=registry.columns(recipe))
        decide(self.rules, recipe.filter.select, tables, decided, seed=recipe.seed, threads=1)
        table = pq.read_table(path, columns=["id", "sample_id"])  # like the decisions in the order of the ids
        selected = pq.read_table(decided, columns=["id", "selected"])
        is_whole = selected["id"].equals(table["id"])
        require_rows(
            is_whole,
            f"signals of {unit.partition}: {counted(len(selected), 'decision')} for {counted(len(table), 'trace')}",
        )
        rows = np.flatnonzero(selected["selected"].to_numpy())
        rows = rows[order_of(ids_of(table["sample_id"])[rows])]
        chosen = pa.table({ID: table["id"].take(pa.array(rows)), PLACE: pa.array(np.arange(len(rows)))})
        return chosen, self.tables.read_partitions(unit.partition)[rows]

    def _pull_decisions(self, unit: Unit, folder: Path) -> Path:
        path = folder / f"{unit.partition}.parquet"
        write_object(path, read_file(self.tables.store, unit, finished_commit(self.tables.store, unit), DECISIONS))
        return path

    def _read(self, unit: Unit) -> SelectedTraces:
        commit = finished_commit(self.tables.store, unit)
        made = orjson.loads(read_file(self.tables.store, unit, commit, _PIECES))
        return SelectedTraces(made["rows"], f"{unit.folder}/{commit.attempt}/{_SELECTED}", made["pieces"])


def decides_by_file(recipe: Recipe, rules: Sequence[Condition]) -> bool:
    """Whether a policy needs no more than the signals of a question, and keeps the order of the samples."""
    select = recipe.filter.select
    if mixed(select) or select.curriculum or select.weight != Select().weight:
        return False
    read = {entry.removeprefix("-").lower() for entry in select.order}
    read.update(column.lower() for rule in rules for column in rule.columns)
    return read.isdisjoint(_measured_across_files(recipe))


def _measured_across_files(recipe: Recipe) -> Iterator[str]:
    for family, (_, columns) in SIDE.items():
        if family in recipe.filter.signals:
            yield from columns.names
