"""What an object store can do for a run: eight operations, and nothing that some store lacks.

A commit is one small `create`. Stores have no rename that is atomic and no lock, and conditions on replacing or on
multipart uploads differ between them, so nothing here offers these. A key is a relative path with `/`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object of a listing. `modified_s` is seconds since 1970 by the clock of the store.

    `etag` is another one when the content is another one.
    """

    key: str
    bytes: int
    modified_s: float
    etag: str = ""


class ObjectStore(Protocol):
    """Objects below one address. Every operation is whole or does not happen; a read sees every earlier write."""

    @property
    def address(self) -> str:
        """Where the objects lie, without secrets."""

    def now_s(self) -> float:
        """Seconds since 1970 by the clock of the store, or by the clock of this machine if the store does not give
        the time."""

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes of an object from `start` to before `end`, fewer where it ends before.

        FileNotFoundError where there is no such object.
        """

    def look_up(self, key: str) -> StoredObject:
        """One object as a listing shows it. FileNotFoundError where there is no such object."""

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        """All objects below a folder, by key."""

    def put(self, key: str, data: bytes | Path) -> None:
        """Write bytes, or a file of any size, over any object that is there: only for names that one writer has."""

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless the key is taken. True: the object holds `data` of this caller; False: other data.

        Of all callers with different data at most one gets True for a key. Data must name its writer: a caller whose
        answer was lost asks again and recognises its own object by its bytes.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; keys that are not there do not matter."""
