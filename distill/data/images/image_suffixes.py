"""Suffixes of image files, in lower case: of the formats that are read, and of some that are not."""

from functools import cache
from posixpath import splitext

from PIL import Image

from distill.data.images import image_files


@cache
def image_suffixes() -> frozenset[str]:
    """Suffixes of the image formats that are read. Their plugins are loaded, so Pillow need not load all others."""
    return frozenset(suffix for suffix, name in Image.EXTENSION.items() if name in image_files.FORMATS)


def has_image_suffix(name: str) -> bool:
    """Whether a file of this name is an image of a format that is read."""
    return splitext(name)[1].lower() in image_suffixes()


OTHER_IMAGES = frozenset(
    {".heic", ".heif", ".hif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".svg", ".psd", ".ico"}
)
"""Suffixes of images that are not read."""
