"""Images without visible content: placeholders, white pages, invisible drawings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from distill.data.images.image_files import decode, opacity, read_bytes
from distill.errors import ImageError
from distill.reports.findings import is_above
from distill.types import ImageRef

LOOKED_AT: Final = 64
_SHADES: Final = 8
"""Levels of 255 between the darkest and the brightest pixel of a colour: what saving as JPEG makes of one colour."""
_OPAQUE: Final = 128
_WHITE: Final = 240
_GROUND: Final = 0.05
"""Share of an image that has to be transparent, so that what is not is drawn on a ground."""
_SMALL: Final = 8

_Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddImages:
    """A fault that many images of a source have."""

    name: str
    about: str
    """What they are, after their number."""
    change: str
    count: int
    looked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    name: str
    most: float
    """Above this share it is the source that is faulty, and not a few of its images."""
    about: str
    change: str
    is_odd: Callable[[_Pixels, _Pixels | None], bool]
    """Of the pixels as models see them, and of how opaque they were; None where the image has no transparency."""


def _is_plain(pixels: _Pixels, layer: _Pixels | None) -> bool:
    return bool((np.ptp(pixels.reshape(-1, 3), axis=0) <= _SHADES).all())


def _is_hidden(pixels: _Pixels, layer: _Pixels | None) -> bool:
    """Whether most of what is drawn on a transparent ground is white, as the page that the ground becomes."""
    if layer is None:
        return False
    drawn = layer >= _OPAQUE
    is_ground = 1 - drawn.mean() >= _GROUND
    return bool(drawn.any() and is_ground and (pixels.min(axis=2)[drawn] >= _WHITE).mean() > 0.5)


def _is_small(pixels: _Pixels, layer: _Pixels | None) -> bool:
    return bool(min(pixels.shape[:2]) < _SMALL)


_KINDS: Final = (
    _Kind(
        name="images_plain",
        most=0.5,
        about="are of one colour and show nothing",
        change="look at the files: failed downloads can leave placeholders",
        is_odd=_is_plain,
    ),
    _Kind(
        name="images_hidden",
        most=0.1,
        about="have a white drawing on a transparent background; models see a white page",
        change="save the images without transparency, on a dark ground",
        is_odd=_is_hidden,
    ),
    _Kind(
        name="images_small",
        most=0.5,
        about=f"have fewer than {_SMALL} pixels on a side",
        change="look at the files: they may be thumbnails",
        is_odd=_is_small,
    ),
)


def find(refs: Sequence[ImageRef], *, max_pixels: int) -> list[OddImages]:
    """The faults of some images, evenly spaced. Unreadable images are left out."""
    counts = dict.fromkeys(_KINDS, 0)
    looked_at = 0
    for ref in refs[:: max(1, len(refs) // LOOKED_AT)][:LOOKED_AT]:
        try:
            data = read_bytes(ref)
            pixels = np.asarray(decode(data, max_pixels=max_pixels))
            layer = opacity(data, max_pixels=max_pixels)
        except ImageError:
            continue
        looked_at += 1
        for kind in _KINDS:
            counts[kind] += kind.is_odd(pixels, layer)
    return [
        OddImages(name=kind.name, about=kind.about, change=kind.change, count=count, looked_at=looked_at)
        for kind, count in counts.items()
        if is_above(count, looked_at, kind.most)
    ]
