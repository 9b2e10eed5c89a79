"""Rows to Arrow tables without pandas."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
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
