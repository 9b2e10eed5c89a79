"""What survives a crash: run directories, journals, manifests, fingerprints, atomic writes.

A journal is append-only and fsynced in groups; a torn last line is cut off when it is opened again. Every line has a
checksum (distill/artifacts/json_lines.py). Every other file is written under a temporary name, fsynced and renamed. A
stage's manifest is written last: no manifest means the stage is unfinished. Does not cover what the files mean: that
is each stage's business. What is written here holds no known secret.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Self

import orjson

from distill import redact
from distill.artifacts.json_lines import BLANK, Check, Damaged, Record, cut_torn_tail, is_plain, no_check, scan, seal
from distill.errors import BusyError, DataError, StaleError, StorageError
from distill.local_paths import refuse_address

MANIFEST = "manifest.json"
STAGES = ("generate", "filter", "train", "eval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One finished file of a stage. `count` is its number of records, None where that has no meaning."""

    sha256: str
    bytes: int
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The record of a finished stage. `fields` are the flattened settings that `fingerprint` covers."""

    stage: str
    fingerprint: str
    fields: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, Output] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def write(self, folder: Path) -> Self:
        write_json(folder / MANIFEST, self)
        return self

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The manifest of a stage folder, or None when the stage is unfinished."""
        try:
            values = orjson.loads((folder / MANIFEST).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except orjson.JSONDecodeError as error:
            raise DataError(f"{folder / MANIFEST}: not valid JSON ({error}); remove it to redo the stage") from None
        try:
            values["outputs"] = {path: Output(**output) for path, output in values["outputs"].items()}
            return cls(**values)
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{folder / MANIFEST}: no manifest of a stage; remove it to redo the stage") from None


def fingerprint(fields: Mapping[str, Any]) -> str:
    """Hex digest of flattened settings; equal settings give equal digests on every machine."""
    return hashlib.sha256(canonical(fields)).hexdigest()


def canonical(value: Any) -> bytes:
    """The one JSON spelling of a value: sorted keys, no spaces."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys, so that a difference can be named. List items go by their name."""
    if isinstance(value, Mapping) and value:
        items = ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        items = ((str(item.get("name", position)), item) for position, item in enumerate(value))
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat.update(flatten(item, f"{prefix}.{key}" if prefix else key))
    return flat


def finished(folder: Path, fields: Mapping[str, Any], *, remedy: str) -> Manifest | None:
    """The manifest of a finished stage made from exactly these settings; None when it is unfinished.

    Raises StaleError naming the fields that differ when the stage was finished from other settings.
    """
    manifest = Manifest.read(folder)
    if manifest is None or manifest.fingerprint == fingerprint(fields):
        return manifest
    raise StaleError(f"{folder} was made from other settings:\n{differences(manifest.fields, fields)}\n{remedy}")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """One line a field that differs, old value and new."""
    return "\n".join(f"  {key}: {_short(old)} -> {_short(new)}" for key, (old, new) in changes(before, now).items())


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of every field that differs; `before` as it was read back, `now` as it will be."""
    after: dict[str, Any] = orjson.loads(canonical(now))
    pairs = {
        key: (before.get(key, "(not set)"), after.get(key, "(not set)"))
        for key in sorted(before.keys() | after.keys())
    }
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}


def begin(path: Path, fields: Mapping[str, Any], *, begun: bool, remedy: str) -> None:
    """Note the settings of an unfinished stage in `path`.

    Raises StaleError naming the fields that differ when work was `begun` with other settings noted there.
    """
    try:
        before = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        before = None
    if begun and before is not None and fingerprint(before) != fingerprint(redact.tree(fields)):
        raise StaleError(f"{path.parent} was begun with other settings:\n{differences(before, fields)}\n{remedy}")
    write_json(path, fields)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def require(run: Path, stage: str, *, next_step: str) -> Manifest:
    """The manifest of an earlier stage; StaleError with the next step when it is not finished."""
    manifest = Manifest.read(run / stage)
    if manifest is None:
        state = "is unfinished" if (run / stage).exists() else "has not been run"
        raise StaleError(f"{run / stage}: stage '{stage}' {state}; {next_step}")
    return manifest


def describe(path: Path, count: int | None = None) -> Output:
    """Digest and size of a finished file."""
    return Output(sha256=file_sha256(path), bytes=path.stat().st_size, count=count)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def directory_sha256(path: Path) -> str:
    """Digest over the names and contents of a directory's files: the revision of a local checkpoint."""
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts):
            digest.update(f"{file.relative_to(path).as_posix()}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the named distributions, our own first; absent ones are left out."""
    found = {}
    for package in ("cot-distill", *packages):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a refused write into one plain message; what was written before stays."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
            raise StorageError(
                f"{path}: a file stands where a folder has to be, or a folder for a file; "
                "move it away, or choose another place"
            ) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EIO):
            raise
        raise StorageError(
            f"{path}: cannot write: {os.strerror(error.errno)}; finished work is intact, "
            "free space (or fix the permissions) and run the same command again"
        ) from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; renamed over `path` on success, removed on failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Text, encoded. Known secrets in it are masked; for other bytes there is `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(redact.text_bytes(data))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Indented JSON with sorted keys, for files a person may open."""
    write_bytes(path, redact.dumps(value, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """A whole file of records, one a line, each with its checksum."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.writelines(map(seal, records))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Journal:
    """An append-only JSONL file: whole lines with checksums, fsynced at most `flush_interval_s` after a write.

    Opening cuts a torn last line off, and adds checksums to a file of an older version. One writer a file: a second
    open fails with BusyError through a lock that dies with its process. One thread appends; another one may call
    `flush`. StorageError when the file is deleted, replaced or shortened while it is open.
    """

    def __init__(self, path: Path, *, flush_interval_s: float = 0.2) -> None:
        self.path = path
        self.flush_interval_s = flush_interval_s
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if is_plain(path):
                write_jsonl(path, read_jsonl(path))
            self._file: IO[bytes] = path.open("ab+", buffering=0)
            _lock(self._file, path)
            self._end = cut_torn_tail(self._file)
        self._synced_at = time.monotonic()
        self._dirty = False

    def append(self, record: Any) -> int:
        """Write one record as one line; the byte at which it starts.

        It is durable after the next `flush`, at the latest at `close`.
        """
        line = seal(record)
        with storage_errors(self.path):
            try:
                written = self._file.write(line)
                if written != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                self._file.truncate(self._end)
                raise
            start, self._end = self._end, self._end + len(line)
            self._dirty = True
            if time.monotonic() - self._synced_at >= self.flush_interval_s:
                self.flush()
        return start

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
                self.flush()
                self._require_whole()
            finally:
                self._file.close()

    @property
    def end(self) -> int:
        """The byte after the last line."""
        return self._end

    def _require_whole(self) -> None:
        end, open_file = self._end, os.fstat(self._file.fileno())
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = None
        if named is None or not os.path.samestat(named, open_file) or open_file.st_size < end:
            raise StorageError(
                f"{self.path}: the file was deleted, replaced or shortened while this run was writing to it; find "
                "out what did that, then run the same command again, which does again what was lost"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_jsonl(
    path: Path, *, check: Check = no_check, on_damage: Callable[[Damaged], None] | None = None
) -> Iterator[Record]:
    """The records of a JSONL file; an unfinished last line is not a record. A missing file has none.

    `check` says what is wrong with a record. Damaged lines go to `on_damage`; without it they raise DataError.
    """
    return (record for _, record in read_jsonl_at(path, check=check, on_damage=on_damage))


def read_jsonl_at(
    path: Path, *, check: Check = no_check, on_damage: Callable[[Damaged], None] | None = None
) -> Iterator[tuple[int, Record]]:
    """The same with the byte at which each record starts."""
    for found in scan(path, check):
        if isinstance(found, tuple):
            yield found
        elif on_damage is not None:
            on_damage(found)
        elif found.reason != BLANK:
            raise DataError(
                f"{path}:{found.line}: this line is damaged: {found.reason}; `distill repair {_run_of(path)}` says "
                "what damaged files cost and how to get the lost records again"
            )


def _run_of(path: Path) -> Path:
    """The run directory that a file lies in."""
    return next((folder for folder in path.parents if (folder / "recipe.toml").is_file()), Path("RUN"))


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run directory for one process; the lock dies with the process, so a crash leaves none behind."""
    refuse_address(run)
    with storage_errors(run):
        run.mkdir(parents=True, exist_ok=True)
        file = (run / ".lock").open("ab+", buffering=0)
    with file:
        _lock(file, run)
        yield


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BusyError(f"{path}: another process is working here; wait for it, or choose another --run") from None


def set_aside(folder: Path) -> None:
    """Move a stage's folder to `<folder>.previous`, over an older one: --fresh never destroys the last result."""
    if folder.exists():
        previous = folder.with_name(f"{folder.name}.previous")
        if previous.exists():
            shutil.rmtree(previous)
        folder.rename(previous)
