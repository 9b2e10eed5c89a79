"""Units of work in a store: any number of attempts may work on one, exactly one of them counts.

    <work>/p/<xx>/<partition>/<round>/<attempt>/<file>                       at the end of an attempt
    <work>/p/<xx>/<partition>/<round>/<attempt>/<stream>/segment-00001.zst   finished lines, while it works
    <work>/commits/<round>/<partition>.json                                  the one object that decides

Work is `generate` or other work on each partition of a run. An attempt writes under a random name of its own and then
creates the commit, which names its files with their digests. What counts is what commits name. An attempt that begins
later reads the segments of all earlier ones, so work that a lost machine has sealed is not done again. Attempts that
lose the commit delete their files.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from distill.artifacts.files import Output, describe
from distill.artifacts.manifest import canonical
from distill.errors import DataError
from distill.object_store.interface import ObjectStore

GENERATE, COMMITS = "generate", "commits"
_SEGMENT = "/segment-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The samples of a partition for the teachers of one round."""

    round: int
    partition: str
    work: str = GENERATE

    @property
    def name(self) -> str:
        return f"{self.round}/{self.partition}"

    @property
    def folder(self) -> str:
        # Stores share their load by the first characters of names: the spread ones come early.
        return f"{self.work}/p/{self.partition[:2]}/{self.partition}/{self.round}"

    @property
    def commit_key(self) -> str:
        return f"{self.work}/{COMMITS}/{self.name}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The attempt that counts for a unit, and its files."""

    attempt: str
    files: Mapping[str, Output]
    counts: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One attempt at a unit. Its name is random, so no other attempt writes its objects."""

    store: ObjectStore
    unit: Unit
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    files: dict[str, Output] = field(default_factory=dict)
    segments: int = 0
    begun_with: set[str] = field(default_factory=set)
    """Segments of earlier attempts that this one has read, by their names in the folder of the unit."""

    @property
    def folder(self) -> str:
        return f"{self.unit.folder}/{self.name}"

    def sealed(self, stream: str) -> Iterator[bytes]:
        """The segments of a stream that earlier attempts left, in the order of their names."""
        for stored in self.store.list_objects(self.unit.folder):
            name = stored.key.removeprefix(f"{self.unit.folder}/")
            attempt, _, rest = name.partition("/")
            if attempt != self.name and rest.startswith(f"{stream}{_SEGMENT}"):
                try:
                    yield decompress(self.store.read(stored.key))
                except FileNotFoundError:  # another attempt has just committed the unit
                    return
                self.begun_with.add(name)

    def seal(self, stream: str, lines: bytes) -> None:
        """Keep whole lines of a stream for later attempts, should this one not finish."""
        self.segments += 1
        self.store.put(f"{self.folder}/{stream}{_SEGMENT}{self.segments:05d}.zst", compress(lines))

    def put_file(self, name: str, data: bytes | Path, count: int | None = None) -> None:
        """Write a file of the result: bytes, or a file of any size."""
        self.store.put(f"{self.folder}/{name}", data)
        if isinstance(data, Path):
            self.files[name] = describe(data, count)
        else:
            self.files[name] = Output(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), count=count)

    def commit(self, counts: Mapping[str, int]) -> Commit:
        """Offer this attempt as the one that counts. Returns the commit of the unit, ours or an earlier one."""
        key = self.unit.commit_key
        ours = Commit(attempt=self.name, files=self.files, counts=counts)
        self.store.create(key, canonical(asdict(ours)))
        # The object itself says which attempt counts, also if the answer of the store was lost.
        commit = _parsed(key, self.store.read(key))
        if commit.attempt == self.name:
            remove_leftovers(self.store, self.unit, commit)
        else:
            self.store.delete(stored.key for stored in self.store.list_objects(self.folder))
        return commit


def read_commit(store: ObjectStore, unit: Unit) -> Commit | None:
    """The commit of a unit; None while it is open."""
    try:
        return _parsed(unit.commit_key, store.read(unit.commit_key))
    except FileNotFoundError:
        return None


def read_file(store: ObjectStore, unit: Unit, commit: Commit, name: str) -> bytes:
    """A file of a committed unit. Raises DataError for a file that was changed in the store."""
    key = f"{unit.folder}/{commit.attempt}/{name}"
    try:
        data = store.read(key)
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != commit.files[name].sha256:
        raise DataError(
            f"{store.address}/{key}: missing or changed since it was committed; delete {unit.commit_key}, and "
            "the next run makes this unit again"
        )
    return data


def append_piece(file: IO[bytes], data: bytes) -> list[Any]:
    """Write a piece of an object. Returns its begin, its end and its digest, for `read_piece`."""
    start = file.tell()
    file.write(data)
    return [start, file.tell(), hashlib.sha256(data).hexdigest()]


def read_piece(store: ObjectStore, key: str, piece: Sequence[Any], remedy: str) -> bytes:
    """A piece of an object. Raises DataError with a remedy for a changed piece."""
    start, end, sha256 = piece
    data = store.read(key, start, end)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(
            f"{store.address}/{key}: changed since it was committed; {remedy}, and run the same command again"
        )
    return data


def committed_units(store: ObjectStore, work: str = GENERATE) -> list[Unit]:
    """Every unit of some work that is done, by one listing."""
    folder = f"{work}/{COMMITS}"
    keys = (stored.key.removeprefix(f"{folder}/") for stored in store.list_objects(folder))
    # Other programs may leave marks of folders here.
    pairs = (key.removesuffix(".json").split("/") for key in keys if key.endswith(".json"))
    return [Unit(round=int(round_), partition=partition, work=work) for round_, partition in pairs]


def remove_leftovers(store: ObjectStore, unit: Unit, commit: Commit) -> None:
    """Delete segments and files of a committed unit that its commit does not name.

    An attempt that is still at work may write more; it deletes that itself when it loses the commit.
    """
    kept = {f"{unit.folder}/{commit.attempt}/{name}" for name in commit.files}
    store.delete(stored.key for stored in store.list_objects(unit.folder) if stored.key not in kept)


def _parsed(key: str, data: bytes) -> Commit:
    try:
        values = orjson.loads(data)
        files = {name: Output(**output) for name, output in values["files"].items()}
        return Commit(attempt=values["attempt"], files=files, counts=values["counts"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise DataError(f"{key}: no commit of a unit; delete it, and the next run makes this unit again") from None


def compress(data: bytes) -> bytes:
    """The data compressed with zstd."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def decompress(data: bytes) -> bytes:
    """What `compress` was given."""
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())
