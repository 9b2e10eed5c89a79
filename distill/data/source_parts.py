"""Parts of a source that share no picture: a number from 0 to 1 for every sample, from its first image."""

import hashlib

from distill.types import Sample

_DIGITS = 13
"""Hexadecimal digits of a digest that make the number; a float holds no more."""


def is_in_part(sample: Sample, part: tuple[float, float]) -> bool:
    """Whether a sample falls into a part [low, high) of its source. A question without image counts by its id."""
    low, high = part
    if (low, high) == (0, 1):
        return True
    digest = sample.images[0].sha256 if sample.images else hashlib.sha256(sample.id.encode()).hexdigest()
    return low <= int(digest[:_DIGITS], 16) / float(16**_DIGITS) < high
