"""Small images for a page within a number of bytes: each stored once, in the format that needs the fewest.

Sizes and qualities are tried from the best down until all images fit together. Reads images through
distill.data.images.image_files; draws nothing.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image, features

from distill.data.images import image_files
from distill.errors import ImageError
from distill.reports.html import MAX_ENLARGEMENT, data_uri
from distill.types import ImageRef
from distill.word_tables import counted

SIDE = 224
"""CSS pixels that the longer side of an image takes on the page, independent of the stored pixels."""
_FULL = 768
"""Most stored pixels of the longer side: a click or a key shows an image with all of them."""
_FULL_BYTES = 16_000
"""With less room for each image, none is stored larger than it is shown: fewer pixels are then in memory."""
_FULL_LEVELS = ((768, 80), (768, 65), (512, 70), (352, 75))
_LEVELS = (
    (224, 80),
    (224, 65),
    (208, 55),
    (192, 50),
    (176, 42),
    (160, 36),
    (144, 30),
    (128, 26),
    (96, 24),
    (80, 20),
    (64, 15),
)
"""(pixels of the longer side, quality): what is tried, best first."""
_TRIED = 40
_TYPE = "webp" if features.check("webp") else "jpeg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thumbnail:
    """An image as the page shows it; `uri` is empty in a draft."""

    key: str
    uri: str
    width: int
    height: int
    """Both in CSS pixels."""
    full: int = 0
    """Width in CSS pixels when it is opened."""
    pixelated: bool = False
    shared: bool = False
    """Several cards show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Album:
    pictures: dict[str, Thumbnail] = field(default_factory=dict)
    """Thumbnails by the sha256 of the encoded image."""
    notes: tuple[str, ...] = ()
    """What was done to make the images fit."""

    @staticmethod
    def placeholders(refs: Sequence[tuple[ImageRef, int]]) -> "Album":
        """Pictures without content: for finding out how long a page is without them."""
        return Album(
            pictures={
                ref.sha256: Thumbnail(key=_key(index), uri="", width=SIDE, height=SIDE, full=_FULL, shared=uses > 1)
                for index, (ref, uses) in enumerate(refs)
            }
        )

    @property
    def shared(self) -> list[Thumbnail]:
        return [image for image in self.pictures.values() if image.shared]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadImage:
    """An image that could be read, no larger than a page needs."""

    sha256: str
    image: Image.Image
    original: tuple[bytes, str] | None
    """Encoded bytes and MIME type, where they need no change to be shown."""
    uses: int


def album(refs: Sequence[tuple[ImageRef, int]], limit: int, *, max_pixels: int) -> Album:
    """The images (with how many cards show each), together at most `limit` bytes of data URIs.

    Those that cannot be read are left out, as are the last ones where even the smallest size is too much.
    """
    levels = (*_FULL_LEVELS, *_LEVELS) if limit >= _FULL_BYTES * len(refs) else _LEVELS
    sources = [source for ref, uses in refs if (source := _read(ref, uses, max_pixels, levels[0][0])) is not None]
    level = _guessed(sources, limit, levels)
    uris = [_uri(source, *levels[level]) for source in sources]
    while sum(map(len, uris)) > limit and level < len(levels) - 1:
        level += 1
        uris = [_uri(source, *levels[level]) for source in sources]
    kept, used = 0, 0
    while kept < len(uris) and used + len(uris[kept]) <= limit:
        used += len(uris[kept])
        kept += 1
    notes = []
    side, quality = levels[level]
    if level:
        notes.append(
            f"Images were made smaller to keep the page small: at most {side} pixels a side, quality {quality}."
        )
    if kept < len(sources):
        notes.append(f"{counted(len(sources) - kept, 'image is', 'images are')} left out to keep the page small.")
    if len(sources) < len(refs):
        notes.append(f"{counted(len(refs) - len(sources), 'image')} could not be read.")
    return Album(
        pictures={
            source.sha256: _thumbnail(index, source, uri, side)
            for index, (source, uri) in enumerate(zip(sources[:kept], uris, strict=False))
        },
        notes=tuple(notes),
    )


def _guessed(sources: Sequence[_ReadImage], limit: int, levels: Sequence[tuple[int, int]]) -> int:
    """The best level that the images will likely fit at, by some of them: encoding takes the time."""
    some = sources[:: max(1, len(sources) // _TRIED)]
    for level, (side, quality) in enumerate(levels):
        share = len(some) / len(sources) if sources else 1.0
        if sum(len(_uri(source, side, quality)) for source in some) <= share * limit:
            return level
    return len(levels) - 1


def _read(ref: ImageRef, uses: int, max_pixels: int, side: int) -> _ReadImage | None:
    """The image with at most `side` pixels a side; None when it cannot be read any more."""
    try:
        data = image_files.read_bytes(ref)
        image = image_files.decode(data, max_pixels=max_pixels)
        original = None
        if max(image.size) <= side:
            original = image_files.portable(data, max_pixels=max_pixels)
        else:
            image.thumbnail((side, side), reducing_gap=3.0)
    except ImageError:
        return None
    return _ReadImage(sha256=ref.sha256, image=image, original=original, uses=uses)


def _uri(source: _ReadImage, side: int, quality: int) -> str:
    """The shortest way to store an image at this size and quality."""
    image, encodings = source.image, []
    if max(image.size) > side:
        image = image.copy()
        image.thumbnail((side, side))
    elif source.original is not None:
        encodings.append(source.original)
    # Drawings and charts have few colours: stored without loss they are both smaller and sharper.
    if _scale(source.image) > 1 or image.getcolors(1024) is not None:
        encodings.append((_encoded(image, "png", optimize=True), "image/png"))
        if _TYPE == "webp":
            encodings.append((_encoded(image, "webp", lossless=True, method=4), "image/webp"))
    # Pixels that the page shows enlarged stay unchanged as long as there is room.
    if _scale(source.image) == 1 or (side <= SIDE and (side, quality) != _LEVELS[0]):
        encodings.append((_encoded(image, _TYPE, quality=quality), f"image/{_TYPE}"))
    data, mime = min(encodings, key=lambda pair: len(pair[0]))
    return data_uri(data, mime)


def _encoded(image: Image.Image, kind: str, **settings: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


def _scale(image: Image.Image) -> int:
    return min(MAX_ENLARGEMENT, max(1, SIDE // max(image.size)))


def _thumbnail(index: int, source: _ReadImage, uri: str, side: int) -> Thumbnail:
    longest = max(source.image.size)
    scale = _scale(source.image)
    shown = min(1, SIDE / longest) * scale
    return Thumbnail(
        key=_key(index),
        uri=uri,
        width=max(1, round(source.image.width * shown)),
        height=max(1, round(source.image.height * shown)),
        full=round(source.image.width * min(1, side / longest)),
        pixelated=scale > 1,
        shared=source.uses > 1,
    )


def _key(index: int) -> str:
    return f"p{index}"
