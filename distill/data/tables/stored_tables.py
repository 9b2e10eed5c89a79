"""Tables in a store as files of this machine.

A table is fetched when its first row is read. It is fetched again only if name, size or ETag of the object differ.
Until then an empty file has its place, so a folder in a store is read like a local folder. Fetched files may be
deleted while no command runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from distill.artifacts.files import atomic_path, storage_errors
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.errors import DataError
from distill.object_store.interface import StoredObject
from distill.object_store.recipe_stores import files_folder, open_address

_READ_BYTES = 32 << 20
_DESCRIPTIONS = ("state.json", "dataset_dict.json")
"""Small files that list the tables of a folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An object of which a file of this machine is, or will be, a copy."""

    address: str
    bytes: int
    etag: str


def look_up(address: str) -> tuple[Path, Mapping[Path, StoredFile]]:
    """The path of the copies of a table or a folder of tables, and the object of each copy.

    Raises DataError where there is no such object, and no object below such a folder.
    """
    store, key = open_address(address, patient=False)
    path = _path(address)
    try:
        if suffix_of(path) in KINDS:
            return path, dict([_placed(address, store.look_up(key))])
    except FileNotFoundError:
        raise DataError(f"{address}: the store has no such object; correct the address") from None
    parts = urlsplit(address)
    tables = [found for found in store.list_objects(key) if suffix_of(Path(found.key)) in {*KINDS, ".txt"}]
    if not tables:
        raise DataError(f"{address}: the store has no table below this address; correct it")
    files = dict(_placed(f"{parts.scheme}://{parts.netloc}/{found.key}", found) for found in tables)
    for there in path.rglob("*"):
        if there.is_file() and not there.name.startswith(".") and there not in files:
            there.unlink()  # the store has it no longer
    for file, stored in files.items():
        if file.name in _DESCRIPTIONS:
            fetch(file, stored)
    return path, files


def address_of(path: Path) -> str:
    """The address of which a path is the copy, or the folder of copies."""
    scheme, bucket, *names = path.relative_to(files_folder() / "tables").parts
    return "/".join([f"{scheme}://{bucket}", *names])


def _path(address: str) -> Path:
    parts = urlsplit(address)
    return files_folder() / "tables" / parts.scheme / parts.netloc / parts.path.strip("/")


def _placed(address: str, found: StoredObject) -> tuple[Path, StoredFile]:
    path = _path(address)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return path, StoredFile(address=address, bytes=found.bytes, etag=found.etag)


def fetch(path: Path, stored: StoredFile) -> None:
    """Let a file be a copy of its object. Raises DataError where the object is gone or another one."""
    note = path.with_name(f".{path.name}.etag")
    if note.is_file() and note.read_text(encoding="utf-8") == stored.etag and path.stat().st_size == stored.bytes:
        return
    store, key = open_address(stored.address)
    note.unlink(missing_ok=True)
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            for start in range(0, stored.bytes, _READ_BYTES):
                file.write(store.read(key, start, min(start + _READ_BYTES, stored.bytes)))
        now = store.look_up(key)
    except FileNotFoundError:
        raise DataError(f"{stored.address}: deleted while it was read; put it back, and run again") from None
    if now.etag != stored.etag:
        raise DataError(f"{stored.address}: replaced while it was read; run the same command again")
    note.write_text(stored.etag, encoding="utf-8", newline="\n")


def fetch_address(address: str) -> Path:
    """The copy of a table. Raises DataError where the store does not have it."""
    path, files = look_up(address)
    for file, stored in files.items():
        fetch(file, stored)
    return path
