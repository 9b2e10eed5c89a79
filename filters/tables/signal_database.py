"""The signal table as a whole: the partitions' own files and the tables that are measured across partitions.

A side table holds what needs all partitions (near duplicates of the whole run) or another engine (a student, a
judge). It has one row for each trace or sample and is joined by its key. Its columns are NULL where it was not
requested or has no row.
"""

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.layout import SIGNALS, part_paths
from distill.artifacts.manifest import Manifest
from filters.signals.base import VALUE_TYPES
from filters.signals.schema import SIDE

SCRATCH = "scratch"
_AT_ONCE = 250_000
"""Rows that are sorted or joined at once: a million need some 0.5 KB each."""
_IN_MEMORY = 5_000
"""Up to so many traces, all tables are read once: most of the time of a short query is spent on opening files."""


_Kind = Literal["TABLE", "VIEW"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The files of a filter folder that hold signals."""

    signals: tuple[Path, ...]
    side: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """Files of each side table that was measured, by the family's name."""
    columns: pa.Schema = field(default_factory=lambda: project_columns())
    """Columns that the table has even where no file has them; those of files are there anyway."""

    @classmethod
    def of(cls, folder: Path, columns: pa.Schema | None = None) -> "Tables":
        """The files that the result in a filter folder was made from; without a result, all that are there."""
        files_of_family = {name: tuple(part_paths(folder / name, ".parquet")) for name in SIDE}
        if (done := Manifest.read(folder)) is not None:
            # The table of a family that is no longer asked for stays, to be reused; nothing was decided by it.
            files_of_family = {
                name: tuple(path for path in files if path.relative_to(folder).as_posix() in done.outputs)
                for name, files in files_of_family.items()
            }
        return cls(
            signals=tuple(part_paths(folder / SIGNALS, ".parquet")),
            side={name: files for name, files in files_of_family.items() if files},
            columns=project_columns() if columns is None else columns,
        )

    def files(self) -> Iterable[Path]:
        return (*self.signals, *(path for files in self.side.values() for path in files))


def project_columns() -> pa.Schema:
    """The signal table without families from outside. Imported here: the families take 0.4 s of processor time."""
    from filters.signals.registry import COLUMNS

    return COLUMNS


def connect(
    tables: Tables, *, more: Mapping[str, Path] | None = None, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """A database with `signals`: every column of the signal table, one row a trace.

    `local` has only what is measured partition by partition, and costs no join.
    `more` maps further names to Parquet files. All are views, or tables in memory where there are few traces.
    """
    more = more or {}
    connection = closed_database(threads, files=(*tables.files(), *more.values()))
    schemas, rows = _schemas(tables.signals)
    kind: _Kind = "TABLE" if rows <= _IN_MEMORY else "VIEW"
    local = _local_columns(tables, schemas)
    _create(connection, kind, "local", tables.signals, local, schemas)
    for name, path in more.items():
        schema = pq.read_schema(path)
        _create(connection, kind, name, (path,), schema, [schema])
    joins, columns = [], [identifier(name) for name in local.names]
    for name, (key, schema) in SIDE.items():
        files = tables.side.get(name, ())
        side_schemas, _ = _schemas(files)
        _create(connection, kind, f"side_{name}", files, pa.schema([(key, pa.string()), *schema]), side_schemas)
        if files:
            joins.append(f'LEFT JOIN "side_{name}" USING ("{key}")')
        columns += [identifier(column.name) if files else null_column(column) for column in schema]
    connection.execute(f"CREATE TEMP {kind} signals AS SELECT {', '.join(columns)} FROM local {' '.join(joins)}")
    return connection


def columns_of(tables: Tables) -> pa.Schema:
    """The columns of the view `signals`, with those that only files have: a user's signals."""
    sides = (column for _, schema in SIDE.values() for column in schema)
    schemas, _ = _schemas(tables.signals)
    return pa.schema([*_local_columns(tables, schemas), *sides])


def _local_columns(tables: Tables, schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The signals that are measured by partition: the requested columns, and the columns in files."""
    side_columns = {name for _, schema in SIDE.values() for name in schema.names}
    fields = {column.name: column for column in tables.columns if column.name not in side_columns}
    for schema in schemas:
        for column in signals_of(schema):
            fields.setdefault(column.name, column)
    return pa.schema(fields.values())


def signals_of(file: pa.Schema) -> pa.Schema:
    """The signals among the columns of a partition's file: the rest is remembered of the texts and is for no rule."""
    return pa.schema([column for column in file if column.type in VALUE_TYPES.values()])


def _schemas(files: Sequence[Path]) -> tuple[list[pa.Schema], int]:
    """The distinct schemas of files, which may have columns of different families, and the number of all rows."""
    schema_of_names: dict[tuple[str, ...], pa.Schema] = {}
    rows = 0
    for path in files:
        described = pq.read_metadata(path)
        schema = described.schema.to_arrow_schema()
        schema_of_names.setdefault(tuple(schema.names), schema)
        rows += described.num_rows
    return list(schema_of_names.values()), rows


def empty_database(columns: pa.Schema) -> duckdb.DuckDBPyConnection:
    """A database with one trace whose values are all NULL: only constants of a wrong type fail on it."""
    connection = closed_database()
    listed = ", ".join(f"{identifier(column.name)} {_SQL[column.type]}" for column in columns)
    connection.execute(f"CREATE TEMP TABLE signals ({listed})")
    connection.execute(f"INSERT INTO signals ({identifier(columns.names[0])}) VALUES (NULL)")
    return connection


def closed_database(threads: int | None = None, files: Iterable[Path] = ()) -> duckdb.DuckDBPyConnection:
    """A database in memory that can read these files only, not even an extension.

    Tables in `scratch` are compressed when that is checkpointed.
    """
    # A file's own description is read once, and not by each query: a million traces have 128 files of 93 columns.
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "parquet_metadata_cache": "true",
    }
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:", config=config)
    connection.execute(f"ATTACH ':memory:' AS {SCRATCH} (COMPRESS)")
    # DuckDB asks for the name as a query has it, and again for the file that it found.
    names = [str(path.absolute()) for path in files]
    allowed = ", ".join(map(text, dict.fromkeys([*names, *map(glob.escape, names)])))
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET lock_configuration = true")
    return connection


_SQL: Mapping[pa.DataType, Literal["VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"]] = {
    pa.string(): "VARCHAR",
    pa.float64(): "DOUBLE",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
}


def null_column(column: pa.Field) -> str:
    """SQL of a column that has no value."""
    return f"NULL::{_SQL[column.type]} AS {identifier(column.name)}"


def _create(
    connection: duckdb.DuckDBPyConnection,
    kind: _Kind,
    name: str,
    files: Sequence[Path],
    schema: pa.Schema,
    schemas: Sequence[pa.Schema],
) -> None:
    """A table or view of files of these schemas; a column is NULL in the rows of a file that does not have it."""
    present_columns = {name for schema in schemas for name in schema.names}
    columns = ", ".join(
        identifier(column.name) if column.name in present_columns else null_column(column) for column in schema
    )
    by_name = ("union_by_name = true",) if len(schemas) > 1 else ()
    source = f"FROM {parquet_rows(files, *by_name)}" if files else "WHERE false"
    connection.execute(f'CREATE TEMP {kind} "{name}" AS SELECT {columns} {source}')


def join_aligned(connection: duckdb.DuckDBPyConnection, first: str, names: Iterable[str]) -> str:
    """SQL that joins views by their `id` to the view `first`, row by row where their ids are equal and in one order.

    All such files are sorted by id, and most have every trace: a join by hash costs four times as much.
    """
    joined = first
    for name in names:
        query = f"SELECT count(*) FROM {first} POSITIONAL JOIN {name} WHERE {first}.id IS DISTINCT FROM {name}.id"
        ((different,),) = connection.execute(query).fetchall()
        joined += f" LEFT JOIN {name} ON {first}.id = {name}.id" if different else f" POSITIONAL JOIN {name}"
    return joined


def ranges(rows: int, pieces: int = 1, *, at_once: int = _AT_ONCE) -> list[str]:
    """Conditions on `{0}` that cut the ids of a table with so many rows into parts that fit into memory.

    Each part is cut into so many pieces, of which there is a condition each.
    """
    borders = range_borders(rows, pieces, at_once=at_once)
    return [
        f"{{0}} >= {text(low)}" + (f" AND {{0}} < {text(high)}" if high else "")
        for low, high in zip(["", *borders], [*borders, ""], strict=True)
    ]


def range_borders(rows: int, pieces: int = 1, *, at_once: int = _AT_ONCE) -> list[str]:
    """The ids between the parts of `ranges`."""
    count = (-(-rows // at_once) or 1) * pieces
    # Ids are hexadecimal digests, so equal ranges of their first eight digits hold equally many of them.
    return [f"{number * (1 << 32) // count:08x}" for number in range(1, count)]


def parquet_rows(files: Iterable[Path], *options: str) -> str:
    """SQL of the rows of Parquet files. No character of a path is a pattern, and no folder `teacher=big` a column."""
    listed = ", ".join(text(glob.escape(str(path.absolute()))) for path in files)
    return f"read_parquet({', '.join([f'[{listed}]', 'hive_partitioning = false', *options])})"


def text(value: str) -> str:
    """A string of SQL."""
    return "'" + value.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A column of SQL."""
    return '"' + name.replace('"', '""') + '"'


def order(entries: Iterable[str], table: str | None = None) -> str:
    """Columns to order by, a leading '-' reverses; what was not measured comes last."""
    prefix = "" if table is None else f"{identifier(table)}."
    return ", ".join(
        f"{prefix}{identifier(entry.removeprefix('-'))} {'DESC' if entry.startswith('-') else 'ASC'} NULLS LAST"
        for entry in entries
    )
