"""MinHash signatures of texts: one written-down scheme, the same on every machine and in every version.

A text is cut into words, a word is a polynomial over its UTF-8 bytes, `shingle` neighbouring words make one shingle,
and a signature holds the minimum of each of `permutations` multiplications of the shingles. Two signatures agree in a
place with the probability of the texts' Jaccard similarity (Broder 1997). Signatures are cut into `bands`; texts that
share one are candidates, with the probability that `Scheme.candidate_share` gives.

All arithmetic is modulo 2**64 or 2**32, on numpy arrays, many texts at a time: what costs time in finding duplicates
is not the minima but the shingles. Nothing here reads or writes a file.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filters.text import composed, spaced

Hashes = NDArray[np.uint64]
Signatures = NDArray[np.uint32]
Digests = NDArray[np.bytes_]
"""Digests of the words of texts, 16 bytes each. S16 compares and sorts them as they are."""

_BASE = 0x9FB21C651E98DF25
_BATCH_BYTES = 1 << 17
"""Text worked on at once: its arrays stay in the second-level cache."""
# What str.split() takes for space, in ASCII.
_IS_LETTER = bytes([chr(byte).split() != [] for byte in range(128)] + [True] * 128)
# And what it takes for space beyond ASCII.
_OTHER_SPACES = "".join(chr(code) for code in range(128, 0x3001) if chr(code).isspace())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """All that a signature depends on. An index names its scheme and cannot be read under another one."""

    version: int = 1
    shingle: int = 5
    bands: int = 16
    rows: int = 6

    @property
    def permutations(self) -> int:
        return self.bands * self.rows

    def candidate_share(self, jaccard: float) -> float:
        """The share of pairs of this similarity that become candidates: 1 - (1 - J^rows)^bands."""
        return 1.0 - (1.0 - jaccard**self.rows) ** self.bands

    def as_fields(self) -> dict[str, Any]:
        return {"name": "distill-minhash", **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What is kept of each text: a digest of its words, and its signature (texts, permutations)."""

    digests: Digests
    signatures: Signatures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """The hashes of the words of several texts; those of text i are hashes[starts[i]:starts[i + 1]]."""

    hashes: Hashes
    starts: NDArray[np.int64]


def sign(texts: Sequence[str], scheme: Scheme) -> Signed:
    """Digests and signatures. The signature of a text without words is all ones."""
    signed = [_sign(batch, scheme) for batch in _batches(texts)]
    if not signed:
        return Signed(digests=np.empty(0, "S16"), signatures=np.empty((0, scheme.permutations), np.uint32))
    return Signed(
        digests=np.concatenate([part.digests for part in signed]),
        signatures=np.concatenate([part.signatures for part in signed]),
    )


def shingles(text: str, size: int) -> frozenset[int]:
    """The different shingles of one text. A text shorter than a shingle is one, so that it can equal only itself."""
    hashes, _ = _shingled(_words([_plain(text)]), size)
    return frozenset(hashes.tolist())


def jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    """The similarity of two texts by their shingles: exact, but for a collision of 64-bit hashes."""
    common = len(one & other)
    return common / (len(one) + len(other) - common or 1)


def band_keys(signatures: Signatures, scheme: Scheme) -> Hashes:
    """The key of every band, (bands, texts)."""
    cut = signatures.reshape(len(signatures), scheme.bands, scheme.rows).astype(np.uint64)
    keys = _mixed((cut * _odd("band", scheme.rows)).sum(axis=2, dtype=np.uint64))
    return np.ascontiguousarray(keys.T)


def agreement(one: Signatures, other: Signatures) -> NDArray[np.float64]:
    """The share of places in which signatures agree, row by row: an estimate of the Jaccard similarity."""
    share: NDArray[np.float64] = (one == other).mean(axis=1)
    return share


def _batches(texts: Sequence[str]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for text in texts:
        encoded = _plain(text)
        if batch and size + len(encoded) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(encoded)
        size += len(encoded) + 1
    if batch:
        yield batch


def _plain(text: str) -> bytes:
    """A text in which only ASCII space stands between words, as bytes."""
    if text.isascii():
        return text.encode()
    plain = spaced(composed(text))
    if any(space in plain for space in _OTHER_SPACES):
        plain = " ".join(plain.split())
    return plain.encode("utf-8", "surrogatepass")


def _sign(encoded: list[bytes], scheme: Scheme) -> Signed:
    words = _words(encoded)
    hashes, starts = _shingled(words, scheme.shingle)
    bounds = (words.starts * 8).tolist()
    data = memoryview(words.hashes.tobytes())
    digests = b"".join(
        hashlib.blake2b(data[bounds[text] : bounds[text + 1]], digest_size=16).digest()
        for text in range(len(encoded))
    )
    return Signed(
        digests=np.frombuffer(digests, "S16"), signatures=_minima((hashes >> np.uint64(32)), starts, scheme)
    )


def _words(encoded: Sequence[bytes]) -> _Words:
    """A word is the sum of its bytes times rising powers of an odd number.

    With powers counted from the beginning of the batch, the sums of all words are differences of one running sum,
    and the inverse power of a word's place makes them what they would be at the beginning.
    """
    joined = b"\n".join([*encoded, b""])
    data = np.frombuffer(joined, np.uint8)
    ends = np.cumsum([len(text) + 1 for text in encoded], dtype=np.int64)
    powers, inverses = _powers(1 << (len(data) + 1).bit_length())
    letter = np.frombuffer(joined.translate(_IS_LETTER), bool)
    turns = np.flatnonzero(letter[1:] != letter[:-1]) + 1
    # The data end with a line break, so that every word that begins also stops.
    edges = np.concatenate([np.flatnonzero(letter[:1]), turns])
    begins, stops = edges[::2], edges[1::2]
    sums = np.zeros(len(data) + 1, np.uint64)
    # In place: fresh arrays of this size cost more than the arithmetic.
    np.add(data, np.uint64(1), out=sums[1:])
    sums[1:] *= powers[: len(data)]
    np.cumsum(sums[1:], out=sums[1:])
    hashes = _mixed((sums[stops] - sums[begins]) * inverses[begins])
    return _Words(hashes=hashes, starts=np.concatenate([[0], np.searchsorted(begins, ends)]))


def _shingled(words: _Words, size: int) -> tuple[Hashes, NDArray[np.int64]]:
    """Hashes of the shingles of each text, repeated ones included, and where each text's begin."""
    counts = np.diff(words.starts)
    kept = np.where(counts < size, np.minimum(counts, 1), counts - size + 1)
    starts = np.concatenate([[0], np.cumsum(kept)])
    total = len(words.hashes)
    if not total:
        return words.hashes, starts
    factors = _odd("shingle", size)
    padded = np.concatenate([words.hashes, np.zeros(size - 1, np.uint64)])
    rolled = padded[:total] * factors[0]
    for place in range(1, size):
        rolled += padded[place : place + total] * factors[place]
    for text in np.flatnonzero((counts < size) & (counts > 0)).tolist():
        first = words.starts[text]
        own = words.hashes[first : first + counts[text]]
        # The count keeps a short text apart from the beginning of a longer one.
        rolled[first] = (own * factors[: len(own)]).sum(dtype=np.uint64) + np.uint64(len(own))
    # The last words of a text begin no shingle: theirs would reach into the next text.
    within = np.arange(total) - np.repeat(words.starts[:-1], counts)
    return _mixed(rolled[within < np.repeat(kept, counts)]), starts


def _minima(hashes: Hashes, starts: NDArray[np.int64], scheme: Scheme) -> Signatures:
    result = np.full((len(starts) - 1, scheme.permutations), np.iinfo(np.uint32).max, np.uint32)
    small = hashes.astype(np.uint32)
    filled = np.flatnonzero(np.diff(starts))
    minima = np.empty((scheme.permutations, len(filled)), np.uint32)
    products = np.empty_like(small)
    # One permutation of all texts at a time: long rows times one number are what numpy multiplies fastest.
    for factor, own in zip(_odd("permutation", scheme.permutations).astype(np.uint32), minima, strict=True):
        np.multiply(small, factor, out=products)
        np.minimum.reduceat(products, starts[filled], out=own)
    result[filled] = minima.T
    return result


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele et al. 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed


@lru_cache(maxsize=16)
def _odd(purpose: str, count: int) -> Hashes:
    """Odd factors by name: from a named hash, so that no library's random generator decides."""
    values = [hashlib.blake2b(f"{purpose} {place}".encode(), digest_size=8).digest() for place in range(count)]
    return np.frombuffer(b"".join(values), "<u8").astype(np.uint64) | np.uint64(1)


@lru_cache(maxsize=4)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """The first powers of the base and of its inverse modulo 2**64."""
    return _running_powers(_BASE, count), _running_powers(pow(_BASE, -1, 1 << 64), count)


def _running_powers(base: int, count: int) -> Hashes:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
