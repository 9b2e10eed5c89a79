"""Images in base64 within the text of a table: recognised, decoded, and found again in the file.

A cell of CSV, TSV, JSON or JSON lines with such an image becomes a `Base64Image`: the same text, with its range in
the file. A reference to the image is that range, so no copy of it is kept.
"""

import base64
import binascii
import json
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from distill.errors import ImageError

_BEGINS = re.compile(r"data:image/[A-Za-z0-9.+-]+;base64,|\s*(?:/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/=\s]{40}")
"""A data URI, or how a JPEG, PNG, GIF or WebP file begins in base64."""
_NO_BASE64 = re.compile(rb"\\[nrt]|[\s\\]")
"""Blanks, also as JSON writes them, and the backslash that some programs put before a slash."""
_SHORTEST = 64
"""A shorter text is no image."""


class Base64Image(str):
    """An image in base64 as a cell holds it, and the range of the file that holds its text."""

    __slots__ = ("length", "offset", "path")

    path: str
    """The file, or the address of its object in a store."""
    offset: int
    """The first byte of the text."""
    length: int
    """Bytes of the text in the file; JSON may use more than the text has characters."""


def is_base64(text: str) -> bool:
    """Whether a cell holds an image in base64, alone or as a data URI."""
    return len(text) >= _SHORTEST and _BEGINS.match(text) is not None


def decoded(text: str | bytes) -> bytes:
    """The encoded image that a text in base64 holds. Raises ImageError unreadable_image."""
    data = text.encode() if isinstance(text, str) else text
    head, comma, rest = data.partition(b",")
    try:
        return base64.b64decode(_NO_BASE64.sub(b"", rest if comma else head), validate=True)
    except binascii.Error as error:
        raise ImageError("unreadable_image", f"base64 of {len(data):,} characters: {error}") from None


def located(
    rows: Iterable[Mapping[str, Any] | str], file: Path, name: str, begin: int = 0
) -> Iterator[Mapping[str, Any] | str]:
    """The rows of a file of text from byte `begin` on, their images in base64 with their place.

    `name` is what references call the file. Images stay plain texts where the file does not hold them as they are:
    in a packed file, or in another encoding than UTF-8.
    """
    with ExitStack() as stack:
        finder: _Finder | None = None
        for row in rows:
            if isinstance(row, str) or not _hold_image(row.values()):
                yield row
                continue
            if finder is None:
                finder = _Finder(file, name, begin, stack)
            yield {column: finder.locate(value) for column, value in row.items()}


def _hold_image(values: Iterable[Any]) -> bool:
    """Whether one of these values is an image in base64, or holds one. Called for each row of each source."""
    for value in values:
        if isinstance(value, str):
            if len(value) >= _SHORTEST and is_base64(value):
                return True
        elif isinstance(value, dict | list) and _hold_image(value.values() if isinstance(value, dict) else value):
            return True
    return False


class _Finder:
    """Finds texts in a file, in the order in which the rows hold them, so that the file is searched once."""

    def __init__(self, file: Path, name: str, begin: int, stack: ExitStack) -> None:
        opened = stack.enter_context(file.open("rb"))
        self._bytes = stack.enter_context(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        self._name, self._begin = name, begin
        self._way = 0
        """How the file writes a text, of `_written`: the one that found the last image is tried first."""

    def locate(self, value: Any) -> Any:
        """A value with places in its images."""
        if isinstance(value, str):
            return self._with_place(value) if is_base64(value) else value
        if isinstance(value, list):
            return [self.locate(item) for item in value]
        if isinstance(value, dict):
            return {key: self.locate(item) for key, item in value.items()}
        return value

    def _with_place(self, text: str) -> str:
        ways = _written(text)
        for way in range(self._way, len(ways)):
            offset = self._bytes.find(ways[way], self._begin)
            if offset >= 0:
                image = Base64Image(text)
                image.path, image.offset, image.length = self._name, offset, len(ways[way])
                self._way, self._begin = way, offset + image.length
                return image
        self._way = len(ways)  # a search for each image to the end of the file would take the square of its size
        return text


def _written(text: str) -> tuple[bytes, ...]:
    """The ways in which files write a text: as it is, as JSON, and as JSON with a backslash before each slash."""
    plain = text.encode(errors="surrogateescape")
    escaped = json.dumps(text)[1:-1].encode()
    return plain, escaped, escaped.replace(b"/", rb"\/")
