"""Whether a source that was read before is still the same and only has more rows at its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.artifacts.files import file_sha256
from distill.artifacts.snapshot import PrefixDigest
from distill.data.sources import SourceStart, SourceTable


def unchanged_start(table: SourceTable, rows: int, before: Sequence[Sequence[Any]]) -> SourceStart | None:
    """Where a table goes on after `rows` rows that were read before; None when they may have changed.

    `before` has name, size and digest of every file then. Later files may have come since; and lines at the end of
    the last one, if it is JSON lines.
    """
    if table.kind == "cocoqa" or not before or len(before) > len(table.files):
        return None
    *whole, (name, size, digest) = before
    for file, (file_name, _, file_digest) in zip(table.files, whole, strict=False):
        if (file.name, file_sha256(file)) != (file_name, file_digest):
            return None
    last = table.files[len(whole)]
    grown = last.stat().st_size - size
    if last.name != name or grown < 0 or PrefixDigest().of(last, size) != digest:
        return None
    if not grown:
        return SourceStart(rows=rows, files=len(before))
    ends_a_line = size and table.kind == "jsonl" and _byte_at(last, size - 1) == b"\n"
    return SourceStart(rows=rows, files=len(whole), bytes=size) if ends_a_line else None


def _byte_at(file: Path, position: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(position)
        return opened.read(1)
