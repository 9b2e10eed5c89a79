"""The signal table as a whole: the partitions' own files and the tables that are measured across partitions.

A side table holds what one partition alone cannot know (near duplicates of the whole run) or what another engine
measures (a student, a judge). It has one row a trace or a sample, and is joined by its key; where it was not asked
for, or has no row, its columns are NULL.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
import pyarrow.dataset

from filters.registry import COLUMNS, LOCAL, SIDE

SIGNALS = "signals"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The files of a filter folder that hold signals."""

    signals: tuple[Path, ...]
    side: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """Files of each side table that was measured, by the family's name."""

    @classmethod
    def of(cls, folder: Path) -> "Tables":
        """What lies in a filter folder."""
        side = {name: tuple(sorted(folder.glob(f"{name}/part-*.parquet"))) for name in SIDE}
        return cls(
            signals=tuple(sorted(folder.glob(f"{SIGNALS}/part-*.parquet"))),
            side={name: files for name, files in side.items() if files},
        )

    def files(self) -> Iterable[Path]:
        return (*self.signals, *(path for files in self.side.values() for path in files))


def connect(tables: Tables, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database with the view `signals`: every column of the table, one row a trace."""
    connection = closed_database(threads)
    _register(connection, "local", tables.signals, LOCAL)
    joins, columns = [], [f'local."{name}"' for name in LOCAL.names]
    for name, (key, schema) in SIDE.items():
        files = tables.side.get(name, ())
        if files:
            _register(connection, f"side_{name}", files, pa.schema([pa.field(key, pa.string()), *schema]))
            joins.append(f'LEFT JOIN "side_{name}" ON local."{key}" = "side_{name}"."{key}"')
            columns += [f'"side_{name}"."{column}"' for column in schema.names]
        else:
            columns += [f'NULL::{_SQL[field.type]} AS "{field.name}"' for field in schema]
    connection.execute(f"CREATE TEMP VIEW signals AS SELECT {', '.join(columns)} FROM local {' '.join(joins)}")
    return connection


def empty_database() -> duckdb.DuckDBPyConnection:
    """The same with one trace of which nothing is known: constants of a wrong type fail on it, values cannot."""
    connection = closed_database()
    connection.register("signals", pa.Table.from_pylist([{}], schema=COLUMNS))
    return connection


def closed_database(threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that reads and writes no file, not even to load an extension."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
    }
    if threads is not None:
        config["threads"] = threads
    connection = duckdb.connect(":memory:", config=config)
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET lock_configuration = true")
    return connection


_SQL: Mapping[pa.DataType, Literal["VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"]] = {
    pa.string(): "VARCHAR",
    pa.float64(): "DOUBLE",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
}


def _register(connection: duckdb.DuckDBPyConnection, name: str, files: tuple[Path, ...], schema: pa.Schema) -> None:
    connection.register(name, pyarrow.dataset.dataset([str(path) for path in files], schema=schema))
