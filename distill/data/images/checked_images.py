"""Remembers the images that this process has decoded, so that it checks each image once.

A check of a recipe reads every source twice: for its content, and for its overlap with the test data.
"""

from distill.data.images import image_files

_REMEMBERED = 1 << 15

_sound: dict[tuple[str, int], None] = {}
"""Digests of images that could be decoded, each with its limit of pixels."""


def checked_digest(data: bytes, *, max_pixels: int) -> str:
    """The digest of encoded bytes. Raises ImageError, as `image_files.check` does."""
    digest = image_files.sha256(data)
    if (digest, max_pixels) not in _sound:
        image_files.check(data, max_pixels=max_pixels)
        if len(_sound) >= _REMEMBERED:
            _sound.clear()
        _sound[digest, max_pixels] = None
    return digest
