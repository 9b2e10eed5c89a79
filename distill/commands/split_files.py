"""The files of a split: each row goes to one of them as it lies in the table, in the table's own kind of file."""

import csv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.data import sources
from distill.data.images.image_cells import open_arrow
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_kinds import PACKED_LINES, SHARDS
from distill.errors import DataError

_ROWS_AT_ONCE = 1024
_SUFFIX = dict.fromkeys(("jsonl", "json", "cocoqa", SHARDS, PACKED_LINES), ".jsonl") | {
    "parquet": ".parquet",
    "arrow": ".parquet",
}

Parts = Mapping[int, str]
"""Number of a row to the file that it goes to."""


def _write_json(table: SourceTable, files: Mapping[str, Path], parts: Parts) -> None:
    with ExitStack() as stack:
        opened = {
            part: stack.enter_context(stack.enter_context(atomic_path(path)).open("wb"))
            for part, path in files.items()
        }
        for row in sources.rows(table):
            if isinstance(row, SourceRow) and row.number in parts:
                opened[parts[row.number]].write(orjson.dumps(dict(row.values), option=orjson.OPT_APPEND_NEWLINE))


def _write_csv(table: SourceTable, files: Mapping[str, Path], parts: Parts) -> None:
    with ExitStack() as stack:
        writers: dict[str, csv.DictWriter[str]] = {}
        columns = _all_columns(table)
        for row in sources.rows(table):
            if not isinstance(row, SourceRow) or row.number not in parts:
                continue
            part = parts[row.number]
            if part not in writers:
                path = stack.enter_context(atomic_path(files[part]))
                file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
                tabs = "\t" if files[part].suffix.lower() == ".tsv" else ","
                writers[part] = csv.DictWriter(file, columns or list(row.values), delimiter=tabs)
                writers[part].writeheader()
            writers[part].writerow(row.values)


def _all_columns(table: SourceTable) -> list[str]:
    """The columns of several files, which may have different ones; of one file nothing, for its rows have them."""
    if len(table.files) == 1:
        return []
    return list(
        dict.fromkeys(name for row in sources.rows(table) if isinstance(row, SourceRow) for name in row.values)
    )


def _write_tables(table: SourceTable, files: Mapping[str, Path], parts: Parts) -> None:
    """Rows as they lie in columns, images included, with the schema and its metadata."""
    number = 0
    schema = _schema(table)
    with ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for part, path in files.items():
            writers[part] = stack.enter_context(pq.ParquetWriter(stack.enter_context(atomic_path(path)), schema))
        for file in table.files:
            for batch in _batches(file, table.kind):
                own = [parts.get(each, "") for each in range(number + 1, number + 1 + batch.num_rows)]
                number += batch.num_rows
                for part, writer in writers.items():
                    numbers = pa.array([index for index, each in enumerate(own) if each == part], pa.int64())
                    rows = pa.Table.from_batches([batch]).take(numbers)  # `filter` breaks lists of structs
                    if rows.num_rows and rows.schema != schema:
                        rows = pa.concat_tables([schema.empty_table(), rows], promote_options="permissive")
                    if rows.num_rows:
                        writer.write_table(rows)


def _schema(table: SourceTable) -> pa.Schema:
    """The columns of all files. Raises DataError for a column whose types have no common type."""
    schemas = [
        open_arrow(str(file)).schema if table.kind == "arrow" else pq.read_schema(file) for file in table.files
    ]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(f"{table.label}: its files have columns that do not fit together: {error}") from None


def _batches(file: Path, kind: str) -> Iterator[pa.RecordBatch]:
    if kind == "arrow":
        yield from open_arrow(str(file)).to_batches(max_chunksize=_ROWS_AT_ONCE)
        return
    with pq.ParquetFile(file) as opened:
        yield from opened.iter_batches(batch_size=_ROWS_AT_ONCE)


_WRITERS = {"csv": _write_csv, "parquet": _write_tables, "arrow": _write_tables}


def suffix_of(table: SourceTable) -> str:
    """The ending of the files' names."""
    return _SUFFIX.get(table.kind) or table.files[0].suffix.lower()


def write(table: SourceTable, files: Mapping[str, Path], parts: Parts) -> None:
    """Write the rows that have a part to the part's file."""
    _WRITERS.get(table.kind, _write_json)(table, files, parts)
