"""Arrow without pandas, which takes a quarter of a second to load and which nothing here needs."""

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import json


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of JSON values as a table of this schema.

    `pa.Table.from_pylist` gives the same, but imports pandas where it is installed, which takes a quarter of a
    second, and is slower after that.
    """
    if not rows:
        return schema.empty_table()
    lines = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    return json.read_json(
        pa.BufferReader(lines),
        read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def read_columns(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, or some columns of it. `pq.read_table` gives the same, but imports pandas."""
    with pq.ParquetFile(path) as file:
        return file.read(columns)


class _NoPandas:
    """A finder of modules that finds no pandas."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ImportError(name)
        return None


def leave_pandas_out() -> None:
    """Keep Arrow from loading pandas with its first array, which it does if pandas is installed.

    Arrow looks for pandas only once. `to_pandas()` still loads pandas, and pandas can be imported as before.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
