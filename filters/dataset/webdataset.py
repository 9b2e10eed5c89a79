"""WebDataset: tar files in which the members of an example are adjacent and share the name before the first dot.

An example is `<key>.0.png`, `<key>.1.jpg` and so on, then `<key>.json`. The bytes of a tar depend on the examples
alone: no times, no owners. Some readers infer columns from the first examples (Hugging Face `datasets` does, and
silently leaves out other fields). They need the same fields in all examples of a tar, so examples with other numbers
or types of images go into another series of tars.
"""

import hashlib
import os
import re
import tarfile
from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import IO

import orjson

from filters.dataset.export_formats import DatasetRow

SHARD_BYTES = 500_000_000
TEXT = "text"
"""The series of examples without an image."""

_SERIES_LETTERS = 100
"""Names of files have at most 255 bytes."""
_OPEN_SERIES = 64
"""Files held open at once; beyond that a series goes on in its next file."""
# No dot, for the key ends at the first one; no slash; short enough for the name field of a tar header.
_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")


def key(trace_id: str) -> str:
    """The name that an example's members share."""
    return trace_id if _KEY.fullmatch(trace_id) else hashlib.sha256(trace_id.encode()).hexdigest()[:32]


def members(example: DatasetRow) -> list[tuple[str, bytes]]:
    """Names and contents of an example's members. The JSON holds the columns of the dataset's row, text unchanged."""
    name = key(example.id)
    images = [(f"{number}{image.suffix}", image.data) for number, image in enumerate(example.pictures)]
    record = {**example.values, "messages": example.messages, "images": [suffix for suffix, _ in images]}
    text = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
    return [*((f"{name}.{suffix}", data) for suffix, data in images), (f"{name}.json", text)]


def _series(kinds: Sequence[str]) -> str:
    """The name of the series of examples with images of these kinds: `png-jpg`, of many frames `jpg64`."""
    name = "-".join(kinds)
    if len(name) > _SERIES_LETTERS:
        name = "-".join(f"{kind}{len(list(same))}" for kind, same in groupby(kinds))
    if len(name) > _SERIES_LETTERS:
        name = f"{len(kinds)}-pictures-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return name or TEXT


class Shards:
    """Writes examples to the tars of a new folder; `files` holds the examples of each by its name."""

    def __init__(self, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        self.files: dict[str, int] = {}
        self._folder, self._limit = folder, shard_bytes
        self._next: dict[str, int] = {}
        self._open: OrderedDict[str, tuple[str, IO[bytes]]] = OrderedDict()
        folder.mkdir(parents=True)

    def add(self, example: DatasetRow) -> None:
        series = _series([image.suffix.removeprefix(".") for image in example.pictures])
        parts = members(example)
        size = sum(1024 + len(data) for _, data in parts)
        name, file = self._file(series, size)
        for member, data in parts:
            _write_member(file, member, data)
        self.files[name] += 1

    def close(self) -> None:
        while self._open:
            self._finish(next(iter(self._open)))

    def _file(self, series: str, size: int) -> tuple[str, IO[bytes]]:
        """The open tar of a series, a new one where this example would make it too large."""
        if series in self._open:
            self._open.move_to_end(series)
            if self._open[series][1].tell() + size <= self._limit:
                return self._open[series]
            self._finish(series)
        elif len(self._open) >= _OPEN_SERIES:
            self._finish(next(iter(self._open)))
        number = self._next[series] = self._next.get(series, -1) + 1
        name = f"{series}-{number:05d}.tar"
        self._open[series] = name, (self._folder / name).open("wb")
        self.files[name] = 0
        return self._open[series]

    def _finish(self, series: str) -> None:
        _, file = self._open.pop(series)
        file.write(b"\0" * (2 * tarfile.BLOCKSIZE))
        file.write(b"\0" * (-file.tell() % tarfile.RECORDSIZE))
        file.flush()
        os.fsync(file.fileno())
        file.close()


def _write_member(file: IO[bytes], name: str, data: bytes) -> None:
    # Not TarFile.addfile: it keeps every member in memory until the tar is closed.
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), 0, 0o644
    file.write(info.tobuf(tarfile.USTAR_FORMAT))
    file.write(data)
    file.write(b"\0" * (-len(data) % tarfile.BLOCKSIZE))
