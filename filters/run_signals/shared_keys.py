"""Which texts of a run share a key of their signatures with another text: only these can be near duplicates.

Keys are cut into buckets by their first bits, so all texts of a key are in one bucket, and a bucket needs no other
one. A key of one band that equals a key of another band counts, too: a text too many costs time, no result.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filters.tables.id_columns import ids_of
from filters.text.minhash import NO_WORDS, Scheme, band_keys

Shared = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Numbers of files of signals, and rows in them."""
MOST_BUCKETS = 256
_KEY = np.dtype([("key", "<u8"), ("row", "<u4")])
_PLACE = np.dtype("<u8")
"""Of a text: the number of a file, and 32 bits for the row."""


def keys_by_bucket(rows: pa.Table, scheme: Scheme, buckets: int) -> Iterator[bytes]:
    """The keys of the texts of a file of signals, each with the first row of its text, for each bucket.

    The number of buckets is a power of two.
    """
    words, first = np.unique(ids_of(rows["words"]), return_index=True)
    first = first[words != NO_WORDS]
    signatures = ids_of(rows["signature"].take(pa.array(first))).view(np.uint32).reshape(len(first), scheme.width)
    keys = band_keys(signatures, scheme) if len(first) else np.empty((scheme.keys, 0), np.uint64)
    records = np.empty(keys.size, _KEY)
    records["key"], records["row"] = keys.ravel(), np.tile(first, len(keys))
    records = records[np.argsort(records["key"])]
    borders = np.array([(number << 64) // buckets for number in range(1, buckets)], np.uint64)
    for part in np.split(records, np.searchsorted(records["key"], borders)):
        yield part.tobytes()


def find_shared(bucket: Iterable[bytes]) -> bytes:
    """The texts that share a key, from the keys of one bucket of all files, in their order."""
    parts = [np.frombuffer(part, _KEY) for part in bucket]
    records = np.concatenate(parts)
    files = np.repeat(np.arange(len(parts), dtype=_PLACE), [len(part) for part in parts])
    places = files << np.uint64(32) | records["row"].astype(_PLACE)
    order = np.argsort(records["key"])
    keys = records["key"][order]
    is_shared = np.zeros(len(keys), bool)
    is_shared[1:] = keys[1:] == keys[:-1]
    is_shared[:-1] |= is_shared[1:]
    return np.unique(places[order[is_shared]]).tobytes()


def read_shared(found: Iterable[bytes]) -> Shared:
    """The texts that share a key of any bucket."""
    places = np.unique(np.concatenate([np.empty(0, _PLACE), *(np.frombuffer(part, _PLACE) for part in found)]))
    return (places >> np.uint64(32)).astype(np.int64), (places & np.uint64(0xFFFFFFFF)).astype(np.int64)
