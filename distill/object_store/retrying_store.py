"""Waits for a store that does not answer: an outage does not end a run, and a message gives the reason for the
wait."""

import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from distill.errors import StorageError, StoreUnavailable
from distill.machine import interrupts
from distill.object_store.interface import ObjectStore, StoredObject

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
NOTICE_S = 2.0
"""A wait is reported when it has lasted this long, and again each time it has doubled."""
LAST_PATIENCE_S = 5.0
"""How long a request waits once the process is interrupted."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryingStore:
    """A store whose failed requests are sent again, with growing pauses, for `patience_s` each."""

    store: ObjectStore
    patience_s: float = 6 * 3600.0
    report_wait: Callable[[str], None] = logging.getLogger(__name__).warning
    sleep: Callable[[float], None] = interrupts.pause
    clock: Callable[[], float] = time.monotonic

    @property
    def address(self) -> str:
        return self.store.address

    def now_s(self) -> float:
        return self.store.now_s()

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return self._repeat(lambda: self.store.read(key, start, end))

    def look_up(self, key: str) -> StoredObject:
        return self._repeat(lambda: self.store.look_up(key))

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        return self._repeat(lambda: self.store.list_objects(folder))

    def put(self, key: str, data: bytes | Path) -> None:
        self._repeat(lambda: self.store.put(key, data))

    def create(self, key: str, data: bytes) -> bool:
        return self._repeat(lambda: self._create_once(key, data))

    def delete(self, keys: Iterable[str]) -> None:
        listed = list(keys)
        self._repeat(lambda: self.store.delete(listed))

    def _create_once(self, key: str, data: bytes) -> bool:
        """A refusal means other data, or our own from a request whose answer was lost: the object itself decides."""
        if self.store.create(key, data):
            return True
        try:
            return self.store.read(key) == data
        except FileNotFoundError:  # 409 of two writers at once, of which none has written yet
            raise StoreUnavailable(f"{self.address}/{key}: refused as taken, but nothing is there") from None

    def _repeat(self, request: Callable[[], Result]) -> Result:
        began, pause_s, notice_s = self.clock(), FIRST_PAUSE_S, NOTICE_S
        while True:
            try:
                return request()
            except StoreUnavailable as error:
                waited_s = self.clock() - began
                if waited_s + pause_s > (LAST_PATIENCE_S if interrupts.is_noted() else self.patience_s):
                    raise StorageError(
                        f"{error}; no request has succeeded for {waited_s:.0f} s. What is committed stays: when "
                        "the store answers again, run the same command again"
                    ) from error
                if waited_s >= notice_s:
                    self.report_wait(f"{error}; waiting for the store since {waited_s:.0f} s")
                    notice_s = 2 * waited_s
            # Not all hosts at the same moment.
            self.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
