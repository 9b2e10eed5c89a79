"""The open units of a run as one of its agents draws them. Claims and commits in the store say what others do."""

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from distill.object_store.interface import ObjectStore
from distill.units.agent_record import CLAIMS, AgentRecord
from distill.units.commits import GENERATE, Commit, Unit, committed_units, read_commit

UNDRAWN = "undrawn"
"""What an agent tells of its units: samples that it has not drawn, by the name of the unit."""
_JOINED = "joined"
LOOK_S = 3.0
"""Between two looks at what other agents have left."""


class UnitQueue:
    """Units of which no commit is known. Its methods may be called from several threads."""

    def __init__(
        self,
        agent: AgentRecord,
        units: Iterable[Unit],
        on_elsewhere: Callable[[Unit], None] = lambda _: None,
        work: str = GENERATE,
    ) -> None:
        """`units` are open ones of this work; `on_elsewhere` is told of those that another agent commits."""
        self._agent, self._on_elsewhere, self._work = agent, on_elsewhere, work
        self._open = set(units)
        claimed = set(claimed_units(agent.store, work))
        self._unclaimed = sorted(self._open - claimed, key=lambda unit: unit.name)
        # Agents that begin together do not run after the same units.
        random.Random(agent.name).shuffle(self._unclaimed)
        self._at_work: set[Unit] = set()
        self._next_look_s = self._next_join_s = 0.0
        # Signs of the agent, which name its units, are also given while a unit is drawn.
        self._lock = threading.RLock()

    def draw(self) -> Unit | None:
        """A unit that is this agent's now; None when others have all that is open."""
        with self._lock:
            while self._unclaimed:
                if self._take(unit := self._unclaimed.pop(), living=None):
                    return unit
            if time.monotonic() < self._next_look_s:
                return None
            self._next_look_s = time.monotonic() + LOOK_S
            waiting = self._open - self._at_work
            for unit in waiting.intersection(committed_units(self._agent.store, self._work)):
                self._close(unit)
            living = self._agent.living()
            return next((unit for unit in self._open - self._at_work if self._take(unit, living)), None)

    def join(self, least: int, least_s: float) -> Unit | None:
        """A unit of another agent with `least` or more samples that it has not drawn, to share the work on it.

        The other agent would need more than `least_s` seconds for them at its rate, or has no trace after so many
        seconds. One agent joins a unit at a time. None where there is no such unit, or a look at others is not due.
        """
        with self._lock:
            if time.monotonic() < self._next_join_s:
                return None
            self._next_join_s = time.monotonic() + LOOK_S
            undrawn: dict[str, int] = {}
            for facts in self._agent.read_others():
                if not facts["traces"] and facts["seconds"] < least_s:
                    continue
                needed = max(least, least_s * facts["traces"] / max(facts["seconds"], 1e-9))
                undrawn |= {name: count for name, count in facts.get(UNDRAWN, {}).items() if count >= needed}
            for unit in sorted(self._open - self._at_work, key=lambda each: -undrawn.get(each.name, 0)):
                if unit.name not in undrawn:
                    return None
                if self._agent.claim(_join_claim(unit)):
                    self._at_work.add(unit)
                    return unit
            return None

    def _take(self, unit: Unit, living: set[str] | None) -> bool:
        if not self._agent.claim(_claim(unit), living):
            return False
        if read_commit(self._agent.store, unit) is not None:
            self._agent.release(_claim(unit))
            self._close(unit)
            return False
        self._at_work.add(unit)
        return True

    def _close(self, unit: Unit) -> None:
        self._open.discard(unit)
        self._on_elsewhere(unit)

    def done(self, unit: Unit) -> None:
        """Take note that this agent has ended a unit, which is committed."""
        self._agent.release(_claim(unit))
        self._agent.release(_join_claim(unit))
        with self._lock:
            self._at_work.discard(unit)
            self._open.discard(unit)

    @property
    def at_work(self) -> list[str]:
        """The units of this agent, by name."""
        with self._lock:
            return sorted(unit.name for unit in self._at_work)

    @property
    def ended(self) -> bool:
        """Whether every unit is committed."""
        with self._lock:
            return not self._open


def claimed_units(store: ObjectStore, work: str = GENERATE) -> list[Unit]:
    """Every unit of some work with a claim, of a living agent or not, by one listing."""
    keys = (stored.key.rsplit("/", 3) for stored in store.list_objects(f"{CLAIMS}/{work}"))
    return [Unit(round=int(round_), partition=partition, work=work) for _, round_, partition, _ in keys]


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
