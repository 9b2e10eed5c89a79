"""The batches of a teacher in a run in a store: a numbered list that all agents share and none changes.

    batches/<teacher>/000001/requests.json   created once, before the upload: ids of the requests, and the agent
    batches/<teacher>/000001/file            created once: the server's id of the uploaded file
    batches/<teacher>/000001/batch           created once: the server's id of the batch; empty where none was made
    claims/batches/<teacher>/000001/000001   created once: the agent that has taken over from one that was lost

The record with the next number can be created once. So an agent that comes second reads the first record, and a
request is in one batch at a time, also if several agents work on its unit. Only the agent of a record has its batch
created, or, where that agent is lost, the one that claims the record.
"""

import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

from distill.artifacts.manifest import canonical
from distill.units.agent_record import CLAIMS, AgentRecord
from teacher.engines.http.batch_records import SubmittedBatch, parse_record

BATCHES = "batches"
_REQUESTS, _FILE, _BATCH = "requests.json", "file", "batch"


@dataclass(slots=True, kw_only=True)
class StoredBatches:
    """The records of one teacher (`BatchRecords`) for one agent."""

    agent: AgentRecord
    teacher: str
    advice: str = 'put its id there as the object "batch", or an empty one if there is none'
    _records: dict[int, "_Record"] = field(default_factory=dict)
    _number_of: dict[str, int] = field(default_factory=dict)
    """Number of the last record of each request."""

    def find(self, ids: Collection[str]) -> tuple[Mapping[str, SubmittedBatch], int]:
        for stored in self.agent.store.list_objects(f"{BATCHES}/{self.teacher}"):
            number, _, name = stored.key.removeprefix(f"{BATCHES}/{self.teacher}/").partition("/")
            if name == _REQUESTS:
                self._record(int(number))
        numbers = {name: self._number_of[name] for name in ids if name in self._number_of}
        batches = {number: self._state(number) for number in set(numbers.values())}
        found = {name: batch for name, number in numbers.items() if (batch := batches[number]) is not None}
        return found, max(self._records, default=0)

    def begin(self, ids: Collection[str], seen: int) -> tuple[SubmittedBatch, int] | None:
        number = seen + 1
        while True:
            name = f"{number:06d}-{secrets.token_hex(8)}"
            begun = SubmittedBatch(name=name, ids=tuple(ids), created=time.time(), agent=self.agent.name)
            self.agent.store.create(self._key(number, _REQUESTS), canonical(asdict(begun)))
            # The object itself says whose it is.
            record = self._record(number)
            if record.batch.name == name:
                return record.batch, number
            if not set(ids).isdisjoint(record.batch.ids):
                return None
            number += 1

    def note(self, batch: SubmittedBatch) -> SubmittedBatch | None:
        number = _number(batch)
        for name, value in ((_FILE, batch.file), (_BATCH, batch.batch)):
            if value:
                self.agent.store.create(self._key(number, name), value.encode())
        return self._settled(number)

    def drop(self, batch: SubmittedBatch) -> SubmittedBatch | None:
        self.agent.store.create(self._key(_number(batch), _BATCH), b"")
        return self._settled(_number(batch))

    def look(self, batch: SubmittedBatch) -> SubmittedBatch | None:
        return self._state(_number(batch))

    def may_submit(self, batch: SubmittedBatch) -> bool:
        number, agent = _number(batch), self.agent
        owner, work = batch.agent, self._work(number)
        if owner == agent.name and not agent.store.list_objects(f"{CLAIMS}/{work}"):
            return True
        living = agent.living()
        if owner in living - {agent.name}:
            return False
        return bool(agent.claim(work, living))

    def place(self, batch: SubmittedBatch) -> str:
        return f"{self.agent.store.address}/{BATCHES}/{self.teacher}/{_number(batch):06d}"

    def _record(self, number: int) -> "_Record":
        """A record with what was known of it at the last look."""
        if number not in self._records:
            store, key = self.agent.store, self._key(number, _REQUESTS)
            batch = parse_record(store.read(key), f"{store.address}/{key}")
            self._records[number] = _Record(batch=batch)
            for name in batch.ids:
                self._number_of[name] = max(number, self._number_of.get(name, 0))
        return self._records[number]

    def _state(self, number: int) -> SubmittedBatch | None:
        record = self._record(number)
        if record.open:
            file, batch = self._read(number, _FILE), self._read(number, _BATCH)
            record.batch, record.open = replace(record.batch, file=file or "", batch=batch or ""), batch is None
        return record.batch if record.open or record.batch.batch else None

    def _settled(self, number: int) -> SubmittedBatch | None:
        state = self._state(number)
        if state is None or state.batch:
            self.agent.release(self._work(number))
        return state

    def _read(self, number: int, name: str) -> str | None:
        try:
            return self.agent.store.read(self._key(number, name)).decode().strip()
        except FileNotFoundError:
            return None

    def _key(self, number: int, name: str) -> str:
        return f"{BATCHES}/{self.teacher}/{number:06d}/{name}"

    def _work(self, number: int) -> str:
        return f"{BATCHES}/{self.teacher}/{number:06d}"


@dataclass(slots=True, kw_only=True)
class _Record:
    batch: SubmittedBatch
    open: bool = True
    """Whether its state is unknown."""


def _number(batch: SubmittedBatch) -> int:
    return int(batch.name.partition("-")[0])
