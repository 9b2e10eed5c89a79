"""Columns of ids and digests as numpy arrays and back, without a Python object for each value; rows by numbers."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Ids = NDArray[np.bytes_]


def ids_of(column: pa.Array | pa.ChunkedArray) -> Ids:
    """The values of a column of text or bytes that has no NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # more than 2 GB of text
        return np.concatenate([ids_of(chunk) for chunk in array.chunks])
    lengths = pc.min_max(pc.binary_length(array))
    width = lengths["min"].as_py()
    if not width or width != lengths["max"].as_py():
        encoded = array.dictionary_encode()  # names of teachers, say, of which there are few
        values = [value if isinstance(value, bytes) else value.encode() for value in encoded.dictionary.to_pylist()]
        ids: Ids = np.array(values, np.bytes_)[encoded.indices.to_numpy()]
        return ids
    fixed = pa.types.is_fixed_size_binary(array.type)
    start = array.offset * width
    if not fixed:
        start = np.frombuffer(array.buffers()[1], np.int32, 1, array.offset * 4).item()
    return np.frombuffer(array.buffers()[1 if fixed else 2], f"S{width}", len(array), start)


def text_array(ids: Ids) -> pa.StringArray:
    """These ids as a column of text."""
    ids = np.ascontiguousarray(ids)
    # Shorter ones end with zero bytes; Arrow counts the bytes of a column with 31 bits.
    if not ids.view(np.uint8).reshape(-1, ids.itemsize)[:, -1].all() or ids.nbytes >= 1 << 31:
        return pa.array([value.decode() for value in ids.tolist()], pa.string())
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * np.int32(ids.itemsize)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(ids))


def order_of(ids: Ids) -> NDArray[np.int64]:
    """The order of ids or digests; equal ones stay in their order.

    The first eight bytes of each are compared as a number: numpy sorts numbers ten times as fast as texts.
    """
    if ids.itemsize >= 8:
        heads = heads_of(ids)
        order = np.argsort(heads, kind="stable")
        same = np.flatnonzero(heads[order[1:]] == heads[order[:-1]])
        if not (ids[order[same + 1]] < ids[order[same]]).any():
            return order
    return np.argsort(ids, kind="stable")


def heads_of(ids: Ids) -> NDArray[np.uint64]:
    """The first eight bytes of each id or digest as a number; numbers have the order of these bytes."""
    heads = np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), ids.itemsize)[:, :8]
    return np.ascontiguousarray(heads).view(">u8").ravel().astype(np.uint64)


def split_rows(table: pa.Table, numbers: NDArray[np.int32]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each number in their order, by increasing number."""
    order = np.argsort(numbers, kind="stable")
    table, numbers = table.take(order), numbers[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(table)]):
        yield int(numbers[start]), table.slice(start, end - start)


def tables_of_rows(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of so many rows; the last one may have fewer."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        while sum(map(len, held)) >= rows:
            table = pa.Table.from_batches(held)
            # A copy, because a slice would send the whole table to another process.
            yield table.take(np.arange(rows))
            held = table.slice(rows).to_batches()
    if held:
        yield pa.Table.from_batches(held)


def digest_array(digests: Ids) -> pa.FixedSizeBinaryArray:
    """Digests of equal length as a column of bytes; numpy leaves out zero bytes at the end of each."""
    digests = np.ascontiguousarray(digests)
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(digests.itemsize), len(digests), [None, pa.py_buffer(digests)]
    )
