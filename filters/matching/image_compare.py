"""Whether one image is another one saved or resized again, by their pixels.

One of the two is taken as the original and resized to the other's size with the resampling filter that comes closest.
Where the other is a JPEG file, the original is also encoded with that file's tables, so that both have the damage of
saving. For each area, the remaining difference is compared with the detail of the area (saving changes edges and
text, but hardly plain areas), and with the usual difference of the pair. So a changed digit is detected.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, JpegImagePlugin

from distill.data.images.image_files import decode

MOST_SHRUNK = 4.0
"""One image may be at most this many times as wide as the other: beyond it small writing cannot be compared."""

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
"""The means of 8 by 8 pixels of two copies may differ by at most this many levels."""
_WINDOW = 3
_AROUND = 15
_COLOUR_WINDOW = 3
_COLOUR_AROUND = 7
_DETAIL = 8.0
"""Areas whose luminance has a larger spread than this show detail."""
_LEAST = 20.0
"""Levels added to that spread, so that a plain area is not divided by zero."""
_EXACT, _LEAST_WHEN_EXACT = 0.005, 4.0
"""Where nearly all areas agree, fewer levels are added for luminance, so that faint writing counts too."""
_USUAL = 0.95
_BINS = 1000
_BIN = 0.005
_STRIP = 1 << 20
_MARGIN = 16

Values = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDifference:
    """How two images differ, as shares of the detail of an area."""

    luminance: float
    chroma: float
    """The largest of all areas."""
    common: float
    """The 95th percentile of the luminance difference over the areas with detail."""
    shortest_side: int
    """Pixels of the shortest side of both: with fewer pixels letters are harder to tell apart."""

    @property
    def weight(self) -> float:
        """The difference beyond the effect of saving, as a multiple of the limit for copies."""
        outstanding = self.luminance / (0.3 + 1.25 * min(self.common, 0.25))
        return max(outstanding / min(1.7, 0.0045 * self.shortest_side), self.chroma / 0.8)

    @property
    def slight(self) -> bool:
        return self.weight <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodedImage:
    pixels: Image.Image
    saved: tuple[dict[str, Any], ...]
    """Options with which Pillow may have saved it."""


def is_same_image(left: bytes, right: bytes, *, max_pixels: int) -> bool:
    """Whether two images differ in encoding and size only. Raises ImageError."""
    found_difference = image_difference(left, right, max_pixels=max_pixels)
    return found_difference is not None and found_difference.slight


def image_difference(left: bytes, right: bytes, *, max_pixels: int) -> ImageDifference | None:
    """The difference of two images; None where they have different shapes or differ much. Raises ImageError."""
    # Sorted, so that the result does not depend on the order of the arguments.
    first, second = (_decode_image(data, max_pixels) for data in sorted([left, right]))
    if first.pixels.size == second.pixels.size and first.pixels.tobytes() == second.pixels.tobytes():
        return ImageDifference(luminance=0.0, chroma=0.0, common=0.0, shortest_side=min(first.pixels.size))
    if not _has_same_shape(first.pixels.size, second.pixels.size) or _is_far_apart(first.pixels, second.pixels):
        return None
    derivations = [_derive_copy(first, second), _derive_copy(second, first)]
    _, expected, copy_image = min(derivations, key=lambda derivation: derivation[0])
    return _measure_difference(expected, copy_image, min(*first.pixels.size, *second.pixels.size))


def _decode_image(data: bytes, max_pixels: int) -> _DecodedImage:
    return _DecodedImage(pixels=decode(data, max_pixels=max_pixels), saved=tuple(_ways_to_save(data)))


def _ways_to_save(data: bytes) -> Iterator[dict[str, Any]]:
    """Options with which Pillow saves an image as this file was saved; none for a lossless file."""
    if data.startswith(b"RIFF") and b"VP8 " in data[12:4096]:
        # The quality of the file is not easily read from it.
        yield from ({"format": "WEBP", "quality": quality, "method": 2} for quality in _WEBP_QUALITIES)
    elif data.startswith(b"\xff\xd8"):
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as opened:
            assert isinstance(opened, JpegImagePlugin.JpegImageFile)
            sampling = JpegImagePlugin.get_sampling(opened)
            tables = [opened.quantization[key] for key in sorted(opened.quantization)]
            usable = 1 <= len(tables) <= 4 and all(max(table) <= 255 for table in tables)
            if opened.mode in ("RGB", "L") and usable:
                yield {"format": "JPEG", "qtables": tables, "subsampling": sampling if sampling >= 0 else 2}


def _has_same_shape(left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether one size is the other size scaled and rounded to whole pixels."""
    (width, height), (wider, higher) = sorted([left, right])
    if wider > MOST_SHRUNK * width or higher > MOST_SHRUNK * height:
        return False
    return abs(width * higher - height * wider) <= max(wider, higher)


def _is_far_apart(left: Image.Image, right: Image.Image) -> bool:
    """Whether the images differ already at an eighth of their size, as most different images do."""
    smaller_size = min(left.size, right.size)
    size = max(1, smaller_size[0] // _COARSE), max(1, smaller_size[1] // _COARSE)
    shades = [np.asarray(image.resize(size, Image.Resampling.BOX), dtype=np.int16) for image in (left, right)]
    return bool(np.abs(shades[0] - shades[1]).max() > _COARSE_LEVELS)


def _derive_copy(original: _DecodedImage, copy: _DecodedImage) -> tuple[float, Image.Image, Image.Image]:
    """Distance, the copy that the original would give, and the copy itself."""
    copy_image = copy.pixels
    copy_grey = _grey(copy_image)
    images = [original.pixels]
    if original.pixels.size != copy_image.size:
        original_grey = original.pixels.convert("L")
        resampling = min(
            _FILTERS,
            key=lambda resampling: _distance(
                np.asarray(original_grey.resize(copy_image.size, resampling)), copy_grey
            ),
        )
        resized = original.pixels.resize(copy_image.size, resampling)
        images = [resized, _match_sharpness(resized, copy_grey)]
    candidates = [
        candidate for image in images for candidate in (image, *(_encode(image, options) for options in copy.saved))
    ]
    smallest_distance, best_index = min(
        (_distance(_grey(candidate), copy_grey), index) for index, candidate in enumerate(candidates)
    )
    return smallest_distance, candidates[best_index], copy_image


def _match_sharpness(image: Image.Image, target: NDArray[np.uint8]) -> Image.Image:
    """The image, sharpened or blurred evenly to come as close to the target as possible."""
    blurred = image.filter(ImageFilter.BoxBlur(1))
    image_grey = _grey(image).astype(np.float32)
    detail = image_grey - _grey(blurred)
    strength = float((detail * (target - image_grey)).sum() / max(1.0, float(np.square(detail).sum())))
    return Image.blend(blurred, image, 1 + min(_SHARPEST, max(-1.0, strength)))


def _encode(image: Image.Image, options: dict[str, Any]) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return Image.open(buffer).convert("RGB")


def _grey(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image.convert("L"))


def _distance(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> float:
    differences = np.where(left > right, left - right, right - left)
    return float(np.square(differences, dtype=np.uint16).mean(dtype=np.float64))


def _measure_difference(expected: Image.Image, copy: Image.Image, shortest_side: int) -> ImageDifference:
    counts = np.zeros(_BINS, dtype=np.int64)
    luminance = faint = chroma = 0.0
    for (light, *colours), (copy_light, *copy_colours) in _strips(expected, copy):
        spread = _spread((light + copy_light) / 2, _AROUND)
        deviation = np.sqrt(_mean(np.square(light - copy_light), _WINDOW))
        share = deviation / (spread + _LEAST)
        luminance = max(luminance, float(share.max()))
        faint = max(faint, float((deviation / (spread + _LEAST_WHEN_EXACT)).max()))
        seen = share[spread > _DETAIL]
        counts += np.bincount(np.minimum(seen / _BIN, _BINS - 1).astype(np.int64), minlength=_BINS)
        for colour, copy_colour in zip(colours, copy_colours, strict=True):
            spread = _spread((colour + copy_colour) / 2, _COLOUR_AROUND) + _LEAST
            share = np.abs(_window_means(colour - copy_colour, _COLOUR_WINDOW)) / spread
            chroma = max(chroma, float(share.max()))
    common = float(np.searchsorted(np.cumsum(counts), _USUAL * counts.sum())) * _BIN
    return ImageDifference(
        luminance=faint if common <= _EXACT else luminance, chroma=chroma, common=common, shortest_side=shortest_side
    )


def _strips(left: Image.Image, right: Image.Image) -> Iterator[tuple[list[Values], list[Values]]]:
    """Both images, strip by strip, each as luminance and two chroma channels at half the size."""
    width, height = left.size
    rows = max(_MARGIN, _STRIP // width)
    for top in range(0, height, rows):
        box = (0, max(0, top - _MARGIN), width, min(height, top + rows + _MARGIN))
        yield _channels(left.crop(box)), _channels(right.crop(box))


def _channels(image: Image.Image) -> list[Values]:
    luminance, *chroma = image.convert("YCbCr").split()
    return [np.asarray(channel, dtype=np.float32) for channel in (luminance, *(part.reduce(2) for part in chroma))]


def _spread(values: Values, size: int) -> Values:
    """Standard deviation of the values around each pixel."""
    spread: Values = np.sqrt(np.maximum(_mean(np.square(values), size) - np.square(_mean(values, size)), 0))
    return spread


def _mean(values: Values, size: int) -> Values:
    """The mean around each pixel, at least zero: running sums are not exact."""
    mean: Values = np.maximum(_window_means(values, size), 0)
    return mean


def _window_means(values: Values, size: int) -> Values:
    """The mean of the window of this size around every pixel."""
    from scipy.ndimage import uniform_filter  # 0.2 s to import: most filter runs compare no images

    means: Values = uniform_filter(values, size)
    return means
