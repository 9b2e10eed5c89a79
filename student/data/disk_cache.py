"""Byte strings by name in one growing file, shared by the processes of a run: a cache that survives kills.

The cache is a folder with `data.bin` and `index.jsonl`. An entry is valid if its index line is complete and has its
own checksum, and if its bytes have the checksum in the line. An entry that a kill or a power cut has damaged is
computed again. One thread of one process writes at a time, any number read; dataloader workers may do both. Does not
know what the bytes mean (student/data/images.py, student/data/image_tokens.py). Nothing depends on it: the folder may
be deleted between runs.
"""

import errno
import fcntl
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import orjson

from distill.artifacts.files import storage_errors

DATA, INDEX = "data.bin", "index.jsonl"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_Entry = tuple[int, int, int, Any]
"""Start, length, checksum and facts of an entry."""


class DiskCache:
    """Entries of at most `max_bytes` in all, and of half the free space, below `folder`, which is made."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._data = os.open(folder / DATA, flags, 0o666)
            self._index = os.open(folder / INDEX, flags, 0o666)
        self.folder = folder
        # Half of the free space stays free for checkpoints.
        self._max_bytes = min(max_bytes, os.fstat(self._data).st_size + shutil.disk_usage(folder).free // 2)
        self._entries: dict[str, _Entry] = {}
        self._facts: dict[bytes, Any] = {}
        self._read = 0
        # Locks of files hold between processes, not between the threads of one.
        self._threads = RLock()
        self.bytes = 0
        """Taken by entries so far."""
        self.full = False
        """Whether an entry was turned away."""
        self._refresh()

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> tuple[bytearray, Any] | None:
        """Bytes and facts of an entry, whole and unchanged; None when there is no such entry."""
        entry = self._find(name)
        if entry is None:
            return None
        start, length, checksum, facts = entry
        result = bytearray(length)
        if os.preadv(self._data, [result], start) != length or zlib.crc32(result) != checksum:
            self._entries.pop(name, None)
            return None
        return result, facts

    def put(self, name: str, pieces: Sequence[Any], facts: Any) -> bool:
        """Keep an entry, made of `pieces` one after the other; False when it does not fit.

        An entry that another process has put meanwhile stays as it is.
        """
        length = sum(memoryview(piece).nbytes for piece in pieces)
        with self._locked():
            self._cut_torn_line()
            self._refresh()
            if name in self._entries:
                return True
            if self.bytes + length > self._max_bytes:
                self.full = True
                return False
            start, checksum = self.bytes, 0
            for piece in pieces:
                checksum = zlib.crc32(piece, checksum)
            stated = [name, start, length, checksum, facts]
            line = orjson.dumps([*stated, _checksum(stated)]) + b"\n"
            try:
                _write(self._data, pieces, start)
                _write(self._index, [line], self._read)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                # A full disk costs the cache its growth, not the run its life.
                os.ftruncate(self._index, self._read)
                os.ftruncate(self._data, start)
                self.full = True
                return False
            self._refresh()
        return True

    def _find(self, name: str) -> _Entry | None:
        entry = self._entries.get(name)
        if entry is None and os.fstat(self._index).st_size > self._read:
            with self._threads:
                self._refresh()
                entry = self._entries.get(name)
        return entry

    def _refresh(self) -> None:
        """Take in the whole lines that this process has not read yet. Only for the thread that holds the lock."""
        added = os.pread(self._index, max(0, os.fstat(self._index).st_size - self._read), self._read)
        complete_lines = added[: added.rfind(b"\n") + 1]
        self._read += len(complete_lines)
        for line in complete_lines.splitlines():
            try:
                name, start, length, checksum, facts, *own = stated = orjson.loads(line)
            except (ValueError, TypeError):  # zeros that a power cut left; the entry is computed again
                continue
            is_whole = own == [_checksum(stated[:-1])] if own else all(isinstance(each, int) for each in stated[1:4])
            if not is_whole:  # lines of earlier versions have no checksum
                continue
            shared = self._facts.setdefault(orjson.dumps(facts), facts)
            self._entries[name] = (start, length, checksum, shared)
            self.bytes = max(self.bytes, start + length)

    def _cut_torn_line(self) -> None:
        """Remove what a killed writer left of a line. Only for the holder of the lock."""
        size = os.fstat(self._index).st_size
        if size > self._read:
            self._refresh()
            os.ftruncate(self._index, self._read)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the cache for this thread of this process. One that dies gives it back; forks do not share it."""
        with self._threads:
            fcntl.lockf(self._index, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._index, fcntl.LOCK_UN)


def _checksum(stated: list[Any]) -> int:
    """Of what a line says of its entry: other facts would make other tensors of the same bytes."""
    return zlib.crc32(orjson.dumps(stated))


def _write(file: int, pieces: Sequence[Any], start: int) -> None:
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view):
            written = os.pwrite(file, view, start)
            view, start = view[written:], start + written
