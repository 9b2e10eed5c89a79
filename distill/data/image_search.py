"""Finds the images of a table that lie under no folder as its cells name them.

They may be in archives beside the table, in a folder of another name, or in folders that a column names. A way counts
only if it leads each image of each row to one file and no other; of several ways that do, none counts.
"""

import os
import posixpath
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distill.data import sources
from distill.data.images.image_suffixes import image_suffixes
from distill.data.row_values import parse_json_list
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_rows import write_rows
from distill.word_tables import counted

_ZIP_HEAD: Final = 30
"""Bytes of the head of a member, before its name and its extra field, whose lengths are the last two numbers."""
Found = Sequence[Sequence[str]]
"""The paths of the images of each row."""


@dataclass(frozen=True, slots=True)
class _Member:
    """A file within an archive: of a tar its place, of a zip the place of its head."""

    archive: str
    offset: int
    length: int
    packed: bool
    zipped: bool


class _Images:
    """The images below a folder by their paths. An archive is read as a folder, with and without its own name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, set[str | _Member]] = defaultdict(set)
        self.by_name: dict[str, list[str]] = defaultdict(list)
        self.by_tail: dict[str, list[str]] = defaultdict(list)
        for base, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = Path(base, name).relative_to(folder).as_posix()
                if _is_image(path):
                    self.places[path].add(path)
                for inner, member in _members(folder, path):
                    self.places[posixpath.join(posixpath.dirname(path), inner)].add(member)
                    self.places[posixpath.join(posixpath.splitext(path)[0], inner)].add(member)
        for path in self.places:
            self.by_name[posixpath.basename(path)].append(path)
            self.by_tail["/".join(path.split("/")[-2:])].append(path)

    def roots(self, name: str) -> set[str]:
        """The folders from which a name leads to an image, each with the `/` at its end."""
        paths = self.by_name.get(posixpath.basename(name), ())
        return {path[: len(path) - len(name)] for path in paths if f"/{path}".endswith(f"/{name}")}

    def one_place_each(self, paths: Sequence[str]) -> tuple[str | _Member, ...] | None:
        """The places of these paths; None if a path has several."""
        places = [self.places[path] for path in paths]
        return tuple(place for each in places for place in each) if all(len(each) == 1 for each in places) else None

    def in_folders_of(self, values: Sequence[Any], named: Found) -> Found | None:
        """The paths of the images of all rows in folders that the values name; None where one has not one place."""
        found = []
        for value, names in zip(values, named, strict=True):
            tails = [self.by_tail.get(f"{value}/{name}", ()) for name in names]
            if any(len(paths) != 1 or len(self.places[paths[0]]) != 1 for paths in tails):
                return None
            found.append([path for paths in tails for path in paths])
        return found

    def cell(self, path: str) -> Any:
        """The image cell for a path that leads to one place."""
        (place,) = self.places[path]
        if isinstance(place, str):
            return place
        offset = place.offset
        if place.zipped:
            with (self.folder / place.archive).open("rb") as file:
                file.seek(offset)
                head = file.read(_ZIP_HEAD)
            offset += _ZIP_HEAD + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        packed = {"packed": "deflate"} if place.packed else {}
        return {"path": place.archive, "offset": offset, "length": place.length, **packed}


def _is_image(path: str) -> bool:
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.split("/"))
    return not hidden and posixpath.splitext(path)[1].lower() in image_suffixes()


def _members(folder: Path, path: str) -> Iterator[tuple[str, _Member]]:
    """The images within an archive that can be read without unpacking it."""
    try:
        if path.lower().endswith(".zip"):
            with zipfile.ZipFile(folder / path) as archive:
                for info in archive.infolist():
                    if _is_image(info.filename) and not info.flag_bits & 1 and info.compress_type in (0, 8):
                        packed = info.compress_type == zipfile.ZIP_DEFLATED
                        yield info.filename, _Member(path, info.header_offset, info.compress_size, packed, True)
        elif path.lower().endswith(".tar"):
            with tarfile.open(folder / path, "r:") as shard:
                for member in shard:
                    if _is_image(member.name) and member.isreg() and not member.issparse():
                        name = posixpath.normpath(member.name)
                        yield name, _Member(path, member.offset_data, member.size, False, False)
    except (OSError, zipfile.BadZipFile, tarfile.TarError):
        return


def write_found(table: SourceTable, columns: Sequence[str], folder: Path, out: Path) -> str | None:
    """Write the rows of a table with image cells that lead to the images below `folder`; how, in words.

    None where an image of any row is not found, or may be one of several.
    """
    items = list(sources.rows(table))
    rows = [item.values for item in items if isinstance(item, SourceRow)]
    cells = [[_names(row.get(column)) for column in columns] for row in rows]
    held = [[names for names in row if names is not None] for row in cells]
    named = [[name for names in row for name in names] for row in held]
    if held != cells:
        return None
    if not any(named):
        return None
    images = _Images(folder)
    for said, found in _ways(rows, named, images):
        try:
            write_rows(out, (_with_cells(*each, columns, images) for each in zip(rows, held, found, strict=True)))
        except TypeError:  # bytes
            return None
        unreadable = len(items) - len(rows)
        return said + (f"; left out: {counted(unreadable, 'row')} that cannot be read" if unreadable else "")
    return None


def _names(cell: Any) -> list[str] | None:
    """The paths in an image cell; None for a cell that holds something else."""
    items = parse_json_list(cell) if isinstance(cell, str) and cell.lstrip().startswith("[") else cell
    items = items if isinstance(items, list) else [] if items in (None, "") else [items]
    if not all(isinstance(item, str) and _is_image(item.replace("\\", "/").lstrip("./")) for item in items):
        return None
    return [posixpath.normpath(item.replace("\\", "/")).lstrip("/") for item in items]


def _with_cells(
    row: Mapping[str, Any],
    cells: Sequence[Sequence[str]],
    found: Sequence[str],
    columns: Sequence[str],
    images: _Images,
) -> Mapping[str, Any]:
    """A row with the cells of the images that were found, in the form that its cells have."""
    paths = iter(found)
    new = {column: [images.cell(next(paths)) for _ in names] for column, names in zip(columns, cells, strict=True)}
    single = {column: not isinstance(row.get(column), list) and len(new[column]) == 1 for column in columns}
    return {**row, **{column: new[column][0] if single[column] else new[column] or None for column in columns}}


def _ways(rows: Sequence[Mapping[str, Any]], named: Found, images: _Images) -> Iterator[tuple[str, Found]]:
    """What leads each image of each row to one place: in words, and the paths of the images."""
    distinct = sorted({name for names in named for name in names})
    (first, *_) = distinct
    for cut in range(min(name.count("/") for name in distinct) + 1):
        heads = {name.rsplit("/", name.count("/") - cut + 1)[0] if cut else "" for name in distinct}
        short = {name: name.split("/", cut)[-1] for name in distinct}
        if cut and (len(heads) > 1 or not all(map(_is_own_name, short.values())) or any(map(images.roots, distinct))):
            break
        roots = set.intersection(*map(images.roots, short.values()))
        found = {images.one_place_each([root + name for name in short.values()]): root for root in sorted(roots)}
        if len(found) == 1 and None not in found:
            (root,) = found.values()
            shown = f"{root or './'} has those of {heads.pop()}/" if cut else f"found as {root}{first}"
            yield f"images: {shown}", [[root + short[name] for name in names] for names in named]
        if found:
            break
    folders = {column: images.in_folders_of([row.get(column) for row in rows], named) for column in rows[0]}
    clear = {column: found for column, found in folders.items() if found is not None}
    if clear and all(found == next(iter(clear.values())) for found in clear.values()):
        yield f"images: in folders that {' and '.join(map(repr, clear))} names", next(iter(clear.values()))


def _is_own_name(name: str) -> bool:
    """Whether a file is known by its name alone: images of any other table have the same numbers."""
    return any(letter.isalpha() for letter in posixpath.splitext(posixpath.basename(name))[0])
