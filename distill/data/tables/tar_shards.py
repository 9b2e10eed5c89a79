"""Rows of tar shards as WebDataset lays them out: the members KEY.jpg, KEY.json, KEY.txt make the row KEY.

A key is the name of a member up to the first dot after its folders. `image` has the images of a row, in the order of
the shard, as ranges of the file; the fields of KEY.json are columns; every member is the column of its ending. Only
heads of members and texts are read here, images where they are needed. The libraries webdataset and datasets give the
bytes of members but not their positions, and group only adjacent members.
"""

import codecs
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from distill.data.images.image_suffixes import OTHER_IMAGES, image_suffixes
from distill.data.tables.exact_json import parse_json
from distill.errors import DataError

_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)", re.DOTALL)
_TEXTS = frozenset({"txt", "text", "cls", "question", "answer"})
_TEXT_BYTES = 1 << 24
_Member = tuple[int, int]
"""First byte and number of bytes in the file; a negative number for a link or a sparse file."""


def tar_rows(file: Path, name: str) -> Iterator[Mapping[str, Any] | str]:
    """The rows of a shard that image cells call `name`; a text in the place of a row says what is wrong with it.

    Raises DataError and tarfile.TarError for a damaged shard.
    """
    with file.open("rb") as opened:
        for key, members in _members(file, opened).items():
            try:
                yield _row(key, members, name, opened)
            except ValueError as error:
                yield str(error)


def _members(file: Path, opened: BinaryIO) -> dict[str, list[tuple[str, _Member]]]:
    """Ending and place of the members of each key. They need not be next to each other."""
    keys: dict[str, list[tuple[str, _Member]]] = {}
    with tarfile.open(fileobj=opened, mode="r:", encoding="utf-8", errors="replace") as shard:
        while (member := shard.next()) is not None:
            shard.members = []  # type: ignore[attr-defined]  # a shard may have millions
            matched = _NAME.fullmatch(member.name)
            if matched and not member.isdir():
                size = member.size if member.isreg() and not member.issparse() else -1
                keys.setdefault(matched[1], []).append((matched[2].lower(), (member.offset_data, size)))
        # The library takes a damaged head for the end of the shard.
        opened.seek(shard.offset)
        if any(opened.read(tarfile.BLOCKSIZE)):
            raise DataError(f"{file}: damaged at byte {shard.offset}; copy the shard again")
    return keys


def _row(key: str, members: list[tuple[str, _Member]], name: str, opened: BinaryIO) -> Mapping[str, Any]:
    """The columns of a key. Raises ValueError with what is wrong."""
    columns: dict[str, Any] = {"__key__": key}
    images, texts = [], set[str]()
    for ending, (offset, size) in members:
        column, suffix = _column(ending)
        if column in columns:
            raise ValueError(f"{key}: two members are {column!r}")
        columns[column] = None
        if size < 0:
            raise ValueError(f"{key}.{ending} is a link or a sparse file")
        if f".{suffix}" in image_suffixes() | OTHER_IMAGES:
            columns[column] = {"path": name, "offset": offset, "length": size}
            images.append(columns[column])
        elif suffix == "json" or suffix in _TEXTS:
            columns[column] = _content(f"{key}.{ending}", suffix, opened, offset, size)
            texts.add(column)
    values = columns.pop("json", {})
    if not isinstance(values, dict):
        raise ValueError(f"{key}.json: a JSON object is needed")
    if twice := [name for name in values if name in texts and values[name] != columns.get(name)]:
        raise ValueError(f"{key}: {twice[0]!r} is a member and, with another value, a field of {key}.json")
    pictures = {"image": images[0] if len(images) == 1 else images} if images else {}
    return {**values, **columns, **pictures}


def _column(ending: str) -> tuple[str, str]:
    """The column of a member and its suffix: `question.txt` is the text of the column `question`."""
    stem, _, suffix = ending.rpartition(".")
    return (stem if stem and (suffix == "json" or suffix in _TEXTS) else ending), suffix


def _content(member: str, suffix: str, opened: BinaryIO, offset: int, size: int) -> Any:
    if size > _TEXT_BYTES:
        raise ValueError(f"{member}: a text of {size:,} bytes, more than {_TEXT_BYTES:,}")
    opened.seek(offset)
    data = opened.read(size).removeprefix(codecs.BOM_UTF8)
    try:
        return parse_json(data) if suffix == "json" else data.decode().strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{member}: not valid UTF-8: {error}") from None
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{member}: not valid JSON: {error}") from None
