"""Snapshots: what a process has worked out from larger files, kept so that the next one need not.

A snapshot is one sealed JSON line and raw bytes behind it. A damaged or older one counts as none: what it holds can
always be worked out again. Also digests of the beginning of files that grow.
"""

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.artifacts.files import atomic_path
from distill.artifacts.json_lines import LineReader, seal

_CHUNK = 1 << 20


def write_snapshot(path: Path, header: Mapping[str, Any], *payload: bytes | memoryview) -> None:
    """Write a snapshot atomically."""
    crc = 0
    for piece in payload:
        crc = zlib.crc32(piece, crc)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(seal({**header, "payload": [sum(map(len, payload)), crc]}))
        for piece in payload:
            file.write(piece)


def read_snapshot(path: Path) -> tuple[Mapping[str, Any], bytes] | None:
    """Header and payload; None when there is no whole snapshot."""
    try:
        with path.open("rb") as file:
            line, payload = file.readline(), file.read()
    except OSError:
        return None
    header = next(LineReader(plain=False).read(line, 0), None) if line.endswith(b"\n") else None
    if not isinstance(header, tuple) or header[1].get("payload") != [len(payload), zlib.crc32(payload)]:
        return None
    return header[1], payload


class PrefixDigest:
    """SHA-256 of the beginning of a file that grows; every byte is read once."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._known = {0: self._hash.hexdigest()}
        self._end = 0

    def of(self, path: Path, end: int) -> str:
        """The digest of the first `end` bytes; empty when the file is shorter or cannot be read."""
        if end in self._known:
            return self._known[end]
        if end < self._end:
            return PrefixDigest().of(path, end)
        try:
            with path.open("rb") as file:
                file.seek(self._end)
                while self._end < end and (data := file.read(min(_CHUNK, end - self._end))):
                    self._hash.update(data)
                    self._end += len(data)
        except OSError:
            return ""
        self._known[self._end] = self._hash.hexdigest()
        return self._known.get(end, "")
