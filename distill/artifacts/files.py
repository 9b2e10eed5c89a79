"""Files that survive a crash: atomic writes, digests, the lock of a run directory.

A file is written under a temporary name, fsynced and renamed. Text that is written here holds no known secret. Files
that grow are in distill/artifacts/journal.py; each stage defines the meaning of its files.
"""

import errno
import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

import orjson

from distill import redact
from distill.errors import BusyError, DataError, DistillError, StorageError
from distill.local_paths import refuse_address
from distill.machine.file_locks import HIDES_LOCKED_BYTES, try_lock

LOCK: Final = ".lock"
_HOLDER_BYTES: Final = 400
_HAS_FOLDERS_TO_SYNC: Final = hasattr(os, "O_DIRECTORY")
"""Windows cannot open a folder to sync it: the system writes the names in it to disk by itself."""
_REPLACE_TRIES: Final = 20 if os.name == "nt" else 1
_REPLACE_WAIT_S: Final = 0.05


def _numbers(*names: str) -> frozenset[int]:
    """The error numbers of this system that have these names."""
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


_NO_LINKS: Final = _numbers("EPERM", "EACCES", "EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EINVAL", "EXDEV", "EMLINK")
"""Errors of a file system that gives no file, or not this one, a second name."""
_NO_SYNC: Final = _numbers("EINVAL", "EOPNOTSUPP", "ENOTSUP", "ENOSYS")
TAKEN: Final = _numbers("ENOTDIR", "EISDIR", "EEXIST", "ENOTEMPTY")
_FREE_SPACE: Final = "free space (or inodes: df -i)"
_REMEDIES: Final = (
    (_numbers("EFBIG"), "raise the limit (ulimit -f)"),
    (_numbers("EMFILE", "ENFILE"), "raise the limit of open files (ulimit -n)"),
    (_numbers("ENAMETOOLONG"), "choose a place with a shorter name"),
    (_numbers("ENOSPC", "EDQUOT"), _FREE_SPACE),
    (_numbers("ENOLCK", "ENOSYS", "EOPNOTSUPP", "ENOTSUP"), "choose a place on a file system that has locks"),
    (_numbers("EROFS"), "make the file system writable, or choose a place that can be written,"),
    (_numbers("EACCES", "EPERM"), "fix the permissions, or choose a place that can be written,"),
    (
        _numbers(
            *("EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "ENODEV", "ENXIO", "ENOLINK"),
            *("EREMOTEIO", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH"),
        ),
        "see whether the disk or the network drive is there and sound,",
    ),
)
"""What to do about an error of a write, by its number."""
_STATED: Final = re.compile(r"\(os error (\d+)\)")
_OF_DISKS: Final = _numbers("ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO")
_NO_REASON: Final = re.compile(
    r"file write failed|PytorchStreamWriter|unexpected pos \d+ vs \d+|iostream error|\d+ requested and \d+ written"
)
"""What torch says of a file that it could not finish, and numpy of an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One finished file of a stage. `count` is its number of records; None for a file without records."""

    sha256: str
    bytes: int
    count: int | None = None


def link_or_copy(path: Path | str, new: Path | str) -> None:
    """Give a file a second name; copy it where the file system has no such links (exFAT, some network drives)."""
    try:
        os.link(path, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copy2(path, new)


def unlink_others(path: Path) -> None:
    """Replace a file by a copy, so that its other names (hard links) keep the present content."""
    with atomic_path(path) as temporary:
        shutil.copy2(path, temporary)


def describe(path: Path, count: int | None = None) -> Output:
    """Digest and size of a finished file."""
    return Output(sha256=file_sha256(path), bytes=path.stat().st_size, count=count)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_sha256(path: Path) -> str:
    """`file_sha256`, which a process reads once until size or time change or another file takes its place."""
    status = path.stat()
    return _sha256_of(path, status.st_size, status.st_mtime_ns, status.st_ino)


@cache
def _sha256_of(path: Path, size: int, modified_ns: int, number: int) -> str:
    return file_sha256(path)


def directory_sha256(path: Path) -> str:
    """Digest over the names and contents of a directory's files: the revision of a local checkpoint."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts):
            digest.update(f"{file.relative_to(path).as_posix()}\0{remembered_sha256(file)}\n".encode())
    return digest.hexdigest()


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a refused write into one plain message; what was written before stays."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno in TAKEN:
            raise taken(path) from error
        if (refused := refusal(error)) is None:
            raise
        what, remedy = refused
        raise StorageError(
            f"{path}: cannot write: {what}; finished work is intact, {remedy} and run the same command again"
        ) from error


def taken(path: Path | str) -> StorageError:
    """What to say of one of the errors `TAKEN` at this path."""
    return StorageError(
        f"{path}: a file is in the place of a folder, or a folder in the place of a file; move it away, or choose "
        "another place"
    )


def refusal(error: Exception) -> tuple[str, str] | None:
    """What a disk or a network drive refuses, and what to do about it; None for any other error.

    Libraries raise errors of their own kinds: Rust and DuckDB have the system's reason in the text, torch and numpy
    have none.
    """
    if isinstance(error, DistillError):
        return None
    number, text = error.errno if isinstance(error, OSError) else None, str(error)
    if not number and (stated := _STATED.search(text)):
        number = int(stated[1])
    if not number:
        number = next((each for each in _OF_DISKS if os.strerror(each) in text), None)
    if not number and _NO_REASON.search(text):
        return "the disk or the quota is full", _FREE_SPACE
    remedy = next((remedy for numbers, remedy in _REMEDIES if number in numbers), "")
    return (os.strerror(number), remedy) if number and remedy else None


@contextmanager
def atomic_path(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A temporary name beside `path` to write to; renamed over `path` on success, removed on failure.

    Threads, and processes of several machines, may write one path at once: each has a name of its own. Without
    `durable`, no disk is waited for: a power cut may leave the file old, empty or torn. Use it only for files that
    can be made again and whose readers ignore an empty file.
    """
    path = path if path.name else path.resolve()
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    with storage_errors(path):
        make_folder(path.parent)
        try:
            yield temporary
            if durable:
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
            _replace(temporary, path)
            if durable:
                sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _replace(new: Path, path: Path) -> None:
    """Rename over `path`. Windows refuses that while another process reads the old file, and it is tried again."""
    for _ in range(_REPLACE_TRIES - 1):
        with suppress(PermissionError):
            new.replace(path)
            return
        time.sleep(_REPLACE_WAIT_S)
    new.replace(path)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that takes the name `out` when the block ends well. DataError if something is at `out`.

    Of several processes one writes; the others get BusyError. What a killed one left is removed.
    """
    if out.exists() and (not out.name or not out.is_dir() or any(out.iterdir())):  # "." has no name
        raise DataError(f"{out}: it already exists; give a new folder")
    temporary = out.with_name(f".{out.name}.tmp")
    with storage_errors(out), _only_writer(out):
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            yield temporary
            if out.exists():
                out.rmdir()
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _only_writer(out: Path) -> Iterator[None]:
    """Hold the name of a new folder by a lock file beside it, which is removed at the end."""
    path = out.with_name(f".{out.name}{LOCK}")
    make_folder(out.parent)
    with path.open("ab") as file:
        # A writer that ended just now has removed this lock file, and the next one has another.
        is_there = try_lock(file.fileno()) and path.exists()
        if not is_there or not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            raise BusyError(f"{out}: another process is writing it; wait for it, or choose another place")
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no open file
                path.unlink()


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Text, encoded. Known secrets in it are masked; for other bytes there is `atomic_path`."""
    with atomic_path(path, durable=durable) as temporary:
        temporary.write_bytes(redact.text_bytes(data))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Indented JSON with sorted keys, for files a person may open."""
    text = redact.dumps(value, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
    write_bytes(path, text, durable=durable)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, their names on disk: a file outlives a power cut in a folder that does."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until the names in a folder are on disk, if the file system supports this (some network drives do not)."""
    if not _HAS_FOLDERS_TO_SYNC:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run directory for one process; the system releases the lock when the process ends, also after a
    crash."""
    refuse_address(run)
    with storage_errors(run):
        make_folder(run)
        file = _lock_of(run)
    with file, _holder_noted(file):
        yield


def _lock_of(run: Path) -> IO[bytes]:
    """The locked file of a run; where a copy of the run by `cp -al` has the same one, the run gets one of its own."""
    path = run / LOCK
    while True:
        file = path.open("ab", buffering=0)
        lock_file(file, run, holder=run_holder(run))
        if HIDES_LOCKED_BYTES:
            return file
        locked_file = os.fstat(file.fileno())
        with suppress(FileNotFoundError):
            # Another process may have given the run a new one after this one was opened.
            is_own = os.path.samestat(locked_file, path.stat())
            if is_own and locked_file.st_nlink <= 1:
                return file
            if is_own:
                path.unlink()
        file.close()


def lock_file(file: IO[bytes], path: Path, *, holder: str = "") -> None:
    """Lock an open file for `path`, or close it and raise BusyError."""
    is_locked = False
    try:
        is_locked = try_lock(file.fileno())
    finally:
        if not is_locked:
            file.close()
    if not is_locked:
        raise BusyError(f"{path}: another process is working here{holder}; wait for it, or choose another --run")


@contextmanager
def _holder_noted(file: IO[bytes]) -> Iterator[None]:
    """Write into a lock file who holds it, behind the first byte, which a lock may hide. A full disk is no error."""
    program = Path(sys.argv[0]).name.replace("__main__.py", "distill")
    command = shlex.join([program, *redact.command(sys.argv[1:])])
    text = f"\nprocess {os.getpid()} of {platform.node()}: {command}"
    with suppress(OSError):
        file.truncate(0)
        file.write(text.encode(errors="replace"))
    try:
        yield
    finally:
        with suppress(OSError):
            file.truncate(0)


def run_holder(run: Path) -> str:
    """The holder of a run's lock, in brackets; empty if no holder is noted."""
    try:
        with (run / LOCK).open("rb", buffering=0) as file:
            file.seek(1)
            text = file.read(_HOLDER_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return f" ({text})" if text else ""
