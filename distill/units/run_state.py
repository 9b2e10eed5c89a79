"""The progress of a run in a store: its plan, its commits, its claims and the last signs of its agents."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from distill.errors import StaleError
from distill.object_store.interface import ObjectStore
from distill.units.agent_record import AGENTS, FAILURES, claim_holders
from distill.units.commits import Unit, committed_units
from distill.units.stored_stage import stage_counts
from distill.units.unit_queue import claimed_units

PLAN_KEY = "plan/plan.json"
SIGNAL_UNITS = "filter/signals"
"""Units of a filter are below it, by the fingerprint of what measures them."""
DATASET_STEP = "filter/dataset/step.json"
"""The work, the round and the names of the units by which agents write a dataset; there while they do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Counts of a run. `traces`: an estimate of the traces in committed units; `total_traces`: all traces of the
    run."""

    partitions: int
    units: int
    """One for each partition and each round of teachers."""
    done: int
    claimed: int
    traces: int
    total_traces: int
    agents: tuple[Mapping[str, Any], ...]
    """The object of each agent, with the seconds since its last sign (`silent_s`) and whether it `works`."""
    failures: tuple[Mapping[str, Any], ...]
    """Agents that ended with an error."""
    measured: int = 0
    """Partitions whose signals are committed, of the filter that measured last."""
    written: tuple[int, int] = (0, 0)
    """Committed units of the dataset, and all: of partitions first, then of files. (0, 0) while there are none."""
    filtered: Mapping[str, int] = field(default_factory=dict)
    """Counts of a finished filter stage."""
    trained: Mapping[str, int] = field(default_factory=dict)
    """Counts of finished training stages together."""
    evaluated: Mapping[str, int] = field(default_factory=dict)
    """Counts of a finished evaluation."""

    @property
    def waiting(self) -> int:
        """Units that no agent has claimed."""
        return self.units - self.done - self.claimed

    @property
    def is_over(self) -> bool:
        """Whether all that was begun is finished, and no agent works."""
        filters = bool(self.measured or self.written[1]) and not self.filtered
        return self.done == self.units and not filters and not any(agent["works"] for agent in self.agents)

    @property
    def traces_per_s(self) -> float:
        """Traces a second of all working agents, since each began."""
        return self._per_s("traces")

    def _per_s(self, *names: str) -> float:
        """The sum of the rates of all working agents; each agent's rate is the first of these names that it
        reports."""
        works = (agent for agent in self.agents if agent["works"])
        counts = ((next(agent[name] for name in names if name in agent), agent["seconds"]) for agent in works)
        return sum((float(count) / max(seconds, 1e-9) for count, seconds in counts), 0.0)

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end, at most: what is ready in open units does not count. None without a rate."""
        rate = self._per_s("planned", "traces")
        return (self.total_traces - self.traces) / rate if rate else None

    def as_fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {
            "waiting": self.waiting,
            "traces_per_s": self.traces_per_s,
            "eta_s": self.eta_s,
        }


def read_run_state(store: ObjectStore) -> RunState:
    """Raises StaleError where no run has begun."""
    agents = read_agents(store)
    try:
        plan = orjson.loads(store.read(PLAN_KEY))
    except FileNotFoundError:
        hosts = ", ".join(agent["host"] for agent in agents if agent["works"])
        state = (
            f"{hosts} still reads the source" if hosts else ("no run has started here; `distill generate` starts one")
        )
        failed = [f"failed: {each['host']} {each['pid']}: {each['error']}" for each in _objects(store, FAILURES)]
        raise StaleError("\n".join([f"{store.address}: {state}", *failed])) from None
    committed = set(committed_units(store))
    partitions = len(plan["partitions"])
    return RunState(
        partitions=partitions,
        units=partitions * len(plan["rounds"]),
        done=len(committed),
        claimed=len(set(claimed_units(store)) - committed),
        traces=traces_of(plan, committed),
        total_traces=plan["traces"],
        agents=tuple(agents),
        failures=tuple(_objects(store, FAILURES)),
        measured=_count_measured(store),
        written=_count_written(store),
        filtered=stage_counts(store, "filter"),
        trained=stage_counts(store, "train"),
        evaluated=stage_counts(store, "eval"),
    )


def _count_measured(store: ObjectStore) -> int:
    """Commits of the filter of which one was made last."""
    commits = [stored for stored in store.list_objects(SIGNAL_UNITS) if "/commits/" in stored.key]
    works = Counter(stored.key.partition("/commits/")[0] for stored in commits)
    last = max(commits, key=lambda stored: stored.modified_s, default=None)
    return works[last.key.partition("/commits/")[0]] if last is not None else 0


def _count_written(store: ObjectStore) -> tuple[int, int]:
    try:
        step = orjson.loads(store.read(DATASET_STEP))
    except FileNotFoundError:
        return 0, 0
    done = {unit.partition for unit in committed_units(store, step["work"]) if unit.round == step["round"]}
    return len(done), len(step["names"])


def traces_of(plan: Mapping[str, Any], units: Iterable[Unit]) -> int:
    """Traces of some units of a plan, about: some samples get more than others, or fewer."""
    rows: Mapping[str, int] = plan["partitions"]
    traces: list[int] = [each["traces"] for each in plan["rounds"]]
    return sum(traces[unit.round] * rows[unit.partition] for unit in units) // max(sum(rows.values()), 1)


def read_agents(store: ObjectStore) -> list[dict[str, Any]]:
    """The object of every agent, and whether it `works` or is silent for too long.

    Silent agents whose work others have finished are left out.
    """
    agents = [agent | {"works": agent["silent_s"] < agent["lease_s"]} for agent in _objects(store, AGENTS)]
    holders = set() if all(agent["works"] for agent in agents) else claim_holders(store)
    return [agent for agent in agents if agent["works"] or agent["name"] in holders]


def _objects(store: ObjectStore, folder: str) -> Iterator[dict[str, Any]]:
    """The content of the agents' objects, each with its `name`, and `silent_s` by the clock of the store."""
    listed = store.list_objects(folder)
    now_s = store.now_s() if listed else 0.0
    for stored in listed:
        try:
            facts = orjson.loads(store.read(stored.key))
        except FileNotFoundError:  # ended since the listing
            continue
        name = stored.key.removeprefix(f"{folder}/").removesuffix(".json")
        yield facts | {"name": name, "silent_s": round(max(0.0, now_s - stored.modified_s), 1)}
