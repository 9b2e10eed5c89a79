"""Which pictures show the same thing, safely enough for charts: a perceptual hash proposes, the pixels confirm.

Two charts that differ in one digit look the same to every perceptual hash, so a hash only names candidates (`look`,
`proposals`), and `same` decides by the decoded pixels of both: whether one is the other saved or resized again. It
compares piece by piece, because a difference that matters is small and in one place, and what saving does is
everywhere. Where it cannot tell, the answer is no. Crops, frames, watermarks, rotations and screenshots of a picture
are other pictures here.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn

from distill.images import decode
from filters import resaves

VERSION = "1"
"""Raised whenever `look` or `same` may say something else of the same bytes."""

HASH_BYTES = 8
DISTANCE = 6
"""Bits of 64 in which the hashes of two copies may differ."""
SHADE = 12
"""Levels of 255 by which a cell of the small pictures of two copies may differ."""

_GRID = 16
_FLAT = 1.0
_BANDS = 4
_CHUNK = 1 << 20

Hashes = NDArray[np.uint64]
Shades = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is remembered of a picture."""

    phash: bytes
    """64 bits of its coarsest shapes, then the luminance of the picture at 16 by 16, a byte each."""
    flat: bool
    """Too little is to be seen for the hash to mean anything: equal pixels alone propose such a picture."""
    pixels: str
    """Digest of the decoded pixels."""


def look(data: bytes, *, max_pixels: int) -> Look:
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
    return Look(
        phash=np.packbits(bits).tobytes() + np.rint(cells).astype(np.uint8).tobytes(),
        flat=bool(small.std() < _FLAT),
        pixels=digest.hexdigest(),
    )


def same(one: bytes, other: bytes, *, max_pixels: int) -> bool:
    """Whether one picture is the other but for encoding and size. Raises ImageError."""
    return resaves.same(one, other, max_pixels=max_pixels)


def proposals(looks: Sequence[Look], others: Sequence[Look] | None = None) -> Iterator[tuple[int, int]]:
    """Places of pictures that may be the same: one of `looks` and one of `others`, or two of `looks`, smaller first.

    Every pair whose hashes and small pictures are close, once, in order of the first.
    """
    ours = _arrays(looks)
    theirs = ours if others is None else _known(others)
    pairs = (_compared if len(ours[0]) * len(theirs[0]) <= _CHUNK else _banded)(ours, theirs)
    if others is None:
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    yield from map(tuple, pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].tolist())


def clusters(looks: Sequence[Look], confirm: Callable[[int, int], bool]) -> list[int]:
    """For each picture the first place of a picture that shows the same, by equal pixels or confirmed proposals.

    Two pictures that `confirm` was not asked about may end in one cluster through others.
    """
    parents = list(range(len(looks)))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    first: dict[str, int] = {}
    for place, seen in enumerate(looks):
        parents[place] = first.setdefault(seen.pixels, place)
    kept = sorted(first.values())
    for one, other in proposals([looks[place] for place in kept]):
        low, high = sorted((root(kept[one]), root(kept[other])))
        if low != high and confirm(kept[one], kept[other]):
            parents[high] = low
    return [root(place) for place in range(len(looks))]


_Arrays = tuple[Hashes, Shades, NDArray[np.int64]]
"""Hash and small picture of each picture that is not flat, and its place."""

_last: list[tuple[Sequence[Look], _Arrays]] = []


def _known(looks: Sequence[Look]) -> _Arrays:
    """The arrays of looks that are asked about again and again; the last ones are remembered."""
    for known, arrays in _last:
        if known is looks and len(known) == len(looks):
            return arrays
    arrays = _arrays(looks)
    _last[:] = [(looks, arrays)] if isinstance(looks, tuple) else []
    return arrays


def _arrays(looks: Sequence[Look]) -> _Arrays:
    places = np.array([place for place, seen in enumerate(looks) if not seen.flat], dtype=np.int64)
    data = b"".join(looks[place].phash for place in places.tolist())
    table = np.frombuffer(data, dtype=np.uint8).reshape(len(places), HASH_BYTES + _GRID * _GRID)
    hashes = np.ascontiguousarray(table[:, :HASH_BYTES]).view(">u8").astype(np.uint64).ravel()
    return hashes, table[:, HASH_BYTES:], places


def _compared(ours: _Arrays, theirs: _Arrays) -> NDArray[np.int64]:
    """Close pairs by comparing all."""
    apart = np.bitwise_count(ours[0][:, None] ^ theirs[0][None, :])
    return _close(ours, theirs, *np.nonzero(apart <= DISTANCE))


def _banded(ours: _Arrays, theirs: _Arrays) -> NDArray[np.int64]:
    """Close pairs by an index: of two hashes at most 7 bits apart, one quarter differs in one bit at most."""
    width = 64 // _BANDS
    flips = [0, *(1 << bit for bit in range(width))]
    found = [np.empty((0, 2), dtype=np.int64)]
    for band in range(_BANDS):
        shift, mask = np.uint64(band * width), np.uint64((1 << width) - 1)
        keys = (ours[0] >> shift) & mask
        known = (theirs[0] >> shift) & mask
        order = np.argsort(known, kind="stable")
        for flip in flips:
            starts = np.searchsorted(known[order], keys ^ np.uint64(flip), side="left")
            counts = np.searchsorted(known[order], keys ^ np.uint64(flip), side="right") - starts
            for low, high in _pieces(counts):
                one = np.repeat(np.arange(low, high), counts[low:high])
                within = np.arange(len(one)) - np.repeat(
                    np.cumsum(counts[low:high]) - counts[low:high], counts[low:high]
                )
                other = order[np.repeat(starts[low:high], counts[low:high]) + within]
                near = np.bitwise_count(ours[0][one] ^ theirs[0][other]) <= DISTANCE
                found.append(_close(ours, theirs, one[near], other[near]))
    return np.unique(np.concatenate(found), axis=0)


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
    step = max(1, _CHUNK // (_GRID * _GRID))
    for start in range(0, len(one), step):
        left, right = one[start : start + step], other[start : start + step]
        shades = ours[1][left].astype(np.int16) - theirs[1][right]
        near = np.abs(shades).max(axis=1) <= SHADE
        kept.append(np.stack([ours[2][left[near]], theirs[2][right[near]]], axis=1))
    return np.concatenate(kept)
