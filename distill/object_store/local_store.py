"""A folder of this machine as an object store: the reference that other stores are compared with."""

import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from distill.artifacts.files import make_folder, storage_errors, sync
from distill.object_store.interface import StoredObject

_COPY_BYTES = 4 << 20


class LocalStore:
    """Objects as files. Names that begin with a dot are unfinished writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def address(self) -> str:
        return str(self.folder)

    def now_s(self) -> float:
        return time.time()

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with (self.folder / key).open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else max(0, end - start))

    def look_up(self, key: str) -> StoredObject:
        path = self.folder / key
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)
        etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
        return StoredObject(key=key, bytes=status.st_size, modified_s=status.st_mtime, etag=etag)

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        found = []
        for path in (self.folder / folder).rglob("[!.]*"):
            with suppress(FileNotFoundError):  # a folder, or deleted since its name was read
                found.append(self.look_up(path.relative_to(self.folder).as_posix()))
        return sorted(found, key=lambda stored: stored.key)

    def put(self, key: str, data: bytes | Path) -> None:
        with storage_errors(self.folder / key):
            temporary = self._written(key, data)
            temporary.replace(self.folder / key)
            sync(temporary.parent)

    def create(self, key: str, data: bytes) -> bool:
        path = self.folder / key
        with storage_errors(path):
            temporary = self._written(key, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return path.read_bytes() == data
            finally:
                temporary.unlink()
            sync(path.parent)
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            (self.folder / key).unlink(missing_ok=True)

    def _written(self, key: str, data: bytes | Path) -> Path:
        """A temporary file beside the object with its bytes, on disk."""
        path = self.folder / key
        make_folder(path.parent)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with temporary.open("xb") as file:
            if isinstance(data, Path):
                with data.open("rb") as source:
                    shutil.copyfileobj(source, file, _COPY_BYTES)
            else:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return temporary
