"""The one process that gives out the units of a run, as objects in its store.

    drivers/000001.json           created once: host, process, start
    drivers/000001/beat, ended    written by that driver

Two drivers at once would cost money and no correctness: commits decide what counts. So a driver that is silent for a
minute is taken for lost, by the clock of the store, and one that was only slow stops when it sees its successor.
"""

import os
import platform
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import orjson

from distill.artifacts.manifest import canonical
from distill.errors import BusyError, StorageError
from distill.object_store.interface import ObjectStore, StoredObject

BEAT_S, SILENCE_S = 15.0, 60.0
_FOLDER = "drivers"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRecord:
    """The record of this process."""

    store: ObjectStore
    number: int

    @classmethod
    def take(cls, store: ObjectStore, *, silence_s: float = SILENCE_S) -> Self:
        """Become the driver of a run. BusyError while another one is alive."""
        look = f"{_FOLDER}/look-{secrets.token_hex(8)}"
        store.put(look, b"")
        found = {stored.key: stored for stored in store.list_objects(_FOLDER)}
        store.delete([look])
        numbers = _numbers(found)
        if numbers:
            _require_silence(store, found, max(numbers), found[look].modified_s - silence_s)
        record = cls(store=store, number=max(numbers, default=0) + 1)
        facts = {
            "attempt": secrets.token_hex(8),
            "host": platform.node(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if not store.create(f"{record._folder}.json", canonical(facts)):
            raise BusyError(f"{store.address}: another process has just begun to drive this run")
        return record

    def beat(self) -> None:
        """Say that this driver is alive: every BEAT_S seconds."""
        self.store.put(f"{self._folder}/beat", b"")

    def is_current(self) -> bool:
        """Whether no other driver has taken over."""
        return max(_numbers({stored.key: stored for stored in self.store.list_objects(_FOLDER)})) == self.number

    def end(self) -> None:
        """Let the next driver begin at once."""
        self.store.put(f"{self._folder}/ended", b"")

    @property
    def _folder(self) -> str:
        return _folder(self.number)


@contextmanager
def driving(store: ObjectStore) -> Iterator[Callable[[], bool]]:
    """Be the driver inside the block. Gives a function that says whether another driver has taken over."""
    record = DriverRecord.take(store)
    closed, lost = threading.Event(), threading.Event()

    def keep_beating() -> None:
        try:
            while not closed.wait(BEAT_S):
                record.beat()
                if not record.is_current():
                    lost.set()
                    return
        except StorageError:  # the work itself meets the same error and reports it
            lost.set()

    thread = threading.Thread(target=keep_beating, name="beat", daemon=True)
    thread.start()
    try:
        yield lost.is_set
    finally:
        closed.set()
        if not lost.is_set():
            record.end()
        thread.join(BEAT_S)


def _folder(number: int) -> str:
    return f"{_FOLDER}/{number:06d}"


def _numbers(found: dict[str, StoredObject]) -> list[int]:
    return [int(key.removeprefix(f"{_FOLDER}/")[:-5]) for key in found if key.endswith(".json")]


def _require_silence(store: ObjectStore, found: dict[str, StoredObject], number: int, silent_since_s: float) -> None:
    """BusyError unless a driver has ended or gave no sign after a time of the store's clock."""
    folder = _folder(number)
    last_s = max(found[key].modified_s for key in (f"{folder}.json", f"{folder}/beat") if key in found)
    if f"{folder}/ended" in found or last_s <= silent_since_s:
        return
    facts = orjson.loads(store.read(f"{folder}.json"))
    raise BusyError(
        f"{store.address}: process {facts['pid']} on {facts['host']} drives this run since {facts['since']}; wait "
        "for it, or end it and start again a minute later"
    )
