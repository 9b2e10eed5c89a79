"""Journals: append-only files of JSON Lines, fsynced in groups.

A torn last line is cut off when a journal is opened again. Every line has a checksum
(distill/artifacts/json_lines.py). Does not cover what the records mean.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Self

from distill.artifacts.files import LOCK, atomic_path, lock_file, make_folder, storage_errors, sync, unlink_others
from distill.artifacts.json_lines import BLANK, Check, Damaged, Record, cut_torn_tail, is_plain, no_check, scan, seal
from distill.artifacts.layout import RECIPE
from distill.errors import DataError, StorageError
from distill.local_paths import as_argument
from distill.machine.file_locks import HIDES_LOCKED_BYTES


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """A whole file of records, one a line, each with its checksum."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.writelines(map(seal, records))


class Journal:
    """An append-only JSONL file: whole lines with checksums, fsynced at most `flush_interval_s` after a write.

    Opening cuts a torn last line off, adds checksums to a file that has none, and copies one with several names. One
    writer a file: a second open fails with BusyError through a lock that dies with its process. One thread appends;
    another one may call `flush`. StorageError when the file is deleted, replaced or shortened while it is open.
    """

    def __init__(self, path: Path, *, flush_interval_s: float = 0.2) -> None:
        self.path = path
        self.flush_interval_s = flush_interval_s
        with storage_errors(path):
            make_folder(path.parent)
            self._lock = _lock_beside(path) if HIDES_LOCKED_BYTES else None
            self._file = self._open()
            is_linked = os.fstat(self._file.fileno()).st_nlink > 1  # a copy of the run by `cp -al` has it, too
            if is_plain(path) or is_linked:
                if self._lock is not None:
                    self._file.close()  # Windows replaces no open file
                write_jsonl(path, read_jsonl(path)) if is_plain(path) else unlink_others(path)
                self._file.close()
                self._file = self._open()
            self._written = self._end = cut_torn_tail(self._file)
            if not self._end:
                sync(path.parent)  # the name of a new file
        self._held: list[bytes] = []
        self._synced_at = time.monotonic()
        self._dirty = False

    def append(self, record: Any, *, hold: bool = False) -> int:
        """Write one record as one line; the byte at which it starts.

        It is durable after the next `flush`, at the latest at `close`. `hold`: it is written by the next
        `write_held`, together with others.
        """
        line = seal(record)
        start, self._end = self._end, self._end + len(line)
        self._held.append(line)
        if not hold:
            self.write_held()
        return start

    def write_held(self) -> None:
        """Write what is held. When the disk is full, the lines that fit stay, and no half of one."""
        if not self._held:
            return
        lines, self._held = b"".join(self._held), []
        with storage_errors(self.path):
            written = 0
            try:
                while written < len(lines):  # where a part fits, the next try fails with the reason
                    written += self._file.write(lines[written:])
            except OSError:
                self._written += lines.rfind(b"\n", 0, written) + 1
                self._end = self._written
                self._file.truncate(self._end)
                self._dirty = True
                raise
            self._written += len(lines)
            self._dirty = True
            if time.monotonic() - self._synced_at >= self.flush_interval_s:
                self.flush()

    def flush(self) -> None:
        """Make every appended line durable now."""
        if self._dirty:
            # Taken back before and not after the fsync: another thread may append meanwhile.
            self._dirty = False
            with storage_errors(self.path):
                os.fsync(self._file.fileno())
            self._require_whole()
        self._synced_at = time.monotonic()

    def close(self) -> None:
        if not self._file.closed:
            try:
                self.write_held()
                self.flush()
                self._require_whole()
            finally:
                self._file.close()
                if self._lock is not None:
                    self._lock.close()

    def _open(self) -> IO[bytes]:
        file = self.path.open("ab+", buffering=0)
        if self._lock is None:
            lock_file(file, self.path)
        return file

    @property
    def end(self) -> int:
        """The byte after the last line, held ones included."""
        return self._end

    def _require_whole(self) -> None:
        end, open_file = self._written, os.fstat(self._file.fileno())
        if not end:
            return  # an empty file holds nothing that could be lost
        try:
            path_status = self.path.stat()
        except FileNotFoundError:
            path_status = None
        if path_status is None or not os.path.samestat(path_status, open_file) or open_file.st_size < end:
            raise StorageError(
                f"{self.path}: the file was deleted, replaced or shortened while this run was writing to it; find "
                "the cause, then run the same command again: it makes the lost records again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock_beside(path: Path) -> IO[bytes]:
    """Lock an empty file beside a journal, which others may read meanwhile. The file stays; the lock does not."""
    lock = path.with_name(f".{path.name}{LOCK}").open("ab")
    lock_file(lock, path)
    return lock


def read_jsonl(
    path: Path, *, check: Check = no_check, on_damage: Callable[[Damaged], None] | None = None
) -> Iterator[Record]:
    """The records of a JSONL file; an unfinished last line is not a record. A missing file has none.

    `check` says what is wrong with a record. Damaged lines go to `on_damage`; without it they raise DataError.
    """
    return (record for _, record in read_jsonl_at(path, check=check, on_damage=on_damage))


def read_jsonl_at(
    path: Path,
    *,
    check: Check = no_check,
    on_damage: Callable[[Damaged], None] | None = None,
    begin: int = 0,
    end: int | None = None,
) -> Iterator[tuple[int, Record]]:
    """As `read_jsonl`, with the byte at which each record starts, for the lines from byte `begin` to byte `end`."""
    for record in scan(path, check, begin=begin, end=end):
        if isinstance(record, tuple):
            yield record
        elif on_damage is not None:
            on_damage(record)
        elif record.reason != BLANK:
            line = record.line + _lines_before(path, begin)
            raise DataError(
                f"{path}:{line}: this line is damaged: {record.reason}; "
                f"`distill repair {as_argument(_run_of(path))}` shows the lost work and how to get the lost records "
                "again"
            )


def _lines_before(path: Path, end: int) -> int:
    with path.open("rb") as file:
        return sum(file.readline().endswith(b"\n") for _ in iter(lambda: file.tell() < end, False))


def _run_of(path: Path) -> Path:
    """The run directory that a file lies in."""
    return next((folder for folder in path.parents if (folder / RECIPE).is_file()), Path("RUN"))
