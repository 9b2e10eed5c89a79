"""A store in memory that loses answers and lets others act between any two requests, for property-based tests."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from distill.errors import StoreUnavailable
from distill.object_store.interface import StoredObject


class MemoryStore:
    """Objects in a dictionary. `fault` is asked before each request that writes; it returns "", "lost" or "refused".

    A lost request is carried out and its answer is not given; a refused one is not carried out. `between` is called
    before every request, so that other writers can be let in.
    """

    address = "memory://run"

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.clock: Callable[[], float] = time.time
        self.fault: Callable[[], str] = str
        self.between: Callable[[], None] = lambda: None
        self.requests = 0

    def now_s(self) -> float:
        return self.clock()

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self._request()
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key][0][start:end]

    def look_up(self, key: str) -> StoredObject:
        found = [stored for stored in self.list_objects() if stored.key == key]
        if not found:
            raise FileNotFoundError(key)
        return found[0]

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        self._request()
        prefix = f"{folder}/" if folder else ""
        return [
            StoredObject(key=key, bytes=len(data), modified_s=modified)
            for key, (data, modified) in sorted(self.objects.items())
            if key.startswith(prefix)
        ]

    def put(self, key: str, data: bytes | Path) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        self._write(lambda: self.objects.__setitem__(key, (content, self.clock())))

    def create(self, key: str, data: bytes) -> bool:
        """As a raw store: False for every key that is taken, by this caller's own lost request too."""
        created = []

        def write() -> None:
            if key not in self.objects:
                self.objects[key] = (data, self.clock())
                created.append(key)

        self._write(write)
        return bool(created)

    def delete(self, keys: Iterable[str]) -> None:
        listed = list(keys)
        self._write(lambda: [self.objects.pop(key, None) for key in listed])

    def _request(self) -> None:
        self.requests += 1
        self.between()

    def _write(self, write: Callable[[], object]) -> None:
        self._request()
        fault = self.fault()
        if fault != "refused":
            write()
        if fault:
            raise StoreUnavailable(f"planted: {fault}")
