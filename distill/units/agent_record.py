"""The processes that share a run, and what each of them works on, as objects in its store.

    agents/<agent>.json       written again and again by an agent while it works, and deleted when it ends
    failures/<agent>.json     written by one that ends with an error
    claims/<work>/000001      created once: the name of the agent that works on it; 000002 has taken over from it,
                              which was lost or has ended with an error

Any process may join at any time. A claim lasts as long as its agent gives signs. An agent without a heartbeat for the
time of the lease, by the clock of the store, counts as lost. The agent that creates the next number takes over its
work. After an outage of the store an agent first waits for the signs of the others; so does one that joins, because
an outage may just have ended. Two agents at the same work cost money, but the result stays correct: commits decide
what counts.
"""

import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import orjson

from distill import redact
from distill.artifacts.files import write_text
from distill.artifacts.manifest import canonical, versions
from distill.errors import DistillError, StaleError, StorageError
from distill.machine import interrupts
from distill.object_store.interface import ObjectStore
from distill.object_store.retrying_store import LONGEST_PAUSE_S

AGENTS, CLAIMS, FAILURES = "agents", "claims", "failures"
LEASE_S = 60.0
BEATS = 4
"""Signs in the time of a lease."""
_LOOK_S = 1.0
_ENDS = "ends"
Made = TypeVar("Made")


def _uptime_s() -> float:
    """Seconds since this machine was started, including sleep if the system counts it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(slots=True, kw_only=True)
class AgentRecord:
    """The record of this process."""

    store: ObjectStore
    lease_s: float = LEASE_S
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    facts: Mapping[str, Any] = field(default_factory=dict)
    live: Callable[[], Mapping[str, Any]] = dict
    """The facts in its object, written at the start and at every sign of life."""
    clock: Callable[[], float] = _uptime_s
    away_s: float = 0.0
    """Seconds of all outages of the store so far."""
    _signed_s: float | None = None
    """When this agent gave its last sign, by its own clock."""
    _silence_s: float = 0.0
    """Seconds in which this agent could give no sign, so that others may have been silent as long."""
    _forgiven_until_s: float = 0.0
    _joining_until_s: float = 0.0
    """Until then an agent that has joined takes over nothing."""
    _claimed: dict[str, int] = field(default_factory=dict)
    """Work of this agent, and the number of its claim."""

    def beat(self) -> None:
        """Say that this agent is alive."""
        self.store.put(_key(self.name), canonical({**self.facts, **self.live()}))
        now_s = self.clock()
        silence_s = now_s - self._signed_s if self._signed_s is not None else 0.0
        if silence_s > 2 * self.lease_s / BEATS:
            earlier_s = self._silence_s if now_s < self._forgiven_until_s else 0.0
            self._silence_s = max(silence_s, earlier_s)
            self.away_s += silence_s
            self._forgiven_until_s = now_s + self.lease_s + LONGEST_PAUSE_S
        self._signed_s = now_s

    def end(self) -> None:
        """Let others take over at once."""
        self.store.delete([_key(self.name)])

    def join(self) -> None:
        """Give the first sign, and give others the time to do so after an outage that this agent has not seen."""
        self.beat()
        self._joining_until_s = self.clock() + min(LONGEST_PAUSE_S, self.lease_s / 2) + self.lease_s / BEATS

    def living(self) -> set[str]:
        """The agents whose work is theirs: those that gave a sign in the time of a lease, this one among them.

        For some time after an outage of the store, its length is added to the lease; for some time after this agent
        has joined, no other one counts as lost.
        """
        if self.clock() < self._joining_until_s:
            return {_name(stored.key) for stored in self.store.list_objects(AGENTS)} | {self.name}
        return self._heard()

    def _heard(self) -> set[str]:
        found: dict[str, float] = {}
        while _key(self.name) not in found:  # another agent may have taken this one for lost at this moment
            self.beat()
            found = {stored.key: stored.modified_s for stored in self.store.list_objects(AGENTS)}
        silent_since_s = found[_key(self.name)] - self.lease_s
        if self.clock() < self._forgiven_until_s:
            silent_since_s -= self._silence_s
        return {_name(key) for key, modified_s in found.items() if modified_s > silent_since_s}

    def forget_lost(self) -> None:
        """Delete the records of lost agents whose work others have finished."""
        living = self._heard()
        if lost := {_name(stored.key) for stored in self.store.list_objects(AGENTS)} - living:
            self.store.delete([_key(name) for name in lost - claim_holders(self.store)])

    def read_others(self) -> list[dict[str, Any]]:
        """The records of the other living agents."""
        told = []
        for name in self._heard() - {self.name}:
            try:
                told.append(orjson.loads(self.store.read(_key(name))))
            except FileNotFoundError:  # ended since
                continue
        return told

    def claim(self, work: str, living: Collection[str] | None = None, *, take_over: bool = True) -> int:
        """Claim some work, unless a `living` agent has claimed it; without `take_over`, unless any agent has.

        Returns 0 where the work is not this agent's, else the number of the claim: 1 more than agents were lost or
        failed at the work.
        """
        number = 1
        if taken := self.store.list_objects(f"{CLAIMS}/{work}"):
            try:
                holder = self.store.read(taken[-1].key).decode()
            except FileNotFoundError:  # given back since
                return 0
            others = not take_over or holder in (self.living() if living is None else living)
            if holder != self.name and others:
                return 0
            number = int(taken[-1].key.rpartition("/")[2]) + 1
        if not self.store.create(f"{CLAIMS}/{work}/{number:06d}", self.name.encode()):
            return 0
        self._claimed[work] = number
        return number

    def release(self, work: str) -> None:
        """End the claims of finished work, also the claims of others."""
        self._claimed.pop(work, None)
        self.store.delete(stored.key for stored in self.store.list_objects(f"{CLAIMS}/{work}"))

    def give_back(self, *works: str) -> None:
        """End this agent's claims of some work, or of all work, and the claims of agents from which it took over.

        An agent that took this one for lost, and has taken over from it, keeps its claim.
        """
        for work in works or tuple(self._claimed):
            own = f"{CLAIMS}/{work}/{self._claimed.pop(work):06d}"
            ended = [stored.key for stored in self.store.list_objects(f"{CLAIMS}/{work}") if stored.key <= own]
            with suppress(FileNotFoundError):  # another agent has done the work
                if self.store.read(own) == self.name.encode():
                    self.store.delete(ended)

    def end_last(self) -> bool:
        """Record that this agent has found the end of the run's work; returns whether all other agents have recorded
        it, too.

        Of agents that end at the same moment, each may be the last one.
        """
        self.facts = {**self.facts, _ENDS: True}
        self.beat()
        return all(other.get(_ENDS) for other in self.read_others())

    @contextmanager
    def alone(self, work: str) -> Iterator[None]:
        """Do some work inside the block that one agent does at a time; waits while another one does it."""
        told = False
        while not self.claim(work):
            if not told:
                logging.getLogger(__name__).warning(f"{work}: another agent works on it; waiting for it to end")
                told = True
            time.sleep(_LOOK_S)
        try:
            yield
        finally:
            self.give_back(work)

    def make_once(
        self,
        work: str,
        find: Callable[[], Made | None],
        make: Callable[[], Made],
        meanwhile: Callable[[], None] = lambda: time.sleep(_LOOK_S),
    ) -> Made:
        """What `find` finds. If `find` gives nothing, one agent makes it; the others wait, or do `meanwhile`."""
        while (found := find()) is None:
            if self.claim(work):
                try:
                    found = find()
                    return make() if found is None else found
                finally:
                    self.give_back(work)
            meanwhile()
        return found


@contextmanager
def joined(store: ObjectStore, scratch: Path, *, lease_s: float = LEASE_S) -> Iterator[AgentRecord]:
    """Be an agent of a run inside the block. The caller holds the lock of `scratch`.

    Raises StaleError where another agent works with another version of this package.
    """
    facts = {
        "host": platform.node(),
        "pid": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        "lease_s": lease_s,
        "versions": versions(),
        "traces": 0,
        "seconds": 0.0,
    }
    interrupts.forget()  # of an earlier command in this process
    agent, note = AgentRecord(store=store, lease_s=lease_s, facts=facts), scratch / "agent"
    if note.is_file():  # the process that held the lock before has ended
        store.delete([_key(note.read_text())])
    write_text(note, agent.name)
    agent.join()
    closed = threading.Event()

    thread = threading.Thread(target=_keep_beating, args=(agent, closed), name="beat", daemon=True)
    thread.start()
    try:
        with interrupts.noted():
            _require_same_versions(agent)
            yield agent
            agent.forget_lost()
    except Exception as error:
        failure = {**facts, **agent.live(), "error": redact.message(str(error) or type(error).__name__)}
        with _left_to_the_lease():
            store.put(f"{FAILURES}/{agent.name}.json", canonical(failure))
        raise
    except BaseException:  # a signal; no work is at fault
        with _left_to_the_lease():
            agent.give_back()
        raise
    finally:
        closed.set()
        thread.join(lease_s)
        with _left_to_the_lease():
            agent.end()


@contextmanager
def named_by_address(run: Path, address: str) -> Iterator[None]:
    """Let an error name the run that the user named, and not its copy on this machine."""
    try:
        yield
    except DistillError as error:
        error.args = tuple(each.replace(str(run), address) if isinstance(each, str) else each for each in error.args)
        raise


def _keep_beating(agent: AgentRecord, closed: threading.Event) -> None:
    """Give signs of life until `closed`.

    If the heartbeat cannot be written, the work continues: others may take it over after the lease, and commits
    decide which work counts.
    """
    told = ""
    while not closed.wait(agent.lease_s / BEATS):
        try:
            agent.beat()
        except Exception as error:  # a thread that ended here would leave no message
            if told != (told := f"{type(error).__name__}: {redact.message(str(error))}"):
                logging.getLogger(__name__).warning(
                    f"this process cannot write its heartbeat ({told}); others may take over its work; it tries "
                    f"again every {agent.lease_s / BEATS:g} s"
                )


@contextmanager
def _left_to_the_lease() -> Iterator[None]:
    """An error of the store in this block hides no other error: other agents take over when the lease is over."""
    try:
        yield
    except StorageError as error:
        logging.getLogger(__name__).warning(f"others take over the work of this process after its lease: {error}")


def claim_holders(store: ObjectStore) -> set[str]:
    """The agents with claims on unfinished work, also those from which another agent has taken over."""
    names = set()
    for stored in store.list_objects(CLAIMS):
        try:
            names.add(store.read(stored.key).decode())
        except FileNotFoundError:  # finished since the listing
            continue
    return names


def _require_same_versions(agent: AgentRecord) -> None:
    """Raise StaleError for an agent whose version of this package differs from the others."""
    for other in agent.read_others():
        if (theirs := other.get("versions")) != (ours := agent.facts["versions"]):
            raise StaleError(
                f"{agent.store.address}: process {other.get('pid')} on {other.get('host')} works with {theirs}, this "
                f"one has {ours}; install one version on all machines, or wait until that process has ended"
            )


def _key(name: str) -> str:
    return f"{AGENTS}/{name}.json"


def _name(key: str) -> str:
    return key.removeprefix(f"{AGENTS}/").removesuffix(".json")
