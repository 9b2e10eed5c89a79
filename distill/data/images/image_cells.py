"""Encoded images within files of this machine: cells of Parquet and Arrow tables, ranges of any file.

The last row groups stay in memory. Does not decode anything.
"""

import os
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.data.bounded_reads import bounded
from distill.data.images import base64_images
from distill.errors import ImageError
from distill.word_tables import counted

MAX_BYTES = 1 << 28
"""A larger file is refused unread: no image that a model can use needs 256 MiB."""

CACHE_BYTES = 1 << 28
"""Row groups of tables with embedded images that a process keeps in memory."""


def cell_bytes(cell: Any) -> bytes:
    """The bytes held by one image cell of a table: raw bytes, base64, or a struct with `bytes`. Raises ImageError."""
    data = cell.get("bytes") if isinstance(cell, dict) else cell
    if isinstance(data, str) and base64_images.is_base64(data):
        data = base64_images.decoded(data)
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if not isinstance(data, bytes):
        raise ImageError("missing_image", "the image cell holds no bytes")
    if len(data) > MAX_BYTES:
        raise ImageError("too_many_bytes", f"{len(data)} bytes, more than {MAX_BYTES}")
    return data


BYTE_RANGE = "byte range"
"""The column of a reference to a range of a file, such as a member of a tar: `index` bytes from byte `row` on."""

BASE64_RANGE = "base64 range"
"""As BYTE_RANGE, for a range that holds the image in base64."""

PACKED_RANGE = "packed range"
"""As BYTE_RANGE, for a range that a zip archive has compressed."""

RANGES = (BYTE_RANGE, BASE64_RANGE, PACKED_RANGE)

Part = tuple[str, int, int]
"""The last three values of a reference: column, row and index."""
WHOLE: Part = "", 0, 0


def part_of_file(cell: Any) -> Part:
    """The range or the table cell that an image cell names; WHOLE for a whole file. Raises ImageError."""
    if "column" in cell and "row" in cell:
        column, row = cell["column"], cell["row"]
        if not (isinstance(column, str) and column and isinstance(row, int) and row >= 0):
            raise ImageError("unsupported_image_cell", f"{cell!r:.200}: column is a name and row a number from 0")
        return column, row, 0
    if "offset" not in cell and "length" not in cell:
        return WHOLE
    offset, length = cell.get("offset"), cell.get("length")
    if not (isinstance(offset, int) and isinstance(length, int) and offset >= 0 and length >= 0):
        raise ImageError("unsupported_image_cell", f"{cell!r:.200}: offset and length are numbers of bytes")
    if not length:
        raise ImageError("empty_image", "the image has no bytes")
    if length > MAX_BYTES:
        raise ImageError("too_many_bytes", f"{length} bytes, more than {MAX_BYTES}")
    packed = cell.get("packed")
    if packed not in (None, "deflate"):
        raise ImageError("unsupported_image_cell", f"packed = {packed!r}; known: deflate")
    return PACKED_RANGE if packed else BYTE_RANGE, offset, length


_Group = tuple[str, int, str, int]
"""Path, modification time, column and number of a row group."""

_groups: OrderedDict[_Group, Any] = OrderedDict()
_lock = threading.Lock()
# A child forked while another thread reads must not inherit a lock that is never released.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def read_cell(path: str, column: str, row: int, index: int) -> bytes:
    """Item `index` of `column` in row `row` of a Parquet or Arrow file; or a range of any file.

    The last row groups are kept in memory (CACHE_BYTES of them), so reading rows in order touches each group of
    the file once. Random access to a larger Parquet file reads a whole row group a cell: write small groups.
    """
    try:
        cell = bounded(partial(_cell, path, column, row, index))
    except FileNotFoundError:
        raise ImageError("missing_image", f"{path}: no such file") from None
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise ImageError("unreadable_image", f"{path}: row {row} of column {column!r}: {error}") from None
    if isinstance(cell, list):
        if index >= len(cell):
            raise ImageError(
                "missing_image", f"{path}: row {row} of column {column!r} has {counted(len(cell), 'image')}"
            )
        cell = cell[index]
    return cell_bytes(cell)


def _cell(path: str, column: str, row: int, index: int) -> Any:
    if column in RANGES:
        with Path(path).open("rb") as file:
            file.seek(row)
            return range_bytes(column, file.read(index))
    modified_ns = Path(path).stat().st_mtime_ns
    if path.lower().endswith(".arrow"):
        return _arrow_column(path, modified_ns, column)[row].as_py()
    group, offset = _row_group(path, modified_ns, row)
    return _parquet_column((path, modified_ns, column, group))[offset].as_py()


def range_bytes(column: str, data: bytes) -> bytes:
    """The image that a range of a file holds. Raises ImageError."""
    if column == PACKED_RANGE:
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, MAX_BYTES + 1)
        except zlib.error as error:
            raise ImageError("unreadable_image", f"the image cannot be unpacked: {error}") from None
    return base64_images.decoded(data) if column == BASE64_RANGE else data


def _parquet_column(key: _Group) -> Any:
    path, modified_ns, column, group = key
    with _lock:
        if key in _groups:
            _groups.move_to_end(key)
            return _groups[key]
        values = _parquet_file(path, modified_ns).read_row_group(group, columns=[column])[column]
        _groups[key] = values
        while len(_groups) > 1 and sum(item.nbytes for item in _groups.values()) > CACHE_BYTES:
            _groups.popitem(last=False)
        return values


def _row_group(path: str, modified_ns: int, row: int) -> tuple[int, int]:
    """The row group that holds a row, and the row's place in it."""
    starts = _row_group_starts(path, modified_ns)
    if not 0 <= row < starts[-1]:
        raise IndexError(f"the file has {counted(starts[-1], 'row')}")
    group = bisect_right(starts, row) - 1
    return group, row - starts[group]


@lru_cache(maxsize=32)
def _row_group_starts(path: str, modified_ns: int) -> tuple[int, ...]:
    metadata = _parquet_file(path, modified_ns).metadata
    sizes = (metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    return tuple(accumulate(sizes, initial=0))


@lru_cache(maxsize=32)
def _parquet_file(path: str, modified_ns: int) -> pq.ParquetFile:
    return pq.ParquetFile(path)


@lru_cache(maxsize=32)
def _arrow_column(path: str, modified_ns: int, column: str) -> Any:
    return open_arrow(path)[column]


def open_arrow(path: str) -> pa.Table:
    """An Arrow file in stream format (as the datasets library writes) or file format, mapped, not read."""
    source = pa.memory_map(path)
    try:
        return pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_file(source).read_all()
