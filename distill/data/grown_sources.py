"""Whether a source that was read before is still the same and only has more rows at its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.artifacts.files import file_sha256, remembered_sha256
from distill.artifacts.manifest import fingerprint
from distill.artifacts.snapshot import PrefixDigest
from distill.data import sources
from distill.data.sources import SourceStart, SourceTable
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED


def unchanged_start(table: SourceTable, rows: int, before: Sequence[Sequence[Any]]) -> SourceStart | None:
    """The position in a table after `rows` rows that were read before; None if these rows may have changed.

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


def file_state(table: SourceTable, file: Path) -> str:
    """What changes with the content of a file: its digest, or what a listing says of its object."""
    if (stored := table.stored.get(file)) is not None:
        return fingerprint({"etag": stored.etag, "bytes": stored.bytes})
    return remembered_sha256(file)


def content_files(table: SourceTable) -> list[Path]:
    """The files that hold the rows of a source."""
    return [file for path in table.files for file in (sorted(path.glob("*.txt")) if path.is_dir() else [path])]


def source_files(recipe: Recipe, name: str = ASKED) -> list[tuple[str, int, str]]:
    """Name, size and digest of every file of a source; none for a hub name or a store."""
    if not sources.is_there(recipe, name):
        return []
    table = sources.locate(recipe, name)
    if table.stored:
        return []
    return [(file.name, file.stat().st_size, remembered_sha256(file)) for file in content_files(table)]


def _byte_at(file: Path, position: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(position)
        return opened.read(1)
