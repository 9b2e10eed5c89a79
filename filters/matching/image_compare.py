"""Whether one picture is another one saved or resized again, by their pixels.

One of the two is taken as the original and given the size of the other, with whichever customary filter comes
closest; where the other is a JPEG file, it is also encoded with that file's own tables. What saving does is thereby
done to both. What is left is compared piece by piece with how much there is to see at that place (saving disturbs
edges and writing, hardly plain areas) and with how much the pair differs in general: a changed digit stands out.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, JpegImagePlugin
from scipy.ndimage import uniform_filter

from distill.data.images import decode

MOST_SHRUNK = 4.0
"""Times that one picture may be wider than the other: beyond it small writing can no longer be compared."""

_FILTERS = (
    Image.Resampling.BOX,
    Image.Resampling.BILINEAR,
    Image.Resampling.HAMMING,
    Image.Resampling.BICUBIC,
    Image.Resampling.LANCZOS,
)
_SHARPEST = 2.0
_WEBP_QUALITIES = (40, 60, 75, 90)
_COARSE = 8
_COARSE_LEVELS = 40
"""Levels by which squares of 8 by 8 pixels of two copies may differ on average."""
_WINDOW = 3
_AROUND = 15
_COLOUR_WINDOW = 3
_COLOUR_AROUND = 7
_DETAIL = 8.0
"""Spread of the luminance around a place from which on there is something to see."""
_LEAST = 20.0
"""Levels added to that spread, so that plain areas are not compared with nothing."""
_EXACT, _LEAST_WHEN_EXACT = 0.005, 4.0
"""Where all but a few places agree fewer are added for luminance: then even faint writing can be told."""
_USUAL = 0.95
_BINS = 1000
_BIN = 0.005
_STRIP = 1 << 20
_MARGIN = 16

Values = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDifference:
    """How two pictures differ, as shares of what there is to see at a place."""

    luminance: float
    chroma: float
    """The largest, anywhere."""
    common: float
    """The luminance difference that 95 in 100 of the places with something to see stay below."""
    side: int
    """Pixels of the shortest side of both: the fewer, the less of a letter is left to tell it by."""

    @property
    def weight(self) -> float:
        """How much stands out from what is usual for saving, as a multiple of what is taken for saving."""
        outstanding = self.luminance / (0.3 + 1.25 * min(self.common, 0.25))
        return max(outstanding / min(1.7, 0.0045 * self.side), self.chroma / 0.8)

    @property
    def slight(self) -> bool:
        return self.weight <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    pixels: Image.Image
    saved: tuple[dict[str, Any], ...]
    """How it may have been saved."""


def same(one: bytes, other: bytes, *, max_pixels: int) -> bool:
    """Whether one picture is the other but for encoding and size. Raises ImageError."""
    found = difference(one, other, max_pixels=max_pixels)
    return found is not None and found.slight


def difference(one: bytes, other: bytes, *, max_pixels: int) -> ImageDifference | None:
    """How they differ; None when they are of different shape or far apart. Raises ImageError."""
    # In one order, so that nothing depends on who asks.
    first, second = (_picture(data, max_pixels) for data in sorted([one, other]))
    if first.pixels.size == second.pixels.size and first.pixels.tobytes() == second.pixels.tobytes():
        return ImageDifference(luminance=0.0, chroma=0.0, common=0.0, side=min(first.pixels.size))
    if not _alike_in_shape(first.pixels.size, second.pixels.size) or _far_apart(first.pixels, second.pixels):
        return None
    ways = [_derived(first, second), _derived(second, first)]
    _, expected, found = min(ways, key=lambda way: way[0])
    return _measured(expected, found, min(*first.pixels.size, *second.pixels.size))


def _picture(data: bytes, max_pixels: int) -> _Picture:
    return _Picture(pixels=decode(data, max_pixels=max_pixels), saved=tuple(_ways_to_save(data)))


def _ways_to_save(data: bytes) -> Iterator[dict[str, Any]]:
    """How Pillow would save a picture as this file was; nothing where saving loses nothing."""
    if data.startswith(b"RIFF") and b"VP8 " in data[12:4096]:
        # The file does not tell its quality in a way that is easily read.
        yield from ({"format": "WEBP", "quality": quality, "method": 2} for quality in _WEBP_QUALITIES)
    elif data.startswith(b"\xff\xd8"):
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as opened:
            assert isinstance(opened, JpegImagePlugin.JpegImageFile)
            sampling = JpegImagePlugin.get_sampling(opened)
            tables = [opened.quantization[key] for key in sorted(opened.quantization)]
            usable = 1 <= len(tables) <= 4 and all(max(table) <= 255 for table in tables)
            if opened.mode in ("RGB", "L") and usable:
                yield {"format": "JPEG", "qtables": tables, "subsampling": sampling if sampling >= 0 else 2}


def _alike_in_shape(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one size is the other one scaled, rounded to whole pixels."""
    (width, height), (wider, higher) = sorted([one, other])
    if wider > MOST_SHRUNK * width or higher > MOST_SHRUNK * height:
        return False
    return abs(width * higher - height * wider) <= max(wider, higher)


def _far_apart(one: Image.Image, other: Image.Image) -> bool:
    """Whether a coarse look is enough to tell them apart: it is, for most that are."""
    least = min(one.size, other.size)
    size = max(1, least[0] // _COARSE), max(1, least[1] // _COARSE)
    shades = [np.asarray(image.resize(size, Image.Resampling.BOX), dtype=np.int16) for image in (one, other)]
    return bool(np.abs(shades[0] - shades[1]).max() > _COARSE_LEVELS)


def _derived(original: _Picture, copy: _Picture) -> tuple[float, Image.Image, Image.Image]:
    """What the copy would look like if it were one of the original, beside it; how far off comes first."""
    found = copy.pixels
    theirs = _grey(found)
    images = [original.pixels]
    if original.pixels.size != found.size:
        ours = original.pixels.convert("L")
        how = min(_FILTERS, key=lambda how: _distance(np.asarray(ours.resize(found.size, how)), theirs))
        resized = original.pixels.resize(found.size, how)
        images = [resized, _as_sharp(resized, theirs)]
    ways = [way for image in images for way in (image, *(_encoded(image, options) for options in copy.saved))]
    far, best = min((_distance(_grey(way), theirs), place) for place, way in enumerate(ways))
    return far, ways[best], found


def _as_sharp(image: Image.Image, like: NDArray[np.uint8]) -> Image.Image:
    """The image sharpened or blurred everywhere alike, as far as that brings it closer to the other one."""
    blurred = image.filter(ImageFilter.BoxBlur(1))
    ours = _grey(image).astype(np.float32)
    detail = ours - _grey(blurred)
    strength = float((detail * (like - ours)).sum() / max(1.0, float(np.square(detail).sum())))
    return Image.blend(blurred, image, 1 + min(_SHARPEST, max(-1.0, strength)))


def _encoded(image: Image.Image, options: dict[str, Any]) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return Image.open(buffer).convert("RGB")


def _grey(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image.convert("L"))


def _distance(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    apart = np.where(one > other, one - other, other - one)
    return float(np.square(apart, dtype=np.uint16).mean(dtype=np.float64))


def _measured(expected: Image.Image, found: Image.Image, side: int) -> ImageDifference:
    counts = np.zeros(_BINS, dtype=np.int64)
    luminance = faint = chroma = 0.0
    for (light, *colours), (other_light, *other_colours) in _strips(expected, found):
        spread = _spread((light + other_light) / 2, _AROUND)
        apart = np.sqrt(_mean(np.square(light - other_light), _WINDOW))
        share = apart / (spread + _LEAST)
        luminance = max(luminance, float(share.max()))
        faint = max(faint, float((apart / (spread + _LEAST_WHEN_EXACT)).max()))
        seen = share[spread > _DETAIL]
        counts += np.bincount(np.minimum(seen / _BIN, _BINS - 1).astype(np.int64), minlength=_BINS)
        for ours, theirs in zip(colours, other_colours, strict=True):
            spread = _spread((ours + theirs) / 2, _COLOUR_AROUND) + _LEAST
            share = np.abs(uniform_filter(ours - theirs, _COLOUR_WINDOW)) / spread
            chroma = max(chroma, float(share.max()))
    common = float(np.searchsorted(np.cumsum(counts), _USUAL * counts.sum())) * _BIN
    return ImageDifference(
        luminance=faint if common <= _EXACT else luminance, chroma=chroma, common=common, side=side
    )


def _strips(one: Image.Image, other: Image.Image) -> Iterator[tuple[list[Values], list[Values]]]:
    """Both pictures, strip by strip, each as luminance and two chroma channels at half the size."""
    width, height = one.size
    rows = max(_MARGIN, _STRIP // width)
    for top in range(0, height, rows):
        box = (0, max(0, top - _MARGIN), width, min(height, top + rows + _MARGIN))
        yield _channels(one.crop(box)), _channels(other.crop(box))


def _channels(image: Image.Image) -> list[Values]:
    luminance, *chroma = image.convert("YCbCr").split()
    return [np.asarray(channel, dtype=np.float32) for channel in (luminance, *(part.reduce(2) for part in chroma))]


def _spread(values: Values, size: int) -> Values:
    """Standard deviation of the values around each place."""
    spread: Values = np.sqrt(np.maximum(_mean(np.square(values), size) - np.square(_mean(values, size)), 0))
    return spread


def _mean(values: Values, size: int) -> Values:
    """The mean around each place; of squares never below zero, though running sums are not exact."""
    mean: Values = np.maximum(uniform_filter(values, size), 0)
    return mean
