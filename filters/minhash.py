"""MinHash signatures of texts: one written-down scheme, the same on every machine and in every version.

A text is cut into shingles of words (`filters.hashes`), and a signature holds the minimum of each of `permutations`
multiplications of their hashes. Two signatures agree in a place with the probability of the texts' Jaccard similarity
(Broder 1997). Signatures are cut into `bands`; texts that share one are candidates, with the probability that
`Scheme.candidate_share` gives.

All arithmetic is modulo 2**64 or 2**32, on numpy arrays, many texts at a time. Nothing here reads or writes a file.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filters.hashes import Hashed, Hashes, encoded, hashed_words, mixed, odd, shingled
from filters.text import composed

Signatures = NDArray[np.uint32]
Digests = NDArray[np.bytes_]
"""Digests of the words of texts, 16 bytes each. S16 compares and sorts them as they are."""

_BATCH_BYTES = 1 << 17
"""Text worked on at once: its arrays stay in the second-level cache."""


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
    (runs,) = shingled(_words([encoded(composed(text))]), size)
    return frozenset(runs.tolist())


def jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    """The similarity of two texts by their shingles: exact, but for a collision of 64-bit hashes."""
    common = len(one & other)
    return common / (len(one) + len(other) - common or 1)


def band_keys(signatures: Signatures, scheme: Scheme) -> Hashes:
    """The key of every band, (bands, texts)."""
    cut = signatures.reshape(len(signatures), scheme.bands, scheme.rows).astype(np.uint64)
    keys = mixed((cut * odd("band", scheme.rows)).sum(axis=2, dtype=np.uint64))
    return np.ascontiguousarray(keys.T)


def agreement(one: Signatures, other: Signatures) -> NDArray[np.float64]:
    """The share of places in which signatures agree, row by row: an estimate of the Jaccard similarity."""
    share: NDArray[np.float64] = (one == other).mean(axis=1)
    return share


def _batches(texts: Sequence[str]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for text in texts:
        plain = encoded(composed(text))
        if batch and size + len(plain) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(plain)
        size += len(plain) + 1
    if batch:
        yield batch


def _sign(texts: list[bytes], scheme: Scheme) -> Signed:
    words = _words(texts)
    digests = b"".join(hashlib.blake2b(own.tobytes(), digest_size=16).digest() for own in words)
    return Signed(digests=np.frombuffer(digests, "S16"), signatures=_minima(shingled(words, scheme.shingle), scheme))


def _words(texts: list[bytes]) -> Hashed:
    words = hashed_words(texts)
    return Hashed(hashes=mixed(words.hashes), starts=words.starts)


def _minima(runs: list[Hashes], scheme: Scheme) -> Signatures:
    small = (mixed(np.concatenate(runs)) >> np.uint64(32)).astype(np.uint32)
    starts = np.cumsum([0, *map(len, runs)])
    result = np.full((len(starts) - 1, scheme.permutations), np.iinfo(np.uint32).max, np.uint32)
    filled = np.flatnonzero(np.diff(starts))
    minima = np.empty((scheme.permutations, len(filled)), np.uint32)
    products = np.empty_like(small)
    # One permutation of all texts at a time: long rows times one number are what numpy multiplies fastest.
    for factor, own in zip(odd("permutation", scheme.permutations).astype(np.uint32), minima, strict=True):
        np.multiply(small, factor, out=products)
        np.minimum.reduceat(products, starts[filled], out=own)
    result[filled] = minima.T
    return result
