"""Many hosts that share a run, on a virtual clock: which part of linear speed do lost and slow hosts leave?

    python benchmarks/scale/simulation.py [--hosts 64] [--units 16] [--seeds 5]

Queue, claims, leases, commits and joined units are those of the project (distill/units), over a store in memory; time
is simulated. A host works on one unit at a time; a unit is some seconds of work, +-15 %, of a host of speed 1, +-8 %.
Several hosts on one unit are as fast as all of them, but ask twice what they draw in --look seconds. A lost host
gives no sign, loses --seal seconds of its work, and comes back as a new one after --start seconds.

linear: all work divided by the speeds of all hosts, as if none were lost.
Takes 1 s with `--hosts 4 --units 4 --seeds 1` (two shared cores).
"""

import argparse
import bisect
import heapq
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers.store_in_memory import MemoryStore

from distill.object_store.interface import StoredObject
from distill.units import unit_queue
from distill.units.agent_record import BEATS, LEASE_S, AgentRecord
from distill.units.commits import Attempt, Unit, committed_units
from distill.units.unit_queue import LOOK_S, UNDRAWN, UnitQueue

SAMPLES = 10_000
UNIT_S = 600.0


class SortedStore(MemoryStore):
    """The store of the tests, which finds the objects of a folder without looking at all."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str] = []

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        prefix, found = f"{folder}/" if folder else "", []
        for at in range(bisect.bisect_left(self._keys, prefix), len(self._keys)):
            if not (key := self._keys[at]).startswith(prefix):
                break
            data, modified = self.objects[key]
            found.append(StoredObject(key=key, bytes=len(data), modified_s=modified))
        return found

    def put(self, key: str, data: bytes | Path) -> None:
        self._add(key)
        super().put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        self._add(key)
        return super().create(key, data)

    def delete(self, keys: Iterable[str]) -> None:
        listed = [key for key in keys if key in self.objects]
        super().delete(listed)
        for key in listed:
            del self._keys[bisect.bisect_left(self._keys, key)]

    def _add(self, key: str) -> None:
        if key not in self.objects:
            bisect.insort(self._keys, key)


@dataclass(eq=False)
class OpenUnit:
    """What is left of a unit, in seconds of a host of speed 1, as it was at a time."""

    unit: Unit
    left_s: float
    hosts: "set[Host]" = field(default_factory=set)
    at_s: float = 0.0
    version: int = 0


@dataclass(eq=False)
class Host:
    speed: float
    agent: AgentRecord
    queue: UnitQueue
    begun_s: float
    work: OpenUnit | None = None
    alive: bool = True
    made: float = 0.0


class Simulation:
    """One run to its end."""

    def __init__(self, options: argparse.Namespace, seed: int, *, lost_an_hour: float, slow: float) -> None:
        self.options, self.rng, self.now = options, random.Random(seed), 0.0
        unit_queue.time = SimpleNamespace(monotonic=lambda: self.now)  # type: ignore[assignment]
        self.lost_an_hour = lost_an_hour
        self.store = SortedStore()
        self.store.clock = lambda: self.now
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = self.lost = self.joined = 0
        units = [Unit(round=0, partition=f"{number:04x}") for number in range(options.hosts * options.units)]
        self.works = {unit: OpenUnit(unit, UNIT_S * self.rng.uniform(0.85, 1.15)) for unit in units}
        slow_hosts = round(slow * options.hosts)
        speeds = [self.rng.uniform(0.92, 1.08) / (3 if host < slow_hosts else 1) for host in range(options.hosts)]
        self.open = len(units)
        self.linear_s = sum(work.left_s for work in self.works.values()) / sum(speeds)
        for speed in speeds:
            self.start(speed)

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, event))

    def start(self, speed: float) -> None:
        agent = AgentRecord(store=self.store, name=f"{self.rng.getrandbits(64):016x}", lease_s=LEASE_S)
        queue = UnitQueue(agent, set(self.works) - set(committed_units(self.store)), retries=5)
        host = Host(speed, agent, queue, self.now)
        agent.live = lambda: self.facts(host)
        self.beat(host)
        self.wake(host)
        if self.lost_an_hour:
            self.later(self.rng.expovariate(self.lost_an_hour / 3600), lambda: self.lose(host))

    def facts(self, host: Host) -> dict[str, Any]:
        undrawn = {}
        if host.work is not None:
            self.go_on(host.work)
            undrawn = {host.work.unit.name: round(SAMPLES * host.work.left_s / UNIT_S)}
        rate = SAMPLES / UNIT_S * host.speed
        return {"traces": rate * max(1.0, self.now - host.begun_s), "seconds": max(1.0, self.now - host.begun_s)} | {
            UNDRAWN: undrawn
        }

    def beat(self, host: Host) -> None:
        if host.alive and not host.queue.ended:
            host.agent.beat()
            self.later(LEASE_S / BEATS, lambda: self.beat(host))

    def wake(self, host: Host) -> None:
        """Let a host without work look for some."""
        if not host.alive or host.work is not None or host.queue.ended:
            return
        unit = host.queue.draw()
        if unit is None and self.options.share:
            joined = host.queue.join(SAMPLES // 64, 2 * self.options.seal)
            unit = joined[0] if joined is not None else None
            self.joined += unit is not None
        if unit is None:
            self.later(self.rng.uniform(LOOK_S, 5 * LOOK_S), lambda: self.wake(host))
            return
        work = host.work = self.works[unit]
        self.go_on(work)
        if work.hosts:  # what they draw between two looks is asked twice
            work.left_s += self.options.look * host.speed
        work.hosts.add(host)
        self.plan_end(work)

    def go_on(self, work: OpenUnit) -> None:
        speed = sum(host.speed for host in work.hosts)
        work.left_s = max(0.0, work.left_s - speed * (self.now - work.at_s))
        work.at_s = self.now

    def plan_end(self, work: OpenUnit) -> None:
        work.version += 1
        version = work.version
        if speed := sum(host.speed for host in work.hosts):
            self.later(work.left_s / speed, lambda: self.end(work, version))

    def end(self, work: OpenUnit, version: int) -> None:
        if version != work.version:
            return
        for host in sorted(work.hosts, key=lambda each: each.agent.name):
            Attempt(store=self.store, unit=work.unit, name=host.agent.name).commit({})
            host.queue.done(work.unit)
            host.work = None
            self.later(0, lambda host=host: self.wake(host))  # type: ignore[misc]
        work.hosts.clear()
        self.open -= 1

    def lose(self, host: Host) -> None:
        if host.queue.ended:
            return
        self.lost += 1
        host.alive = False
        if (work := host.work) is not None:
            self.go_on(work)
            work.hosts.discard(host)
            work.left_s += self.options.seal * host.speed
            self.plan_end(work)
        self.later(self.options.start, lambda: self.start(host.speed))

    def run(self) -> float:
        """Seconds to the last commit."""
        while self.open:
            self.now, _, event = heapq.heappop(self.events)
            event()
        assert len(committed_units(self.store)) == len(self.works)
        return self.now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--units", type=int, default=16, help="of each host")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seal", type=float, default=30.0)
    parser.add_argument("--look", type=float, default=5.0)
    parser.add_argument("--start", type=float, default=300.0)
    options = parser.parse_args()
    worlds = {"all well": (0.0, 0.0), "0.1 losses an hour": (0.1, 0.0), "5 % of hosts at a third": (0.0, 0.05)}
    worlds["both"] = (0.1, 0.05)
    print(
        f"{options.hosts} hosts, {options.units} units each; share of linear, mean (least) of {options.seeds} seeds"
    )
    for name, (lost, slow) in worlds.items():
        cells = []
        for options.share in (False, True):
            runs = []
            for seed in range(options.seeds):
                simulation = Simulation(options, seed, lost_an_hour=lost, slow=slow)
                runs.append((simulation.linear_s / simulation.run(), simulation.lost, simulation.joined))
            shares = [run[0] for run in runs]
            cells.append(f"{statistics.mean(shares):.1%} ({min(shares):.1%})")
        told = (
            f"{statistics.mean(run[1] for run in runs):.0f} lost, {statistics.mean(run[2] for run in runs):.0f} joins"
        )
        print(f"{name:24} units not shared {cells[0]}, shared {cells[1]}; {told}", flush=True)


if __name__ == "__main__":
    main()
