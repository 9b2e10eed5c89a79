"""A map from digests to records of fixed size, in about a fifth of a dict's memory.

New entries go to a dict; when there are many, they are merged into two sorted byte strings, keys and values, in which
a look-up takes a microsecond. Does not remove entries.
"""

from bisect import bisect_right
from collections.abc import Sequence

import pyarrow as pa

KEY_BYTES = 10
"""Length of the ids of samples and traces. Keys of another length stay in the dict."""
_STRIDE = 16
"""Entries a block: its first key is in a list, the rest of it is searched."""
_MIN_MERGED = 1 << 16
_MERGED_SHARE = 8
"""New entries are merged when they are more than an eighth of the merged ones: few merges, and a small dict."""


class CompactMap:
    """Keys and values are bytes; all values have the same length."""

    def __init__(self, value_bytes: int, keys: bytes | bytearray = b"", values: bytes | bytearray = b"") -> None:
        """`keys` are sorted, `values` in their order."""
        self._value_bytes = value_bytes
        self._new: dict[bytes, bytes] = {}
        self._adopt(keys, values)

    @classmethod
    def of(cls, value_bytes: int, keys: bytes, values: bytes) -> "CompactMap":
        """A map of these keys, in any order, and their values."""
        return cls(value_bytes, *_sorted(value_bytes, keys, values))

    @classmethod
    def load(cls, value_bytes: int, pieces: Sequence[bytearray]) -> "CompactMap":
        """The map that `pieces` gave."""
        keys, values, new_keys, new_values = pieces
        loaded = cls(value_bytes, keys, values)
        starts = zip(range(0, len(new_keys), KEY_BYTES), range(0, len(new_values), value_bytes), strict=True)
        for key, value in starts:
            loaded[bytes(new_keys[key : key + KEY_BYTES])] = bytes(new_values[value : value + value_bytes])
        return loaded

    def _adopt(self, keys: bytes | bytearray, values: bytes | bytearray) -> None:
        self._keys, self._values = keys, values if isinstance(values, bytearray) else bytearray(values)
        self._heads = [bytes(keys[at : at + KEY_BYTES]) for at in range(0, len(keys), _STRIDE * KEY_BYTES)]
        self._merge_at = len(self._new) + max(_MIN_MERGED, len(keys) // KEY_BYTES // _MERGED_SHARE)

    def __len__(self) -> int:
        return len(self._new) + len(self._keys) // KEY_BYTES

    def __contains__(self, key: bytes) -> bool:
        return key in self._new or self._find(key) >= 0

    def __setitem__(self, key: bytes, value: bytes) -> None:
        at = self._find(key)
        if at >= 0:
            self._values[at : at + self._value_bytes] = value
            return
        self._new[key] = value
        if len(self._new) >= self._merge_at:
            self._merge()

    def get(self, key: bytes) -> bytes | None:
        value = self._new.get(key)
        if value is not None:
            return value
        at = self._find(key)
        return None if at < 0 else bytes(self._values[at : at + self._value_bytes])

    def _find(self, key: bytes) -> int:
        """Where the value of a merged key begins; -1 when there is none."""
        block = bisect_right(self._heads, key) - 1
        if block < 0 or len(key) != KEY_BYTES:
            return -1
        start = block * _STRIDE * KEY_BYTES
        end = start + _STRIDE * KEY_BYTES
        at = self._keys.find(key, start, end)
        while at >= 0 and at % KEY_BYTES:  # the end of one key and the beginning of the next one
            at = self._keys.find(key, at + 1, end)
        return at // KEY_BYTES * self._value_bytes if at >= 0 else -1

    def pieces(self) -> list[bytes | bytearray] | None:
        """All entries, for `load`; None when keys have different lengths."""
        if any(len(key) != KEY_BYTES for key in self._new):
            return None
        return [self._keys, self._values, b"".join(self._new), b"".join(self._new.values())]

    def _merge(self) -> None:
        moved = [key for key in self._new if len(key) == KEY_BYTES]
        if not moved:
            return
        keys = b"".join([self._keys, *moved])
        values = b"".join([self._values, *map(self._new.pop, moved)])
        self._adopt(*_sorted(self._value_bytes, keys, values))


def _sorted(value_bytes: int, keys: bytes, values: bytes) -> tuple[bytes, bytes]:
    import pyarrow.compute as pc  # takes as long as a thousand requests, and small runs never merge

    key_array = fixed_size_array(keys, KEY_BYTES)
    order = pc.sort_indices(key_array)
    return _taken(key_array, order), _taken(fixed_size_array(values, value_bytes), order)


def fixed_size_array(data: bytes, item_bytes: int = KEY_BYTES) -> pa.Array:
    """Bytes as items of one size; the array shares their memory."""
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(item_bytes), len(data) // item_bytes, [None, pa.py_buffer(data)]
    )


def _taken(array: pa.Array, order: pa.Array) -> bytes:
    taken: bytes = array.take(order).buffers()[1].to_pybytes()
    return taken
