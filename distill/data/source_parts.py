"""Parts of a source that share no image: a number from 0 to 1 for every sample, from its images.

Images of one row are in one part, and so are all rows that they occur in. The number of images that no row has
together with others comes from their own digest, so rows that a source gains do not move them.
"""

import hashlib
from collections.abc import Sequence

from distill.types import Sample

_DIGITS = 13
"""Hexadecimal digits of a digest that make the number; a float holds no more."""


class DisjointSets:
    """Keys in sets; a key that was never joined with another is a set of its own."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def join(self, keys: Sequence[str]) -> None:
        """Make one set of the sets of these keys."""
        for key in keys[1:]:
            low, high = sorted((self.smallest(keys[0]), self.smallest(key)))
            self._parents[high] = self._parents[low] = low

    def smallest(self, key: str) -> str:
        """The smallest key of the set that a key belongs to."""
        while (parent := self._parents.get(key, key)) != key:
            self._parents[key] = self._parents[parent]
            key = parent
        return key

    def __contains__(self, key: str) -> bool:
        """Whether a key was joined with others."""
        return key in self._parents


class SourcePart:
    """The samples of a source that fall into its part [low, high)."""

    def __init__(self, part: tuple[float, float]) -> None:
        self._low, self._high = part
        self._images = DisjointSets()

    def join(self, sample: Sample) -> None:
        """Note that the images of a sample belong together; for every sample with several, before the first look."""
        self._images.join(list({ref.sha256 for ref in sample.images}))

    def __contains__(self, sample: Sample) -> bool:
        return self._low <= int(self._digest(sample)[:_DIGITS], 16) / float(16**_DIGITS) < self._high

    def _digest(self, sample: Sample) -> str:
        """The digest that decides: of an image, of a name for its set, or of the id of a sample without image."""
        if not sample.images:
            return hashlib.sha256(sample.id.encode()).hexdigest()
        digest = self._images.smallest(sample.images[0].sha256)
        # The smallest digest of a large set is near 0 for any images.
        return hashlib.sha256(digest.encode()).hexdigest() if digest in self._images else digest
