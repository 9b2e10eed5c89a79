"""The open units of a run, from which an agent draws its next one.

Claims and commits in the store say what others do.

A unit at which an agent was lost or has failed is worked on alone, so that no other unit shares its fate. After
`retries` more such agents it is set aside: it stays open, and the others are finished.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson

from distill.errors import DistillError
from distill.object_store.interface import ObjectStore
from distill.units.agent_record import CLAIMS, FAILURES, AgentRecord
from distill.units.commits import GENERATE, Commit, Unit, committed_units, read_commit
from distill.word_tables import counted

UNDRAWN = "undrawn"
"""Key of an agent's object: the number of samples that it has not drawn, by the name of the unit."""
_JOINED = "joined"
LOOK_S = 3.0
"""Between two looks at what other agents have left."""
_LOOK_AGAIN_S = 0.5


class UnitQueue:
    """Units of which no commit is known. Its methods may be called from several threads."""

    def __init__(
        self,
        agent: AgentRecord,
        units: Iterable[Unit] = (),
        on_elsewhere: Callable[[Unit], None] = lambda _: None,
        work: str = GENERATE,
        *,
        retries: int,
    ) -> None:
        """`units` are open ones of this work; `on_elsewhere` is told of those that another agent commits."""
        self.agent, self._on_elsewhere, self._work, self._retries = agent, on_elsewhere, work, retries
        self._open: set[Unit] = set()
        self._set_aside: dict[Unit, int] = {}
        """And how many agents were lost or failed at it."""
        self._alone: Unit | None = None
        self._unclaimed: list[Unit] = []
        self._at_work: set[Unit] = set()
        self._next_look_s = self._next_join_s = 0.0
        # `draw` holds it while it waits for the store, so no sign of the agent may wait for it.
        self._lock = threading.RLock()
        self.add(units)

    def add(self, units: Iterable[Unit]) -> None:
        """Take further open units on."""
        with self._lock:
            added = set(units)
            self._open |= added
            unclaimed = sorted(
                added.difference(claimed_units(self.agent.store, self._work)), key=lambda each: each.name
            )
            # Agents that begin together do not run after the same units.
            random.Random(self.agent.name).shuffle(unclaimed)
            self._unclaimed += unclaimed

    def draw(self) -> Unit | None:
        """A unit that is this agent's now; None when others have all that is open."""
        with self._lock:
            if self._alone is not None:
                return None
            while self._unclaimed:
                if self._take(unit := self._unclaimed.pop(), living=None):
                    return unit
            if time.monotonic() < self._next_look_s:
                return None
            self._next_look_s = time.monotonic() + LOOK_S
            waiting = self._open - self._at_work
            for unit in waiting.intersection(committed_units(self.agent.store, self._work)):
                self._close(unit)
            waiting = self._open - self._at_work
            numbers = _claim_numbers(self.agent.store, self._work)
            tried = {unit: numbers[unit] for unit in waiting & numbers.keys()}
            self._set_aside |= {unit: number - 1 for unit, number in tried.items() if self._is_too_many(number)}
            living = self.agent.living()
            return next((unit for unit in waiting - self._set_aside.keys() if self._take(unit, living)), None)

    def batches(self, most: int = 1) -> Iterator[list[Unit]]:
        """Units that are this agent's now, at most so many at a time, until every unit is committed or set aside.

        The caller tells `done` of each. Raises DistillError at the end where units are set aside.
        """
        while not self.ended:
            drawn = list(islice(iter(self.draw, None), most))
            if drawn:
                yield drawn
            else:
                time.sleep(_LOOK_AGAIN_S)
        self.require_all()

    def join(self, least: int, least_s: float) -> tuple[Unit, int] | None:
        """A unit of other agents to share the work on it, and how many have joined it with this one.

        It is the unit with the most samples for each of its agents that none has drawn. They are `least` or more, and
        the agents would need more than `least_s` seconds for them at their rate, or have no trace after so many
        seconds. None where there is no such unit, or the next look at other agents is not due.
        """
        with self._lock:
            if self._alone is not None or time.monotonic() < self._next_join_s:
                return None
            self._next_join_s = time.monotonic() + LOOK_S
            joins = Counter(
                stored.key.rsplit("/", 2)[0] for stored in self.agent.store.list_objects(f"{CLAIMS}/{_JOINED}")
            )
            told = _told_units(self.agent.read_others(), least_s)
            found: list[tuple[float, Unit, int]] = []
            for unit in sorted(self._open - self._at_work, key=lambda each: each.name):
                if unit.name not in told:
                    continue
                undrawn, rates = told[unit.name]
                agents = 1 + joins[f"{CLAIMS}/{_join_claim(unit)}"]
                # Agents that joined since the last sign are assumed to be as fast as the others.
                rate = sum(rates) / len(rates) * max(agents, len(rates))
                if undrawn >= max(least * agents, least_s * rate):
                    found.append((undrawn / agents, unit, agents))
            for _, unit, number in sorted(found, key=lambda each: -each[0]):
                if self.agent.claim(f"{_join_claim(unit)}/{number}", take_over=False):
                    self._at_work.add(unit)
                    return unit, number
            return None

    def _take(self, unit: Unit, living: set[str] | None) -> bool:
        number = self.agent.claim(_claim(unit), living, take_over=not self._at_work)
        if not number:
            return False
        if read_commit(self.agent.store, unit) is not None:
            self.agent.release(_claim(unit))
            self._close(unit)
            return False
        if self._is_too_many(number):
            self._set_aside[unit] = number - 1
            return False
        self._alone = unit if number > 1 else None
        self._at_work.add(unit)
        return True

    def _is_too_many(self, claims: int) -> bool:
        return claims > self._retries + 1

    def _close(self, unit: Unit) -> None:
        self._open.discard(unit)
        self._on_elsewhere(unit)

    def done(self, unit: Unit) -> None:
        """Take note that this agent has ended a unit, which is committed."""
        self.agent.release(_claim(unit))
        self.agent.release(_join_claim(unit))
        with self._lock:
            self._at_work.discard(unit)
            self._open.discard(unit)
            if unit == self._alone:
                self._alone = None

    @property
    def at_work(self) -> list[str]:
        """The units of this agent, by name. Takes no lock, because the agent's heartbeats read it."""
        return sorted(unit.name for unit in self._at_work.copy())

    @property
    def set_aside(self) -> set[Unit]:
        """Open units at which too many agents were lost or have failed."""
        with self._lock:
            return self._open & self._set_aside.keys()

    @property
    def ended(self) -> bool:
        """Whether every unit is committed or set aside."""
        with self._lock:
            return self._open <= self._set_aside.keys()

    def require_all(self) -> None:
        """Raise DistillError where units are set aside. The next command tries them again."""
        with self._lock:
            aside = {unit.name: self._set_aside[unit] for unit in self._open}
        if not aside:
            return
        store, reasons = self.agent.store, []
        for stored in sorted(store.list_objects(FAILURES), key=lambda each: each.modified_s):
            failure = orjson.loads(store.read(stored.key))
            if aside.keys() & failure.get("units", ()):
                reasons.append(f"{failure['host']} {failure['pid']}: {failure['error']}")
        if self.agent.end_last():  # others would start with them again
            for unit in self._open:
                self.agent.release(_claim(unit))
        told = ", ".join(f"{name} ({counted(count, 'agent')})" for name, count in sorted(aside.items()))
        raise DistillError(
            f"{store.address}: units are set aside, because agents were lost or failed while they worked on them: "
            f"{told}"
            + "".join(f"\n  {reason}" for reason in reasons[-3:])
            + "\nall other units are committed; correct the cause, then run the same command again"
        )


def _told_units(told: Iterable[Mapping[str, Any]], least_s: float) -> dict[str, tuple[int, list[float]]]:
    """For each unit the samples that its agents have not drawn, and the rate of each agent in samples a second.

    Units of an agent without a trace count only after `least_s` seconds.
    """
    units: dict[str, tuple[int, list[float]]] = {}
    for facts in told:
        if facts["traces"] or facts["seconds"] >= least_s:
            for name, count in facts.get(UNDRAWN, {}).items():
                undrawn, rates = units.get(name, (count, []))
                units[name] = min(undrawn, count), [*rates, facts["traces"] / max(facts["seconds"], 1e-9)]
    return units


def claimed_units(store: ObjectStore, work: str = GENERATE) -> list[Unit]:
    """Every unit of some work with a claim, of a living agent or not, by one listing."""
    return list(_claim_numbers(store, work))


def _claim_numbers(store: ObjectStore, work: str) -> dict[Unit, int]:
    """The number of the last claim of every claimed unit."""
    keys = (stored.key.rsplit("/", 3) for stored in store.list_objects(f"{CLAIMS}/{work}"))
    return {
        Unit(round=int(round_), partition=partition, work=work): int(number) for _, round_, partition, number in keys
    }


def remove_all_leftovers(store: ObjectStore, commits: Mapping[Unit, Commit], work: str = GENERATE) -> None:
    """Delete segments, files and claims that killed agents have left of some work whose units are all committed."""
    kept = {f"{unit.folder}/{commit.attempt}/{name}" for unit, commit in commits.items() for name in commit.files}
    left = [stored.key for stored in store.list_objects(f"{work}/p") if stored.key not in kept]
    for claims in (f"{CLAIMS}/{work}", f"{CLAIMS}/{_JOINED}/{work}"):
        left += [stored.key for stored in store.list_objects(claims)]
    store.delete(left)


def _claim(unit: Unit) -> str:
    return f"{unit.work}/{unit.name}"


def _join_claim(unit: Unit) -> str:
    return f"{_JOINED}/{unit.work}/{unit.name}"
