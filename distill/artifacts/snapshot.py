"""Snapshots: values that a process has computed from larger files, kept for the next process.

A snapshot is one sealed JSON line with raw bytes behind it. A damaged or outdated one is ignored, because its values
can always be computed again. Also digests of the beginning of files that grow.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill.artifacts.files import atomic_path
from distill.artifacts.json_lines import LineReader, seal

_CHUNK = 1 << 20


def write_snapshot(path: Path, header: Mapping[str, Any], pieces: Sequence[bytes | bytearray | memoryview]) -> None:
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    with atomic_path(path, durable=False) as temporary, temporary.open("wb") as file:
        file.write(seal({**header, "pieces": [len(piece) for piece in pieces], "pieces_crc": f"{crc:08x}"}))
        file.writelines(pieces)


def read_snapshot(path: Path) -> tuple[Mapping[str, Any], list[bytearray]] | None:
    """Header and pieces; None when there is no whole snapshot."""
    try:
        with path.open("rb") as file:
            line = file.readline()
            read = next(LineReader(plain=False).read(line, 0), None) if line.endswith(b"\n") else None
            if not isinstance(read, tuple) or sum(read[1].get("pieces", ())) != path.stat().st_size - len(line):
                return None
            pieces, crc = [], 0
            for size in read[1]["pieces"]:
                piece = bytearray(size)
                file.readinto(piece)
                crc = zlib.crc32(piece, crc)
                pieces.append(piece)
    except OSError:
        return None
    return (read[1], pieces) if f"{crc:08x}" == read[1]["pieces_crc"] else None


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
