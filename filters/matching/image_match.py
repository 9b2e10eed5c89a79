"""Which pictures show the same thing, safely enough for charts: a perceptual hash proposes, the pixels confirm.

Two charts that differ in one digit look the same to every perceptual hash, so a hash only names candidates (`look`,
`proposals`), and `same` decides by the decoded pixels of both: whether one is the other saved or resized again. It
compares piece by piece, because a difference that matters is small and in one place, and what saving does is
everywhere. Where it cannot tell, the answer is no. Crops, frames, watermarks, rotations and screenshots of a picture
are other pictures here.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn

from distill.data.images import decode
from filters.matching import image_compare

VERSION = "1"
"""Raised whenever `look` or `same` may say something else of the same bytes."""

HASH_BYTES = 8
DISTANCE = 8
"""Bits of 64 in which the hashes of two copies may differ."""
SHADE = 20
"""Levels of 255 by which a cell of the small pictures of two copies may differ."""

_GRID = 16
_FLAT = 1.0
_BANDS = 5
_BAND_BITS = 13
_FLIPS = (0, *(1 << bit for bit in range(_BAND_BITS)))
_ROWS = 1024
_ALL_PAIRS = 1 << 24
"""Pairs that are compared one by one rather than through an index."""
_INDEXED_COST = 8
"""Times that a pair from the index costs more than one of all pairs."""
_CHUNK = 1 << 20

Confirm = Callable[[list[tuple[int, int]]], Iterable[bool]]
"""Whether the pictures at these pairs of places are the same."""
Hashes = NDArray[np.uint64]
Shades = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHashes:
    """What is remembered of a picture."""

    phash: bytes
    """64 bits of its coarsest shapes, then the luminance of the picture at 16 by 16, a byte each."""
    flat: bool
    """Too little is to be seen for the hash to mean anything: equal pixels alone propose such a picture."""
    pixels: str
    """Digest of the decoded pixels."""


def look(data: bytes, *, max_pixels: int) -> ImageHashes:
    """Raises ImageError when the bytes cannot be decoded."""
    image = decode(data, max_pixels=max_pixels)
    digest = hashlib.blake2b(f"{image.width} {image.height}\n".encode(), digest_size=16)
    digest.update(image.tobytes())
    grey = image.convert("L")
    small = np.asarray(grey.resize((32, 32), Image.Resampling.BOX), dtype=np.float64)
    cells = small.reshape(_GRID, 2, _GRID, 2).mean(axis=(1, 3))
    waves = dctn(small, norm="ortho")[:8, :8].ravel()
    bits = waves > np.median(waves[1:])
    bits[0] = False
    return ImageHashes(
        phash=np.packbits(bits).tobytes() + np.rint(cells).astype(np.uint8).tobytes(),
        flat=bool(small.std() < _FLAT),
        pixels=digest.hexdigest(),
    )


def same(one: bytes, other: bytes, *, max_pixels: int) -> bool:
    """Whether one picture is the other but for encoding and size. Raises ImageError."""
    return image_compare.same(one, other, max_pixels=max_pixels)


def proposals(looks: Sequence[ImageHashes], others: Sequence[ImageHashes] | None = None) -> Iterator[tuple[int, int]]:
    """Places of pictures that may be the same: one of `looks` and one of `others`, or two of `looks`, smaller first.

    Every pair whose hashes and small pictures are close, once, in order.
    """
    ours = _arrays(looks)
    theirs = _Index(ours if others is None else _remembered(others))
    for start in range(0, len(ours.hashes), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(ours.hashes)))
        pairs = [_close(ours, theirs.known, one, other) for one, other in theirs.near(ours.hashes, rows)]
        found = np.unique(np.concatenate(pairs), axis=0) if pairs else np.empty((0, 2), np.int64)
        if others is None:
            found = found[found[:, 0] < found[:, 1]]
        yield from map(tuple, found.tolist())


def clusters(looks: Sequence[ImageHashes], confirm: Confirm, *, batch: int = 1) -> list[int]:
    """For each picture the first place of a picture that shows the same, by equal pixels or confirmed proposals.

    `confirm` judges up to `batch` pairs at a time and is not asked about two that others already put together, so
    the clusters are the same in whatever order it is asked.
    """
    first: dict[str, int] = {}
    parents = [first.setdefault(seen.pixels, place) for place, seen in enumerate(looks)]

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    kept = sorted(first.values())
    pairs = ((kept[one], kept[other]) for one, other in proposals([looks[place] for place in kept]))
    apart = ((one, other) for one, other in pairs if root(one) != root(other))
    while asked := list(islice(apart, batch)):
        for (one, other), agreed in zip(asked, confirm(asked), strict=True):
            if agreed:
                low, high = sorted((root(one), root(other)))
                parents[high] = low
    return [root(place) for place in range(len(looks))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrays:
    """The pictures that are not flat."""

    hashes: Hashes
    shades: Shades
    places: NDArray[np.int64]


def _arrays(looks: Sequence[ImageHashes]) -> _Arrays:
    places = np.array([place for place, seen in enumerate(looks) if not seen.flat], dtype=np.int64)
    data = b"".join(looks[place].phash for place in places.tolist())
    table = np.frombuffer(data, dtype=np.uint8).reshape(len(places), HASH_BYTES + _GRID * _GRID)
    hashes = np.ascontiguousarray(table[:, :HASH_BYTES]).view(">u8").astype(np.uint64).ravel()
    return _Arrays(hashes=hashes, shades=table[:, HASH_BYTES:], places=places)


_last: list[tuple[Sequence[ImageHashes], _Arrays]] = []


def _remembered(looks: Sequence[ImageHashes]) -> _Arrays:
    """The arrays of looks that are asked about one picture at a time; those of the last tuple are kept."""
    for known, arrays in _last:
        if known is looks:
            return arrays
    arrays = _arrays(looks)
    _last[:] = [(looks, arrays)] if isinstance(looks, tuple) else []
    return arrays


class _Index:
    """Finds hashes that are close. Of two hashes at most 9 bits apart, one fifth differs in one bit at most."""

    def __init__(self, known: _Arrays) -> None:
        self.known = known
        self._bands: list[tuple[NDArray[np.int64], Hashes]] = []

    def near(self, hashes: Hashes, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Pairs of one of these rows and a known one, in pieces; a pair may come more than once."""
        if len(rows) * len(self.known.hashes) <= _ALL_PAIRS:
            yield from self._all(hashes, rows)
            return
        runs = [self._run(hashes[rows], band, flip) for band in range(_BANDS) for flip in _FLIPS]
        if sum(int(counts.sum()) for _, _, counts in runs) * _INDEXED_COST > len(rows) * len(self.known.hashes):
            yield from self._all(hashes, rows)  # pictures so much alike that the index leads to most of them
            return
        for order, starts, counts in runs:
            for low, high in _pieces(counts):
                own = counts[low:high]
                within = np.arange(int(own.sum())) - np.repeat(np.cumsum(own) - own, own)
                one, other = np.repeat(rows[low:high], own), order[np.repeat(starts[low:high], own) + within]
                near = np.bitwise_count(hashes[one] ^ self.known.hashes[other]) <= DISTANCE
                yield one[near], other[near]

    def _all(self, hashes: Hashes, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        step = max(1, _CHUNK // max(1, len(self.known.hashes)))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            one, other = np.nonzero(np.bitwise_count(hashes[part, None] ^ self.known.hashes) <= DISTANCE)
            yield part[one], other

    def _run(
        self, hashes: Hashes, band: int, flip: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The known rows in the order of a band, and for each hash where its run begins in it and how long it is."""
        if not self._bands:
            for number in range(_BANDS):
                keys = _key(self.known.hashes, number)
                order = np.argsort(keys, kind="stable")
                self._bands.append((order, keys[order]))
        order, keys = self._bands[band]
        wanted = _key(hashes, band) ^ np.uint64(flip)
        starts = np.searchsorted(keys, wanted, side="left")
        return order, starts, np.searchsorted(keys, wanted, side="right") - starts


def _key(hashes: Hashes, band: int) -> Hashes:
    return (hashes >> np.uint64(band * _BAND_BITS)) & np.uint64((1 << _BAND_BITS) - 1)


def _pieces(counts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of rows with some _CHUNK pairs each."""
    ends = np.cumsum(counts)
    low = 0
    while low < len(counts):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
        yield low, high
        low = high


def _close(ours: _Arrays, theirs: _Arrays, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of those pairs whose small pictures are close too."""
    kept = [np.empty((0, 2), dtype=np.int64)]
    step = _CHUNK // (_GRID * _GRID)
    for start in range(0, len(one), step):
        left, right = one[start : start + step], other[start : start + step]
        shades = ours.shades[left].astype(np.int16) - theirs.shades[right]
        near = np.abs(shades).max(axis=1, initial=0) <= SHADE
        kept.append(np.stack([ours.places[left[near]], theirs.places[right[near]]], axis=1))
    return np.concatenate(kept)
