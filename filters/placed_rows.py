"""Which traces of each partition of a run in a store are rows of its dataset, and where, as numbers.

A trace is known by its place among the traces of its partition, in the order of their ids. So the agent that decides
moves no signals and no ids; it sends what was measured across partitions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.artifacts.layout import dataset_file_rows
from distill.errors import DataError
from distill.recipe.sections.filter import Select
from distill.types import Sample
from filters.dataset.writer import DatasetTask, ordered_ids
from filters.signals.schema import DATASET_FILE, DATASET_PLACE, SIDE, WEIGHT
from filters.tables.id_columns import Ids, ids_of, order_of, split_rows
from filters.tables.signal_database import Tables, signals_of
from filters.tables.trace_index import PlannedTraces, rows_of_ids

ID, FILE, PLACE = "id", DATASET_FILE, DATASET_PLACE
_TRACE = "trace"
_BATCH = 1024
_PLAIN = Select()
_ONE = 1.0
"""What a row counts by the default of `filter.select.weight`."""


class TracePartitions:
    """The partition of the run of every trace."""

    def __init__(self, names: Sequence[str], index: PlannedTraces, numbers: NDArray[np.int32]) -> None:
        """`numbers`: for each planned trace the index of its partition in `names`; -1 without a partition."""
        self.names, self.index, self.numbers = names, index, numbers
        live = np.flatnonzero(numbers >= 0)
        self.by_sample = live[order_of(index.sample_ids[live])]
        """The traces in the order of their samples, then of their ids."""

    def places(self) -> NDArray[np.int32]:
        """The position of each trace in its partition."""
        order = np.argsort(self.numbers, kind="stable")
        numbers = self.numbers[order]
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order)) - np.searchsorted(numbers, numbers)
        return places

    def split(self, samples: Sequence[Sample]) -> Mapping[str, list[Sample]]:
        """These samples, all of which have traces, by their partition."""
        ids = self.index.sample_ids[self.by_sample]
        first = np.searchsorted(ids, np.array([sample.id for sample in samples], ids.dtype))
        parts: dict[str, list[Sample]] = {}
        for sample, number in zip(samples, self.numbers[self.by_sample[first]].tolist(), strict=True):
            parts.setdefault(self.names[number], []).append(sample)
        return parts


def rows_by_partition(
    task: DatasetTask, select: Select, partitions: TracePartitions
) -> tuple[int, Iterator[tuple[str, pa.Table]]]:
    """The number of files of the dataset, and for each partition its rows, in their order.

    Each row has its trace, its file and its place in it, and what was measured across partitions of any row.
    """
    rows, weights = _selected(task, select, partitions)
    file_rows = dataset_file_rows(len(rows))
    columns = {
        _TRACE: pa.array(partitions.places()[rows]),
        FILE: pa.array(np.arange(len(rows)) // file_rows),
        PLACE: pa.array(np.arange(len(rows)) % file_rows),
    }
    if weights is not None:
        columns[WEIGHT] = weights
    table = pa.table(columns | dict(_side_columns(task.tables, task.index, rows)))
    parts = split_rows(table, partitions.numbers[rows])
    return -(-len(rows) // file_rows), ((partitions.names[number], own) for number, own in parts)


def rows_in_files(parts: Iterable[tuple[pa.Table, int]], ids: Ids, file_rows: int) -> pa.Table:
    """The rows of a partition, from tables of their ids and places, each with the number of rows before the table.

    `ids`: the ids of the traces of the partition. Raises DataError where they do not belong together.
    """
    traces, places = [np.empty(0, ids.dtype)], [np.empty(0, np.int64)]
    for rows, before in parts:
        traces.append(ids_of(rows[ID]))
        places.append(rows[PLACE].to_numpy() + before)
    found, place = rows_of_ids(ids[order_of(ids)], np.concatenate(traces)), np.concatenate(places)
    if (found < 0).any():
        raise DataError("selected traces do not belong to their partition; delete filter/decisions/ in the store")
    return pa.table({_TRACE: found, FILE: place // file_rows, PLACE: place % file_rows})


def side_columns_of_files(
    task: DatasetTask, select: Select, partitions: TracePartitions, file_rows: int
) -> tuple[int, Iterator[pa.Table]]:
    """The number of rows of a dataset, and what was measured across partitions for each file, if anything was."""
    rows, _ = _selected(task, select, partitions)
    table = pa.table(dict(_side_columns(task.tables, task.index, rows)))
    starts = range(0, len(rows) if table.num_columns else 0, file_rows)
    return len(rows), (table.slice(start, file_rows) for start in starts)


def with_signals(rows: pa.Table, measured: pa.Table) -> pa.Table:
    """The rows of a partition with what an agent has measured of their traces."""
    by_id = order_of(ids_of(measured["id"]))
    signals = measured.select(signals_of(measured.schema).names).take(pa.array(by_id[rows[_TRACE].to_numpy()]))
    if WEIGHT not in rows.column_names:
        signals = signals.append_column(WEIGHT, pa.array(np.full(len(rows), _ONE)))
    for name in rows.drop_columns([_TRACE]).column_names:
        signals = signals.append_column(name, rows[name])
    return signals


def add_signals(row: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the dataset with more signals, those that have a value."""
    signals = orjson.loads(row["signals"]) | {name: value for name, value in values.items() if value is not None}
    return row | {"signals": orjson.dumps(signals, option=orjson.OPT_SORT_KEYS).decode()}


def read_rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a table, of which few are in memory."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH):
            yield from batch.to_pylist()


def _selected(
    task: DatasetTask, select: Select, partitions: TracePartitions
) -> tuple[NDArray[np.int64], pa.ChunkedArray | None]:
    """The selected traces in the order of the dataset, and what each row counts, unless that is one."""
    index = task.index
    if select.curriculum or select.weight != _PLAIN.weight:
        batches = list(ordered_ids(task.open_database(), index, select))
        table = pa.Table.from_batches(batches)
        return np.searchsorted(index.ids, ids_of(table["id"])), table[WEIGHT]
    is_selected = np.zeros(len(index.ids), bool)
    decided = pq.read_table(task.decisions, columns=["selected"])["selected"]
    is_selected[np.flatnonzero(index.journal >= 0)] = decided.to_numpy()  # in the order of the ids, as the index
    return partitions.by_sample[is_selected[partitions.by_sample]], None


def _side_columns(
    tables: Tables, index: PlannedTraces, rows: NDArray[np.int64]
) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """The columns of side tables that have a value for these traces."""
    for family, files in tables.side.items():
        key, columns = SIDE[family]
        there = {name for file in files for name in pq.read_schema(file).names}
        names = [name for name in columns.names if name in there]
        parts = (pq.read_table(file, columns=[key, *names]) for file in files)
        table = pa.concat_tables(parts, promote_options="default")
        if not len(table):
            continue
        found = _rows_of(ids_of(table[key]), index, rows, of_samples=key == "sample_id")
        taken = table.select(names).take(pa.array(found, mask=found < 0))
        for name in names:
            if taken[name].null_count < len(rows):
                yield name, taken[name]


def _rows_of(
    keys: NDArray[np.bytes_], index: PlannedTraces, rows: NDArray[np.int64], *, of_samples: bool
) -> NDArray[np.int64]:
    """For each of these traces the row of a table with these keys, or -1."""
    if not of_samples:
        live = np.flatnonzero(index.journal >= 0)
        if len(keys) == len(live) and np.array_equal(keys, index.ids[live]):
            return (np.cumsum(index.journal >= 0) - 1)[rows]
    order = order_of(keys)
    wanted = (index.sample_ids if of_samples else index.ids)[rows]
    found = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    return np.where(keys[found] == wanted, found, -1)
