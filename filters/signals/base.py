"""How a family of signals describes its columns, and the states that a measurement can have.

A value is valid only where the family's `<name>_state` is `ok`.
"""

from typing import Any

import pyarrow as pa

OK = "ok"
NOT_APPLICABLE = "not_applicable"
"""There is nothing to measure here: no gold answer, no text, one trace where several are needed."""
UNDECIDABLE = "undecidable"
"""Measured, but the result is ambiguous."""
ERROR = "error"
"""The extractor failed on this trace: the reason is in `signal_errors`."""
TIMED_OUT = "timed_out"
"""Measuring was given up: the text is longer, or holds more, than is looked at. The reason is in `signal_errors`."""
WORDS = "words"
"""Lengths are words, because the recipe names no student whose tokenizer could count."""

LOCATION = {"location": True}
"""Metadata of a dataclass field that says where a file lies; a field beside it holds the file's digest."""

VALUE_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "number": pa.float64(),
    "count": pa.int64(),
    "flag": pa.bool_(),
}


def family(name: str, **columns: tuple[str, str]) -> pa.Schema:
    """The schema of a family: its state, then each column as (kind, description)."""
    fields = [_field(f"{name}_state", pa.string(), f"whether {name} could be measured on this trace")]
    fields += [_field(column, VALUE_TYPES[kind], description) for column, (kind, description) in columns.items()]
    return pa.schema(fields)


def _field(name: str, kind: pa.DataType, description: str) -> "pa.Field[Any]":
    return pa.field(name, kind, metadata={"description": description})
