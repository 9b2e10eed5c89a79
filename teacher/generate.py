"""The verb: let the teachers write reasoning traces.

Works out from the recipe, the samples and the traces on disk what is still wanted, asks for exactly that, appends
each trace as soon as it is finished, and writes the manifest last. Killed at any moment, the same command goes on
where it stopped.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

from distill.artifacts.damaged_lines import counted
from distill.artifacts.files import Output, locked
from distill.artifacts.integrity import changed
from distill.artifacts.manifest import MANIFEST, Manifest, fingerprint, finished, versions
from distill.errors import CircuitOpen, DistillError, TeacherError
from distill.recipe.recipe import Recipe
from distill.recipe.teachers import Teacher
from distill.types import Outcome, ProgressCallback, unwatched
from teacher.engines.connect import EngineSettings, connect, engine_settings
from teacher.engines.outage import Dependency, Failure, Say
from teacher.engines.provenance import noted, require_same
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Model, Request
from teacher.progress import GenerateProgress, announce
from teacher.scheduling.gpu_rounds import rounds
from teacher.scheduling.request_queue import RequestQueue
from teacher.store import question_plan
from teacher.store.adopt import adopt
from teacher.store.final_traces import Tally, lines, outputs, settle
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import TraceJournal, clean, scan, trace

_CHARGE_INTERVAL_S = 0.2
_LOOKED_AT = 2000
_LOOK_S = (0.5, 15.0)
"""Between two looks at a folder of images that is away: at first, and later."""
REMEDY = (
    "run again with --fresh to plan anew (traces that are the same by content are kept and not asked again), "
    "or choose another --run"
)


Absent = Mapping[str, DistillError]
"""Teachers that could not be reached, and why."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One teacher's share of the work."""

    teacher: Teacher
    model: Model
    ledger: TraceIndex
    feed: RequestQueue


def generate(
    recipe: Recipe,
    run: Path | str,
    *,
    limit: int | None = None,
    fresh: bool = False,
    on_progress: ProgressCallback = unwatched,
) -> Manifest:
    """Let the teachers of a recipe answer [data.questions]; traces go to `<run>/generate/<teacher>/`.

    `limit` asks about that many samples only, spread over the domains by content. `fresh` plans anew after
    settings have changed and asks again whatever ended in an error; traces that are still wanted are kept, the
    others stay in the journals unused. A finished stage with the same settings, source and limit is returned as
    it is, after asking again what failed for a passing reason if its server is there.

    Raises RecipeError, DataError, ModelError and StaleError for what the user has to change, TeacherError for a
    server that does not answer, CircuitOpen when too many requests fail, StorageError for a full disk, BusyError
    when another process works on the run.
    """
    folder = Path(run) / "generate"
    models = question_plan.check(recipe)
    fields = question_plan.settings(recipe, models)
    started = time.monotonic()
    with locked(Path(run)):
        for teacher in recipe.teachers:
            require_same(folder / teacher.name, teacher)
        before = None if fresh else finished(folder, fields, remedy=REMEDY)
        now = question_plan.state(recipe, folder, fields, limit)
        if fresh or not question_plan.current(folder, now):
            now = _wait_for_images(recipe, folder, fields, limit, now, lambda what: announce(on_progress, what))
            pending, routed = question_plan.prepare(recipe, folder, limit=limit)
            (folder / MANIFEST).unlink(missing_ok=True)
            question_plan.adopt(pending, folder, now, routed)
            before = None
        elif before and changed(folder, before.outputs.items()):
            (folder / MANIFEST).unlink()
            before = None
        elif before and _proven(before) and not before.counts["errors_to_ask_again"]:
            return before
        # What is only asked again because it may pass today is not worth waiting for.
        complete = before is not None and _proven(before)
        stage = _Stage(recipe, models, question_plan.read(folder), on_progress, complete=complete, fresh=fresh)
        absent = stage.work()
        if absent and before and complete and (folder / MANIFEST).exists():
            return before
        return stage.finish(absent, fields, now, started)


def _proven(before: Manifest) -> bool:
    """Whether every error of a finished stage is proven to be the row's own; earlier versions proved none."""
    return before.counts.get("error", 0) == before.counts.get("errors_proven", 0)


def _wait_for_images(
    recipe: Recipe, folder: Path, fields: Mapping[str, Any], limit: int | None, now: dict[str, Any], say: Say
) -> dict[str, Any]:
    """The state of the plan once the folders of its images are there. Raises CircuitOpen when they stay away."""
    images = Dependency("the images of this run")
    while gone := question_plan.away(folder, now):
        shown = ", ".join(gone[:3]) + (f" and {len(gone) - 3:,} more folders" if len(gone) > 3 else "")
        images.failed(
            "images",
            Failure("image", f"{shown} cannot be read; if they are gone for good, take their rows out of the source"),
        )
        images.wait(recipe.generate.patience_s, say, idle=True)
        time.sleep(min(images.pause_s(*_LOOK_S), max(_CHARGE_INTERVAL_S, recipe.generate.patience_s / 4)))
        now = question_plan.state(recipe, folder, fields, limit)
    return now


def ask(
    recipe: Recipe, models: Mapping[str, Model], plan: question_plan.QuestionPlan, on_progress: ProgressCallback
) -> None:
    """Have the samples of a plan answered and leave the stage unfinished; the caller holds the lock of the run.

    Raises what `generate` raises for teachers that are not there or fail.
    """
    absent = _Stage(recipe, models, plan, on_progress).work()
    if absent:
        raise _stopped(absent)


class _Stage:
    """One run of the verb over a plan."""

    def __init__(
        self,
        recipe: Recipe,
        models: Mapping[str, Model],
        plan: question_plan.QuestionPlan,
        on_progress: ProgressCallback,
        *,
        complete: bool = False,
        fresh: bool = False,
    ) -> None:
        """`complete`: there are traces of everything, so no server is waited for. `fresh`: errors are asked again."""
        self.recipe = recipe
        self.plan = plan
        self.models = models
        self.patience_s = recipe.generate.patience_s
        self.check_patience_s = 0.0 if complete else self.patience_s
        self.ledgers: dict[str, TraceIndex] = {}
        for teacher in recipe.teachers:
            ledger = self.ledgers[teacher.name] = scan(plan.folder / teacher.name, teacher)
            if ledger.damaged:
                (plan.folder / MANIFEST).unlink(missing_ok=True)
            clean(ledger, teacher, drop_errors=False)
        notes = list(adopt(recipe, models, plan, plan.folder, self.ledgers))
        if fresh:
            for ledger in self.ledgers.values():
                ledger.errors.clear()
        outcomes = sum((ledger.outcomes() for ledger in self.ledgers.values()), Counter[str]())
        total = sum(
            plan.routed[teacher.name] * teacher.samples for teacher in recipe.teachers if teacher.after is None
        )
        self.watch = GenerateProgress(on_progress, done=outcomes.total(), total=total, outcomes=outcomes)
        for note in notes:
            self.watch.note(note)

    def work(self) -> Absent:
        """Have everything answered that is open. Returns the teachers whose server is not there.

        Servers may be up one after the other: those that are there are used, the others are reported at the end.
        """
        absent: dict[str, DistillError] = {}
        for group in rounds(self.recipe.teachers):
            jobs = self._jobs(group)
            if jobs:
                absent |= asyncio.run(self._ask_engines(jobs))
        return absent

    def _jobs(self, group: Sequence[Teacher]) -> list[_Job]:
        """Those of a group that have something to do, or may get it from one another."""
        found = lines(self.recipe, self.models, self.ledgers, settled=False)
        jobs: dict[str, _Job] = {}
        for teacher in group:
            before = jobs.get(teacher.after or "")
            ledger = self.ledgers[teacher.name]
            feed = RequestQueue(found[teacher.name], self.plan.read(), before.feed if before else None)
            request = feed.take()
            if request is not None:
                feed.put_back(request)
            if not feed.finished:
                model = self.models[teacher.name]
                jobs[teacher.name] = _Job(teacher=teacher, model=model, ledger=ledger, feed=feed)
        return list(jobs.values())

    async def _ask_engines(self, jobs: Sequence[_Job]) -> Absent:
        """All engines at once, each with its own number of requests in flight."""
        absent: dict[str, DistillError] = {}
        serving: list[Teacher] = []
        try:
            async with asyncio.TaskGroup() as group:
                pulse = group.create_task(self._pulse(serving))
                for asking in [group.create_task(self._ask_engine(job, serving, absent)) for job in jobs]:
                    await asking
                pulse.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return absent

    async def _ask_engine(self, job: _Job, serving: list[Teacher], absent: dict[str, DistillError]) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(job.feed.close)
            try:
                engine = await stack.enter_async_context(connect(self._engine_settings(job)))
            except (TeacherError, CircuitOpen) as error:
                absent[job.teacher.name] = error
                return
            writer = stack.enter_context(_Writer(self, job, engine.info))
            self.watch.follow(lambda: engine.in_flight)
            serving.append(job.teacher)
            await engine.answer(job.feed.get, writer.done)

    def _engine_settings(self, job: _Job) -> EngineSettings:
        return engine_settings(
            self.recipe,
            job.teacher,
            job.model,
            job.ledger.folder,
            patience_s=self.patience_s,
            start_patience_s=self.check_patience_s,
            known_request=lambda: self._answered(job),
            say=self.watch.note,
        )

    def _answered(self, job: _Job) -> Request | None:
        """A request that was answered in an earlier run, if there is one near the start of the plan."""
        looks = (job.feed.line.look(sample) for sample in islice(self.plan.read(), _LOOKED_AT))
        return next((final.request for look in looks for final in look.finals if final.complete), None)

    async def _pulse(self, teachers: Sequence[Teacher]) -> None:
        """Charge for the servers' time."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_CHARGE_INTERVAL_S)
            now = time.monotonic()
            for teacher in teachers:
                self.watch.spend(teacher, now - before)
            before = now

    def finish(
        self,
        absent: Absent,
        fields: Mapping[str, Any],
        now: Mapping[str, Any],
        started: float,
    ) -> Manifest:
        """Write down which traces count, and the manifest. Raises an error when traces are still to be made."""
        found = lines(self.recipe, self.models, self.ledgers, settled=True)
        tallies = settle(self.plan, found, self.ledgers)
        _require_complete(self.recipe, self.plan.folder, tallies, absent)
        outcomes = sum((tally.outcomes for tally in tallies.values()), Counter[str]())
        self.watch.finish(outcomes)
        traces = outcomes.total() - sum(tally.dropped for tally in tallies.values())
        files: dict[str, Output] = outputs(self.plan, traces)
        engines: dict[str, str] = {}
        for name, ledger in self.ledgers.items():
            engines |= ledger.engines
            files |= {f"{name}/{part}": output for part, output in ledger.outputs().items()}
        return Manifest(
            stage="generate",
            fingerprint=fingerprint(fields),
            fields=fields,
            inputs={question_plan.SOURCE: str(now["content"]), "limit": str(now["limit"])},
            outputs=files,
            counts=_counts(self.plan, tallies, outcomes, traces, sum(each.odd for each in self.ledgers.values())),
            tokens=sum((tally.tokens for tally in tallies.values()), Counter[str]()),
            versions=versions("aiohttp", "orjson", "pillow") | engines,
            seconds=round(time.monotonic() - started, 3),
        ).write(self.plan.folder)


class _Writer:
    """Puts finished requests of one teacher on disk and on the screen, and hears what follows from them."""

    def __init__(self, stage: _Stage, job: _Job, served: EngineInfo) -> None:
        self.job = job
        self._served = noted(job.ledger.folder, served)
        self._watch = stage.watch
        self._skipped = job.feed.skipped
        (stage.plan.folder / MANIFEST).unlink(missing_ok=True)
        clean(job.ledger, job.teacher, drop_errors=True)
        self.journal = TraceJournal(job.ledger, flush_interval_s=stage.recipe.generate.flush_interval_s)

    def done(self, request: Request, completion: Completion) -> None:
        job = self.job
        record = self.journal.append(trace(job.teacher, job.model, self._served, request, completion))
        job.feed.done(request, record)
        extra = bool(request.attempt or job.teacher.after)
        if extra or job.feed.skipped != self._skipped:
            self._watch.expect(extra - (job.feed.skipped - self._skipped))
            self._skipped = job.feed.skipped
        self._watch.count(job.teacher, record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()
        self.job.ledger.close()


def _require_complete(recipe: Recipe, folder: Path, tallies: Mapping[str, Tally], absent: Absent) -> None:
    """Raises an error when traces are missing, or when a teacher has nothing but errors to show.

    One that only gets what others failed at may well fail at all of it.
    """
    if any(tally.open for tally in tallies.values()):
        finished_count = sum(tally.outcomes.total() for tally in tallies.values())
        raise _stopped(absent, f"{finished_count:,} traces are finished and kept; run again when all servers are up")
    for teacher in recipe.teachers:
        outcomes = tallies[teacher.name].outcomes
        failed = outcomes[Outcome.ERROR]
        if failed and failed == outcomes.total() and teacher.when == "always":
            raise TeacherError(
                f"teacher '{teacher.name}': all {failed} requests failed; the reasons are in "
                f"{folder / teacher.name}; repair the server or the recipe, then run the same command again"
            )


def _stopped(absent: Absent, *more: str) -> DistillError:
    """The error of a run that could not reach all its teachers."""
    text = "\n".join([*(str(error) for error in absent.values()), *more])
    away = all(isinstance(error, CircuitOpen) for error in absent.values())
    return CircuitOpen(text) if away else TeacherError(text)


def _counts(
    plan: question_plan.QuestionPlan, tallies: Mapping[str, Tally], outcomes: Mapping[str, int], traces: int, odd: int
) -> dict[str, int]:
    counts = {"samples": plan.samples, "quarantined": plan.quarantined.total(), "traces": traces, **outcomes}
    for name, tally in tallies.items():
        counts |= {f"{name}.{outcome}": count for outcome, count in tally.outcomes.items()}
    counts |= {f"quarantined.{reason}": count for reason, count in plan.quarantined.items()}
    for key in ("repeated", "dropped", "hinted"):
        if total := sum(getattr(tally, key) for tally in tallies.values()):
            counts[key] = total
    if damaged := sum(counted(plan.folder).values()):
        counts["damaged_lines"] = damaged
    counts["errors_to_ask_again"] = sum(tally.errors_to_ask_again for tally in tallies.values())
    if proven := sum(tally.proven for tally in tallies.values()):
        counts["errors_proven"] = proven
    if odd:
        counts["odd_numbers"] = odd
    return counts
