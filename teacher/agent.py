"""The engines of teachers that work at the same time, and the plans that they answer.

Engines stay open from plan to plan. The next plan is opened when nearly all samples of the last one are drawn, so
engines stay busy while the longest traces of a plan are written. A run in a folder has one plan.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import chain
from typing import Protocol

from distill.errors import CircuitOpen, DistillError, TeacherError
from distill.machine import event_loop
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.connect import connect, task_group
from teacher.generation import Generation, TeacherJob, Writer
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Request
from teacher.progress import GenerateProgress

HELD = 3
"""Most plans that are open at once: all but the last wait for their longest traces."""
AHEAD = 64
"""Samples of the last plan that are not drawn when the next one is opened."""
_CHARGE_INTERVAL_S = 0.2
_DRAW_AGAIN_S = 0.2


class PlanSource(Protocol):
    """Where an agent gets plans from. `draw` and `finish` block and are called in threads.

    One call of `draw` at a time; several plans may be finished at the same time.
    """

    def draw(self) -> Generation | None:
        """The next plan; None when there is none now."""

    @property
    def ended(self) -> bool:
        """Whether no plan will come any more."""

    def finish(self, generation: Generation) -> None:
        """Take a plan whose requests are all answered and on disk."""

    def take_news(self) -> None:
        """Take over the traces that other agents have written for the open plans. Called often, in the event loop."""


class NoMorePlans:
    """The source of plans for a run with one plan, which the run opens itself."""

    ended = True

    def draw(self) -> Generation | None:
        return None

    def finish(self, generation: Generation) -> None:
        pass

    def take_news(self) -> None:
        pass


class Agent:
    """Lets the engines of some teachers answer plans until no more come."""

    def __init__(
        self,
        teachers: Sequence[Teacher],
        progress: GenerateProgress,
        source: PlanSource,
        jobs: Sequence[TeacherJob] = (),
    ) -> None:
        """`jobs`: the jobs of an open plan."""
        self._teachers = teachers
        self._progress = progress
        self._source = source
        self._may_miss = source.ended
        """With one plan, the other teachers go on if a teacher is not there."""
        self._feeds = {teacher.name: TeacherFeed(self) for teacher in teachers}
        self._held: dict[int, int] = {}
        """Open jobs of every plan that is open."""
        # Each batch of an API takes about one plan, and hours.
        self._most_held = max(HELD, *(1 + each.batch.at_once for each in teachers if each.capabilities.direct), 0)
        self._drawing = False
        self.ended = source.ended
        self.served = False
        """Whether an engine has been there."""
        self.offline: dict[str, DistillError] = {}
        self._add(jobs)

    def run(self) -> dict[str, DistillError]:
        """Work until all requests are answered. With a single plan, returns the teachers whose engine is not
        available. Raises the errors of engines; finished traces are then on disk.
        """
        event_loop.run(self._run())
        return self.offline

    async def _run(self) -> None:
        serving: list[Teacher] = []
        async with task_group() as self._group:
            charging = self._group.create_task(self._charge(serving))
            self.draw()
            for task in [self._group.create_task(self._ask(teacher, serving)) for teacher in self._teachers]:
                await task
            charging.cancel()

    async def _ask(self, teacher: Teacher, serving: list[Teacher]) -> None:
        feed = self._feeds[teacher.name]
        async with AsyncExitStack() as stack:
            stack.callback(feed.close)
            job = await feed.first()
            if job is None:
                return
            try:
                settings = replace(job.generation.engine_settings(job), upcoming=feed.upcoming)
                engine = await stack.enter_async_context(connect(settings))
            except (TeacherError, CircuitOpen) as error:
                if not self._may_miss:
                    raise
                self.offline[teacher.name] = error
                return
            stack.callback(feed.close_writers)
            feed.open(engine.info)
            self._progress.follow(lambda: engine.in_flight)
            self.served = True
            serving.append(teacher)
            await engine.answer(feed.get, feed.done)

    async def _charge(self, serving: Sequence[Teacher]) -> None:
        """Charge for the servers' time, and hear of other agents."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_CHARGE_INTERVAL_S)
            self._source.take_news()
            now = time.monotonic()
            for teacher in serving:
                self._progress.spend(teacher, now - before)
            before = now

    def draw(self) -> None:
        """Start to open another plan, unless one is being opened or enough are open."""
        if not (self.ended or self._drawing or len(self._held) >= self._most_held):
            self._drawing = True
            self._group.create_task(self._draw())

    async def _draw(self) -> None:
        while (opened := await asyncio.to_thread(self._open_next)) is None:
            if self._source.ended:
                self.ended = True
                break
            await asyncio.sleep(_DRAW_AGAIN_S)
        self._drawing = False
        if opened is not None:
            generation, jobs = opened
            self._add(jobs)
            if not jobs:
                await asyncio.to_thread(self._source.finish, generation)
        for feed in self._feeds.values():
            feed.changed.set()

    def _open_next(self) -> tuple[Generation, list[TeacherJob]] | None:
        generation = self._source.draw()
        return None if generation is None else (generation, generation.jobs(self._teachers))

    def _add(self, jobs: Sequence[TeacherJob]) -> None:
        for job in jobs:
            self._held[id(job.generation)] = len(jobs)
            self._feeds[job.teacher.name].add(job)

    def retire(self, job: TeacherJob) -> None:
        """Record that a teacher has finished a plan."""
        key = id(job.generation)
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
            if not self._may_miss:
                self._group.create_task(asyncio.to_thread(self._source.finish, job.generation))


class TeacherFeed:
    """The requests of one teacher from all open plans, oldest plan first."""

    def __init__(self, agent: Agent) -> None:
        self.changed = asyncio.Event()
        self._agent = agent
        self._jobs: list[TeacherJob] = []
        self._served: EngineInfo | None = None
        self._closed = False

    def add(self, job: TeacherJob) -> None:
        """Add another plan."""
        if self._served is not None:
            job.writer = Writer(job, self._served)
        self._jobs.append(job)
        job.queue.on_change = self.changed.set
        self.changed.set()
        if self._closed:
            job.queue.close()

    def open(self, served: EngineInfo) -> None:
        """Prepare to write the answers of an engine."""
        self._served = served
        for job in self._jobs:
            job.writer = Writer(job, served)

    async def first(self) -> TeacherJob | None:
        """The first plan's job, once there is one; None when none comes."""
        while not self._jobs and not self._agent.ended:
            self.changed.clear()
            await self.changed.wait()
            self._agent.draw()
        return self._jobs[0] if self._jobs else None

    async def get(self) -> Request | None:
        """The next request; waits until one is ready. None when no more requests will come."""
        while True:
            self.changed.clear()
            request = self._take()
            if request is not None:
                return request
            self._agent.draw()
            if not self._jobs and self._agent.ended:
                self.changed.set()
                return None
            await self.changed.wait()

    def _take(self) -> Request | None:
        for job in tuple(self._jobs):
            request = job.queue.take()
            if request is not None:
                if job is self._jobs[-1] and job.queue.undrawn < AHEAD:
                    self._agent.draw()
                return request
            if job.queue.finished:
                self._jobs.remove(job)
                _close(job)
                self._agent.retire(job)
        return None

    def upcoming(self, samples: int) -> Iterator[ImageRef]:
        """Images that come next, of about so many samples of each plan."""
        return chain.from_iterable(job.queue.upcoming(samples) for job in self._jobs)

    def done(self, request: Request, completion: Completion) -> None:
        """Write the answer to a request."""
        job = self._job_of(request.sample)
        if job is not None:
            assert job.writer is not None
            job.writer.done(request, completion)

    def _job_of(self, sample: Sample) -> TeacherJob | None:
        """The job that a sample is under way for; None where another agent has made its traces meanwhile."""
        return next((job for job in self._jobs if job.queue.holds(sample)), None)

    def close_writers(self) -> None:
        """Make everything that was answered durable."""
        for job in self._jobs:
            _close(job)

    def close(self) -> None:
        """End this teacher's work, so that no other teacher waits for it."""
        self._closed = True
        for job in self._jobs:
            job.queue.close()


def _close(job: TeacherJob) -> None:
    if job.writer is not None:
        job.writer.close()
        job.writer = None
