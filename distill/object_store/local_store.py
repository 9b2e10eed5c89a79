"""A folder of this machine as an object store: the reference that other stores are compared with."""

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distill.artifacts.files import make_folder, refusal, storage_errors, sync
from distill.errors import StorageError
from distill.object_store.interface import StoredObject

_COPY_BYTES = 4 << 20
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""How disks without hard links refuse one."""


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
        with self._errors("read", key) as path, path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else max(0, end - start))

    def look_up(self, key: str) -> StoredObject:
        with self._errors("read", key) as path:
            status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(path)
        etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
        return StoredObject(key=key, bytes=status.st_size, modified_s=status.st_mtime, etag=etag)

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        # `Path.rglob` leaves out what it may not read, and its objects would count as gone.
        def refuse(error: OSError) -> None:
            with suppress(FileNotFoundError), self._errors("list", folder):  # deleted since its name was read
                raise error

        found = []
        for place, _, names in os.walk(self.folder / folder, onerror=refuse):
            for name in names:
                if not name.startswith("."):
                    with suppress(FileNotFoundError):
                        found.append(self.look_up((Path(place) / name).relative_to(self.folder).as_posix()))
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
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise StorageError(
                    f"{self.folder}: this disk cannot hold a run ({os.strerror(error.errno or 0)}): it has no hard "
                    "links, so two processes could commit the same work; choose another place for --run"
                ) from error
            finally:
                temporary.unlink()
            sync(path.parent)
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError), self._errors("delete", key) as path:
                path.unlink()

    @contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[Path]:
        """The path of an object. FileNotFoundError where none has its name; StorageError for an error of the disk."""
        path = self.folder / key
        try:
            yield path
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError) as error:
            raise FileNotFoundError(path) from error  # a ValueError: a key with a byte of zero
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise FileNotFoundError(path) from error
            if (refused := refusal(error)) is None:
                raise
            what, remedy = refused
            raise StorageError(
                f"cannot {verb} {path}: {what}; what is committed stays: {remedy} and run the same command again"
            ) from error

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
