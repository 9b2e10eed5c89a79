"""MinHash signatures of texts: one written-down scheme, the same on every machine and in every version.

A text is cut into shingles of its content: its words without case, layout and fillers
(`filters.text.values_and_names`). Its values are mixed into every shingle, so texts with different values share no
shingle and are never near duplicates. A signature holds the minimum of each of `permutations` multiplications of the
shingles' hashes. The probability that a value of two signatures is equal is the texts' Jaccard similarity (Broder
1997). Signatures are cut into `bands`; two texts with an equal band are candidates, with the probability 1 - (1 -
J^rows)^bands. One edited word takes three shingles of a short text, which may then share no band. So a signature ends
with hashes of the first and of the last half of the words: one edit leaves one half as it was.

All arithmetic is modulo 2**64 or 2**32, on numpy arrays, many texts at a time. Nothing here reads or writes a file.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from filters.text.edits import say_the_same
from filters.text.shared_texts import forget_with_texts
from filters.text.shingles import Hashed, Hashes, hash_shingles, join_hashes, mix_bits, odd_factors, running_powers
from filters.text.values_and_names import Form, compute_forms

Signatures = NDArray[np.uint32]
Digests = NDArray[np.bytes_]
"""Digests of the words of texts, 16 bytes each. S16 compares and sorts them as they are."""

_BATCH_CHARACTERS = 1 << 17
"""Text worked on at once: its arrays stay in the second-level cache."""
_HALVES = 4
"""Hashes of halves: the first and the last words, each cut at two lengths (`_hash_halves`)."""
_LONGEST_HALVED = 64
"""Words of content. A longer text with one word in a hundred edited shares a band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """All that a signature depends on. An index names its scheme and cannot be read under another one."""

    version: int = 11
    shingle: int = 3
    bands: int = 16
    rows: int = 6

    @property
    def permutations(self) -> int:
        return self.bands * self.rows

    @property
    def width(self) -> int:
        """Numbers in a signature: a half's hash is two."""
        return self.permutations + 2 * _HALVES

    @property
    def keys(self) -> int:
        """Keys of a text: its bands, then its halves."""
        return self.bands + _HALVES

    def as_fields(self) -> dict[str, Any]:
        return {"name": "distill-minhash", **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """What is kept of each text: a digest of its words, its signature (texts, width), and two hashes of
    `filters.text.values_and_names`: its names, and its template."""

    digests: Digests
    signatures: Signatures
    names: Hashes
    templates: Hashes


NO_WORDS: Final[bytes] = hashlib.blake2b(digest_size=16).digest()
"""The digest of a text without words. To sign one would load the lists of words, which takes 0.3 s."""


def sign(texts: Sequence[str], scheme: Scheme) -> Signed:
    """Digests and signatures. The signature of a text without words is all ones."""
    signed = [_sign(batch, scheme) for batch in batches(texts)] or [_sign([], scheme)]
    return Signed(
        digests=np.concatenate([part.digests for part in signed]),
        signatures=np.concatenate([part.signatures for part in signed]),
        names=np.concatenate([part.names for part in signed]),
        templates=np.concatenate([part.templates for part in signed]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShingledText:
    """The shingles and the form of a text, for comparison with another text."""

    shingles: frozenset[int]
    """A text shorter than a shingle is one shingle, so that only the same text equals it."""
    form: Form


def shingle_texts(texts: Sequence[str], size: int) -> Iterator[ShingledText]:
    """The distinct shingles of each text, and its form."""
    for batch in batches(texts):
        forms = compute_forms(batch).split()
        for hashes, form in zip(hash_shingles(_with_values(forms), size), forms, strict=True):
            yield ShingledText(shingles=frozenset(hashes.tolist()), form=form)


_known_forms: dict[str, Form] = {}
forget_with_texts(_known_forms.clear)


def remember_forms(texts: Sequence[str]) -> None:
    """Compute the forms of many texts at once, which takes half the time; until texts are forgotten."""
    for batch in batches(list(dict.fromkeys(texts))):
        _known_forms.update(zip(batch, compute_forms(batch).split(), strict=True))


def forms_of(texts: Sequence[str]) -> list[Form]:
    """The form of each text: those that are remembered, or computed now."""
    missing = [text for text in texts if text not in _known_forms]
    computed = iter([form for batch in batches(missing) for form in compute_forms(batch).split()])
    return [_known_forms[text] if text in _known_forms else next(computed) for text in texts]


def _with_values(forms: Sequence[Form]) -> Hashed:
    """The content with the values of its text mixed in, so that texts with different values share no shingle."""
    return join_hashes([form.content ^ np.uint64(form.values) for form in forms])


def shingles(text: str, size: int) -> frozenset[int]:
    (shingled_text,) = shingle_texts([text], size)
    return shingled_text.shingles


def are_near(left: ShingledText, right: ShingledText, threshold: float) -> bool:
    """Whether two texts are near duplicates."""
    return say_the_same(left.form, right.form, jaccard(left.shingles, right.shingles), threshold)


def jaccard(left: frozenset[int], right: frozenset[int]) -> float:
    """The similarity of two texts by their shingles: exact, but for a collision of 64-bit hashes."""
    common = len(left & right)
    return common / (len(left) + len(right) - common or 1)


def band_keys(signatures: Signatures, scheme: Scheme) -> Hashes:
    """The key of every band, then of every half, (keys, texts)."""
    bands = signatures[:, : scheme.permutations].reshape(len(signatures), scheme.bands, scheme.rows).astype(np.uint64)
    keys = mix_bits((bands * odd_factors("band", scheme.rows)).sum(axis=2, dtype=np.uint64))
    halves = signatures[:, scheme.permutations :].astype(np.uint64)
    return np.ascontiguousarray(np.concatenate([keys, halves[:, 0::2] << np.uint64(32) | halves[:, 1::2]], axis=1).T)


def signature_agreement(left: Signatures, right: Signatures) -> NDArray[np.float64]:
    """The share of equal minima of two signatures, row by row: an estimate of the Jaccard similarity."""
    minima = slice(-2 * _HALVES)
    share: NDArray[np.float64] = (left[:, minima] == right[:, minima]).mean(axis=1)
    return share


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text) + 1
    if batch:
        yield batch


def _sign(texts: list[str], scheme: Scheme) -> Signed:
    forms = forms_of(texts)
    digests = b"".join(hashlib.blake2b(form.words.tobytes(), digest_size=16).digest() for form in forms)
    content = _with_values(forms)
    minima = _minima(hash_shingles(content, scheme.shingle), scheme)
    return Signed(
        digests=np.frombuffer(digests, "S16"),
        signatures=np.concatenate([minima, _hash_halves(content)], axis=1),
        names=np.array([form.names for form in forms], np.uint64),
        templates=np.array([form.template for form in forms], np.uint64),
    )


def _minima(runs: list[Hashes], scheme: Scheme) -> Signatures:
    if not runs:
        return np.empty((0, scheme.permutations), np.uint32)
    small = (mix_bits(np.concatenate(runs)) >> np.uint64(32)).astype(np.uint32)
    starts = np.cumsum([0, *map(len, runs)])
    result = np.full((len(starts) - 1, scheme.permutations), np.iinfo(np.uint32).max, np.uint32)
    filled = np.flatnonzero(np.diff(starts))
    minima = np.empty((scheme.permutations, len(filled)), np.uint32)
    products = np.empty_like(small)
    # One permutation of all texts at a time: long rows times one number are what numpy multiplies fastest.
    for factor, minima_row in zip(
        odd_factors("permutation", scheme.permutations).astype(np.uint32), minima, strict=True
    ):
        np.multiply(small, factor, out=products)
        np.minimum.reduceat(products, starts[filled], out=minima_row)
    result[filled] = minima.T
    return result


def _hash_halves(content: Hashed) -> Signatures:
    """For each text the hashes of its first and its last words, as two numbers each.

    One cut has the same length for 4i to 4i + 3 words, the other cut for 4i - 2 to 4i + 1 words. So two texts that
    differ by one word share at least one of the cuts. A text that is too long counts as a whole.
    """
    starts, stops = np.array(content.starts[:-1], np.int64), np.array(content.starts[1:], np.int64)
    lengths = stops - starts
    powers, inverses = running_powers(1 << len(content.hashes).bit_length())
    sums = np.zeros(len(content.hashes) + 1, np.uint64)
    np.cumsum(content.hashes * powers[: len(content.hashes)], out=sums[1:])
    halves = np.empty((len(lengths), _HALVES), np.uint64)
    for index, cut in enumerate((2 * (lengths // 4), 2 * ((lengths + 2) // 4) - 1)):
        cut = np.where((lengths > _LONGEST_HALVED) | (cut < 1), lengths, cut)
        firsts = (sums[starts + cut] - sums[starts]) * inverses[starts]
        lasts = (sums[stops] - sums[stops - cut]) * inverses[stops - cut]
        for place, hashes in ((2 * index, firsts), (2 * index + 1, lasts)):
            halves[:, place] = mix_bits(hashes + np.uint64(place) + cut.astype(np.uint64) * np.uint64(_HALVES))
    halves[lengths == 0] = np.iinfo(np.uint64).max
    parts = np.stack([halves >> np.uint64(32), halves & np.uint64(0xFFFFFFFF)], axis=2)
    return parts.astype(np.uint32).reshape(len(lengths), 2 * _HALVES)
