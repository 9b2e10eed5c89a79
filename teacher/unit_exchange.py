"""Agents that work on the same unit exchange their progress by segments in the store.

    <unit>/<attempt>/agent-<name>               who makes an attempt
    <unit>/<attempt>/<teacher>/drawn/segment-*  samples that the agent has drawn, by id, while others work on the unit
    <unit>/<attempt>/<teacher>/segment-*        its traces, as for every attempt

At the end of a run an agent without a unit joins one of others and draws its samples from elsewhere. Each agent skips
the samples that the others have started, and takes over their traces, so all end at about the same time; the first
commit counts. Samples that a lost agent has drawn go to a living one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distill.artifacts.json_lines import LineReader
from distill.trace_records.trace_lines import trace_fault
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, decompress, read_commit
from distill.units.stored_run import read_traces
from teacher.generation import TeacherJob

_AGENT, _DRAWN, _SEGMENT = "agent-", "/drawn", "/segment-"


@dataclass(slots=True, kw_only=True)
class UnitExchange:
    """One attempt's side. `look` blocks and is called by a thread, `take_news` by the event loop of the engines."""

    attempt: Attempt
    agent: AgentRecord
    jobs: Callable[[], Sequence[TeacherJob]]
    """Jobs of the unit."""
    shared: bool = False
    """Whether another agent that lives works on the unit, as it was at the last look."""
    _seen: set[str] = field(default_factory=set)
    _agents: dict[str, str] = field(default_factory=dict)
    """Agents of other attempts."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    """Teachers and samples of which others know that they are drawn here."""
    _news: deque[tuple[str, Callable[[TeacherJob], None]]] = field(default_factory=deque)
    """For a teacher, what its job has to be told."""

    def __post_init__(self) -> None:
        self.attempt.store.put(f"{self.attempt.folder}/{_AGENT}{self.agent.name}", b"")

    def look(self) -> None:
        """Read the new segments of other agents, and write the samples that are drawn here."""
        store, unit = self.attempt.store, self.attempt.unit
        names = [stored.key.removeprefix(f"{unit.folder}/") for stored in store.list_objects(unit.folder)]
        others = [name for name in names if not name.startswith(f"{self.attempt.name}/")]
        for name in others:
            attempt, _, rest = name.partition("/")
            if rest.startswith(_AGENT) and "/" not in rest:  # a teacher may be called so
                self._agents[attempt] = rest.removeprefix(_AGENT)
        self.shared = False
        if others:
            self._read_others(others)
        for job in self.jobs() if self.shared else ():
            drawn = {(job.teacher.name, sample) for sample in job.queue.under_way} - self._told
            if drawn:
                lines = "".join(f"{sample}\n" for _, sample in sorted(drawn))
                self.attempt.seal(f"{job.teacher.name}{_DRAWN}", lines.encode())
                self._told |= drawn

    def _read_others(self, names: Sequence[str]) -> None:
        store, unit, living = self.attempt.store, self.attempt.unit, self.agent.living()
        alive = {attempt for attempt, agent in self._agents.items() if agent in living}
        self.shared = bool(alive)
        for name in names:
            attempt, _, rest = name.partition("/")
            stream, segment, _ = rest.rpartition(_SEGMENT)
            if not segment or name in self._seen:
                continue
            is_drawn = stream.endswith(_DRAWN)
            # An error of a lost agent is asked again, as after every kill; one of an agent that lives counts.
            if attempt not in alive and (is_drawn or name in self.attempt.begun_with):
                continue
            try:
                data = decompress(store.read(f"{unit.folder}/{name}"))
            except FileNotFoundError:  # the unit has just been committed
                break
            self._seen.add(name)
            if is_drawn:
                self._tell_drawn(stream.removesuffix(_DRAWN), attempt, data)
            else:
                self._tell_traces(stream, data)
        if any(job.queue.waits for job in self.jobs()):
            # All that live choose the same one.
            first = min((*alive, self.attempt.name))
            heir = None if first == self.attempt.name else first
            for job in self.jobs():
                self._news.append((job.teacher.name, lambda job: job.queue.give_up_on_lost(alive, heir)))
        commit = read_commit(store, unit)
        if commit is not None and commit.attempt not in self._seen:
            self._seen.add(commit.attempt)
            for job in self.jobs():
                self._tell_traces(job.teacher.name, read_traces(store, unit, commit, job.teacher.name))

    def _tell_drawn(self, teacher: str, attempt: str, data: bytes) -> None:
        ids = data.decode().split()
        self._news.append((teacher, lambda job: job.queue.leave(ids, attempt)))

    def _tell_traces(self, teacher: str, data: bytes) -> None:
        records = list(_records(data))
        self._news.append((teacher, lambda job: _take_over(job, records)))

    def take_news(self) -> None:
        """Take over what the last looks have found."""
        jobs = {job.teacher.name: job for job in self.jobs() if not job.queue.finished}
        if any(job.writer is None for job in jobs.values()):
            return  # the engine is not there yet
        while self._news:
            teacher, tell = self._news.popleft()
            if teacher in jobs:
                tell(jobs[teacher])


def _records(data: bytes) -> Iterable[dict[str, Any]]:
    reader, start = LineReader(trace_fault, plain=False), 0
    for line in data.splitlines(keepends=True):
        for found in reader.read(line, start):
            if isinstance(found, tuple):
                yield found[1]
        start += len(line)


def _take_over(job: TeacherJob, records: Iterable[Mapping[str, Any]]) -> None:
    assert job.writer is not None
    for record in records:
        job.writer.take_over(record)
