"""JPEG and PNG files without what cameras and programs write beside the pixels.

EXIF (with the place of a photo), XMP, IPTC, comments, previews and data after the end of the image are left out. The
compressed pixels and the data that decoders need (tables, colour profiles, gamma) stay byte for byte, so every
decoder gives the same pixels as before. Knows nothing of orientation: `image_files.portable` only lets files pass
that need no turning.
"""

import re
from collections.abc import Iterator

_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""The next segment of a JPEG: in compressed data FF is followed by 00 or by a restart marker."""
_START, _END, _SCAN = 0xD8, 0xD9, 0xDA
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length."""
_JFIF_BYTES = 18
"""An APP0 segment without a preview."""
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_KEPT = frozenset({b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"sBIT", b"cICP"})
"""Optional chunks that change what a decoder shows."""


def without_metadata(data: bytes) -> bytes:
    """The same image without metadata. Raises ValueError for what is not laid out as JPEG or PNG files are."""
    if data.startswith(_PNG_START):
        return b"".join(_png_parts(data))
    if data.startswith(b"\xff\xd8"):
        return b"".join(_jpeg_parts(data))
    raise ValueError("neither JPEG nor PNG")


def _jpeg_parts(data: bytes) -> Iterator[bytes]:
    yield data[:2]
    at = 2
    while at + 4 <= len(data) or data[at + 1 : at + 2] == bytes([_END]):
        if data[at] != 0xFF:
            raise ValueError(f"no JPEG segment at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
        elif marker == _END:
            yield data[at : at + 2]
            return
        elif marker in _ALONE:
            yield data[at : at + 2]
            at += 2
        else:
            end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
            if marker == _START or end < at + 4 or end > len(data):
                raise ValueError(f"the JPEG segment at byte {at} has no valid length")
            yield _jpeg_segment(marker, data[at:end])
            at = end
            if marker == _SCAN:
                following = _AFTER_SCAN.search(data, at)
                if following is None:
                    raise ValueError("a JPEG without an end")
                yield data[at : following.start()]
                at = following.start()
    raise ValueError("a JPEG without an end")


def _jpeg_segment(marker: int, segment: bytes) -> bytes:
    """What stays of one segment: of comments and application data only what decoders read."""
    if marker == 0xE0 and segment[4:9] == b"JFIF\0":
        return b"\xff\xe0\x00\x10" + segment[4 : _JFIF_BYTES - 2] + b"\0\0"
    if marker == 0xE2 and segment[4:16] == b"ICC_PROFILE\0":
        return segment
    if marker == 0xEE and segment[4:9] == b"Adobe":
        return segment
    return b"" if 0xE0 <= marker <= 0xEF or marker == 0xFE else segment


def _png_parts(data: bytes) -> Iterator[bytes]:
    yield _PNG_START
    at = len(_PNG_START)
    while at + 12 <= len(data):
        kind = data[at + 4 : at + 8]
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        if kind in _PNG_KEPT or kind[:1].isupper():  # a capital: needed by every decoder
            yield data[at:end]
        if kind == b"IEND":
            return
        at = end
    raise ValueError("a PNG without an end")
