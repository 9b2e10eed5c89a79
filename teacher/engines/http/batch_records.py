"""Records of submitted batches, so that a run that was killed at any moment pays for none twice.

A record is begun before its file of requests is uploaded. The server's id of the file is noted before the batch is
asked for, so a record without it has no batch. `FolderRecords` is for a run in a folder; the class for a run in a
store is in `teacher/stored_batches.py`.
"""

import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import orjson

from distill.artifacts.files import write_json
from distill.errors import DataError

_LATER_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedBatch:
    """A batch as it is written down."""

    name: str
    ids: tuple[str, ...]
    created: float
    """Seconds since 1970 by the clock of the machine that began it."""
    file: str = ""
    """The server's id of the uploaded requests. Without it no batch was asked for."""
    batch: str = ""
    """The server's id of the batch; empty while it is not known whether it was created."""
    agent: str = ""
    """The agent that began it, in a run in a store."""


class BatchRecords(Protocol):
    """The records of one teacher. The methods block."""

    advice: str
    """What a user does with a record if the server cannot tell whether its batch exists."""

    def find(self, ids: Collection[str]) -> tuple[Mapping[str, SubmittedBatch], int]:
        """The last batch of each request that is in one, and how many records there are. Raises DataError."""

    def begin(self, ids: Collection[str], seen: int) -> tuple[SubmittedBatch, int] | None:
        """Begin a record. Returns it and the number of records.

        None if a record after the first `seen` records has some of these requests.
        """

    def note(self, batch: SubmittedBatch) -> SubmittedBatch | None:
        """Note the ids that the server has given. Returns the record as it counts; None for a dropped one."""

    def drop(self, batch: SubmittedBatch) -> SubmittedBatch | None:
        """Note that there is no batch, so its requests go into another one. Returns the same as `note`."""

    def look(self, batch: SubmittedBatch) -> SubmittedBatch | None:
        """The record as it is now; None for a dropped one."""

    def may_submit(self, batch: SubmittedBatch) -> bool:
        """Whether this process alone may create the batch."""

    def place(self, batch: SubmittedBatch) -> str:
        """Where a user finds the record."""


class FolderRecords:
    """A JSON file for each batch, in a folder that one process works on at a time."""

    advice = 'write its id into the file as "batch", or remove the file if there is none'

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._batch_of: dict[str, SubmittedBatch] | None = None

    def find(self, ids: Collection[str]) -> tuple[Mapping[str, SubmittedBatch], int]:
        batch_of = self._read()
        return {name: batch_of[name] for name in ids if name in batch_of}, 0

    def begin(self, ids: Collection[str], seen: int) -> tuple[SubmittedBatch, int] | None:
        # The last batch of a request counts, also where the clock was set back.
        newest = max((batch.created for batch in self._read().values()), default=0.0)
        created = max(time.time(), newest + _LATER_S)
        batch = SubmittedBatch(name=secrets.token_hex(8), ids=tuple(ids), created=created)
        return self.note(batch), seen

    def note(self, batch: SubmittedBatch) -> SubmittedBatch:
        self._read().update(dict.fromkeys(batch.ids, batch))
        write_json(self._folder / f"{batch.name}.json", asdict(batch))
        return batch

    def drop(self, batch: SubmittedBatch) -> None:
        (self._folder / f"{batch.name}.json").unlink()
        self._batch_of = None

    def look(self, batch: SubmittedBatch) -> SubmittedBatch:
        return batch

    def may_submit(self, batch: SubmittedBatch) -> bool:
        return True

    def place(self, batch: SubmittedBatch) -> str:
        return str(self._folder / f"{batch.name}.json")

    def _read(self) -> dict[str, SubmittedBatch]:
        """The last batch of each request."""
        if self._batch_of is None:
            read = [parse_record(path.read_bytes(), str(path)) for path in self._folder.glob("*.json")]
            read.sort(key=lambda batch: (batch.created, batch.name))
            self._batch_of = {name: batch for batch in read for name in batch.ids}
        return self._batch_of


def parse_record(data: bytes, place: str) -> SubmittedBatch:
    """A record as it was written. Raises DataError, which names its place."""
    try:
        values = orjson.loads(data)
        return SubmittedBatch(**(values | {"ids": tuple(values["ids"])}))
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise DataError(
            f"{place}: cannot be read as a submitted batch ({error}); its requests are paid: restore it, or "
            "remove it to ask them again"
        ) from None
