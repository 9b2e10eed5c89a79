"""Which images show the same thing, safely enough for charts: a perceptual hash proposes, the pixels confirm.

Two charts that differ in one digit have the same perceptual hash. So a hash only names candidates (`hash_image`,
`propose_pairs`), and `is_same_image` decides by the decoded pixels whether one image is the other one, saved or
resized again. It compares area by area, because an important difference is small and local and the damage of saving
is everywhere. In doubt the answer is no. Crops, frames, watermarks, rotations and screenshots of an image are other
images here.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from distill.data.images.image_files import decode, read_bytes
from distill.machine.thread_map import thread_map
from distill.types import ImageRef
from filters.matching.connected_rows import ConnectedRows
from filters.matching.image_compare import is_same_image as is_same_image

VERSION = "1"
"""Raised whenever `hash_image` or `is_same_image` may give another result for the same bytes."""

HASH_BYTES = 8
DISTANCE = 8
"""Bits of 64 in which the hashes of two copies may differ."""
SHADE = 20
"""Levels of 255 by which a cell of the small images of two copies may differ."""

_THREADS = 4
_BLOCK = 16
"""Pictures that a thread takes at once: to hand over a single small one costs a third of its hashes."""
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
"""Whether the images of each pair of positions are the same."""
Hashes = NDArray[np.uint64]
Shades = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHashes:
    """Hashes of an image."""

    phash: bytes
    """64 bits of its coarsest shapes, then the luminance of the image at 16 by 16, a byte each."""
    flat: bool
    """The image has too little detail for a meaningful hash: only equal pixels propose it."""
    pixels: str
    """Digest of the decoded pixels."""
    one_colour: bool = False
    """All pixels are equal, so the image shows nothing. A page with one line of text is only `flat`."""


def hash_image(data: bytes, *, max_pixels: int) -> ImageHashes:
    """Compute the hashes of an image. Raises ImageError when the bytes cannot be decoded."""
    from scipy.fft import dctn  # 0.3 s to import: most filter runs compare no images

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
        one_colour=image.getcolors(1) is not None,
    )


def hash_refs(refs: Sequence[ImageRef], *, max_pixels: int) -> list[ImageHashes]:
    """The hashes of images, in their order, by a few threads. Raises ImageError."""

    def hash_block(start: int) -> list[ImageHashes]:
        return [hash_image(read_bytes(ref), max_pixels=max_pixels) for ref in refs[start : start + _BLOCK]]

    return list(chain.from_iterable(thread_map(hash_block, range(0, len(refs), _BLOCK), _THREADS)))


def propose_pairs(
    images: Sequence[ImageHashes], known_images: Sequence[ImageHashes] | None = None
) -> Iterator[tuple[int, int]]:
    """Positions of images that may be the same: in `images` and `known_images`, or both in `images`, smaller first.

    Every pair whose hashes and small images are close, once, in order.
    """
    arrays = _arrays(images)
    known_index = _Index(arrays if known_images is None else _cached_arrays(known_images))
    for start in range(0, len(arrays.hashes), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(arrays.hashes)))
        pairs = [
            _close_pairs(arrays, known_index.known, left, right)
            for left, right in known_index.near(arrays.hashes, rows)
        ]
        confirmed = np.unique(np.concatenate(pairs), axis=0) if pairs else np.empty((0, 2), np.int64)
        if known_images is None:
            confirmed = confirmed[confirmed[:, 0] < confirmed[:, 1]]
        yield from map(tuple, confirmed.tolist())


def cluster_images(images: Sequence[ImageHashes], confirm: Confirm, *, batch: int = 1) -> list[int]:
    """For each image the first position of an image that shows the same: equal pixels or confirmed proposals.

    `confirm` judges up to `batch` pairs at a time. Pairs that are already in one cluster are not judged, so the order
    of the calls does not change the clusters.
    """
    first: dict[str, int] = {}
    connected = ConnectedRows(len(images))
    for index, image in enumerate(images):
        connected.join(first.setdefault(image.pixels, index), index)
    distinct = sorted(first.values())
    pairs = (
        (distinct[left], distinct[right]) for left, right in propose_pairs([images[index] for index in distinct])
    )
    unjoined = ((left, right) for left, right in pairs if connected.root(left) != connected.root(right))
    while pairs_to_confirm := list(islice(unjoined, batch)):
        for (left, right), is_same in zip(pairs_to_confirm, confirm(pairs_to_confirm), strict=True):
            if is_same:
                connected.join(left, right)
    return list(map(connected.root, range(len(images))))


def cluster_refs(refs: Sequence[ImageRef], *, max_pixels: int) -> tuple[list[ImageHashes], list[int]]:
    """The hashes of images, and what `cluster_images` says of them. Raises ImageError."""

    def confirm(pairs: Sequence[tuple[int, int]]) -> Iterator[bool]:
        for pair in pairs:
            left, right = (read_bytes(refs[index]) for index in pair)
            yield is_same_image(left, right, max_pixels=max_pixels)

    hashes = hash_refs(refs, max_pixels=max_pixels)
    return hashes, cluster_images(hashes, confirm)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrays:
    """The images that are not flat."""

    hashes: Hashes
    shades: Shades
    positions: NDArray[np.int64]


def _arrays(images: Sequence[ImageHashes]) -> _Arrays:
    positions = np.array([index for index, image in enumerate(images) if not image.flat], dtype=np.int64)
    data = b"".join(images[index].phash for index in positions.tolist())
    table = np.frombuffer(data, dtype=np.uint8).reshape(len(positions), HASH_BYTES + _GRID * _GRID)
    hashes = np.ascontiguousarray(table[:, :HASH_BYTES]).view(">u8").astype(np.uint64).ravel()
    return _Arrays(hashes=hashes, shades=table[:, HASH_BYTES:], positions=positions)


_last: list[tuple[Sequence[ImageHashes], _Arrays]] = []


def _cached_arrays(images: Sequence[ImageHashes]) -> _Arrays:
    """The arrays of images; the arrays of the last tuple are cached, for calls with one image at a time."""
    for known_images, arrays in _last:
        if known_images is images:
            return arrays
    arrays = _arrays(images)
    _last[:] = [(images, arrays)] if isinstance(images, tuple) else []
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
            yield from self._all(hashes, rows)  # the images are so similar that the index gives most pairs
            return
        for order, starts, counts in runs:
            for first, last in _pieces(counts):
                pair_counts = counts[first:last]
                within = np.arange(int(pair_counts.sum())) - np.repeat(
                    np.cumsum(pair_counts) - pair_counts, pair_counts
                )
                row, known_row = (
                    np.repeat(rows[first:last], pair_counts),
                    order[np.repeat(starts[first:last], pair_counts) + within],
                )
                near = np.bitwise_count(hashes[row] ^ self.known.hashes[known_row]) <= DISTANCE
                yield row[near], known_row[near]

    def _all(self, hashes: Hashes, rows: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        step = max(1, _CHUNK // max(1, len(self.known.hashes)))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            part_row, known_row = np.nonzero(np.bitwise_count(hashes[part, None] ^ self.known.hashes) <= DISTANCE)
            yield part[part_row], known_row

    def _run(
        self, hashes: Hashes, band: int, flip: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The known rows in the order of a band, and for each hash where its run begins in it and how long it is."""
        if not self._bands:
            for number in range(_BANDS):
                keys = _band_key(self.known.hashes, number)
                order = np.argsort(keys, kind="stable")
                self._bands.append((order, keys[order]))
        order, keys = self._bands[band]
        wanted_keys = _band_key(hashes, band) ^ np.uint64(flip)
        starts = np.searchsorted(keys, wanted_keys, side="left")
        return order, starts, np.searchsorted(keys, wanted_keys, side="right") - starts


def _band_key(hashes: Hashes, band: int) -> Hashes:
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


def _close_pairs(
    arrays: _Arrays, known_arrays: _Arrays, rows: NDArray[np.int64], known_rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The positions of those pairs whose small images are close too."""
    close_pairs = [np.empty((0, 2), dtype=np.int64)]
    step = _CHUNK // (_GRID * _GRID)
    for start in range(0, len(rows), step):
        left, right = rows[start : start + step], known_rows[start : start + step]
        shades = arrays.shades[left].astype(np.int16) - known_arrays.shades[right]
        near = np.abs(shades).max(axis=1, initial=0) <= SHADE
        close_pairs.append(np.stack([arrays.positions[left[near]], known_arrays.positions[right[near]]], axis=1))
    return np.concatenate(close_pairs)
