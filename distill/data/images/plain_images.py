"""Images that show nothing: placeholders of failed downloads, white pages."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import numpy as np

from distill.data.images.image_files import load
from distill.errors import ImageError
from distill.types import ImageRef

LOOKED_AT: Final = 64
MOST: Final = 0.5
"""Above this share of the images it is the source that is faulty, and not a few of its images."""
_SHADES: Final = 8
"""Levels of 255 between the darkest and the brightest pixel of a colour: what saving as JPEG makes of one colour."""


def count_plain(refs: Iterable[ImageRef], *, max_pixels: int) -> tuple[int, int]:
    """How many of the first images are of one colour, and how many were looked at. Unreadable ones are left out."""
    plain = looked_at = 0
    for ref in islice(refs, LOOKED_AT):
        try:
            image = load(ref, max_pixels=max_pixels)
        except ImageError:
            continue
        looked_at += 1
        plain += all(np.ptp(band) <= _SHADES for band in np.asarray(image).reshape(-1, 3).T)
    return plain, looked_at
