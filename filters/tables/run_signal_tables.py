"""Side tables: values of some traces that a model or another engine measures, in Parquet files beside the signals.

A file has the column `id` and the columns of one family, sorted by id. Its metadata names all that its values depend
on; its bytes depend on nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.integrity import digested_path, is_whole
from distill.artifacts.layout import part_path
from distill.types import Sample, Trace

Item = tuple[str, Sample, Trace]
"""Id of a trace, its sample, and the trace."""
Done = Callable[[int, bool], None]
"""Called with the number of finished rows and whether their values were reused."""

FINGERPRINT = "fingerprint"
_ROW_GROUP = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSignal:
    """A family that a model or another engine measures."""

    columns: pa.Schema
    identity: Mapping[str, Any]
    """What the values depend on besides the traces."""
    measure: Callable[[Iterable[Item], Done], list[Path]]

    def __call__(self, items: Iterable[Item], on_done: Done = lambda rows, reused: None) -> list[Path]:
        """Write the values of the traces, which must be in the order of their samples' ids.

        Returns the files in order.
        """
        return self.measure(items, on_done)


def part(folder: Path, number: int) -> Path:
    return part_path(folder, number, ".parquet")


def schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a side table's files."""
    return pa.schema([pa.field("id", pa.string()), *columns])


def write(path: Path, rows: Sequence[Mapping[str, Any]], columns: pa.Schema, metadata: Mapping[str, str]) -> None:
    """Write one file atomically."""
    table = pa.Table.from_pylist(
        sorted(rows, key=lambda row: row["id"]), schema=schema(columns).with_metadata(dict(metadata))
    )
    write_table(path, table)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table atomically, with a note of its digest."""
    with digested_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=_ROW_GROUP)


def metadata(path: Path) -> dict[str, str]:
    """The metadata of a file; empty when it is missing or damaged."""
    entries = raw_metadata(path)
    return {key.decode(): value.decode() for key, value in entries.items() if not key.startswith(b"ARROW:")}


def raw_metadata(path: Path) -> dict[bytes, bytes]:
    """`metadata` as the file has it."""
    try:
        return dict(pq.read_schema(path).metadata or {}) if is_whole(path) else {}
    except (OSError, pa.ArrowException):
        return {}


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file in the order of their ids."""
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=_ROW_GROUP):
            yield from batch.to_pylist()
