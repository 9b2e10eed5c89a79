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

from distill.artifacts.damaged_lines import count_damaged
from distill.artifacts.files import Output, locked
from distill.artifacts.integrity import changed
from distill.artifacts.manifest import MANIFEST, Manifest, fingerprint, finished, versions
from distill.errors import CircuitOpen, DistillError, TeacherError
from distill.recipe.recipe import Recipe
from distill.recipe.teachers import Teacher
from distill.types import Outcome, ProgressCallback, unwatched
from teacher.engines.connect import EngineSettings, connect, engine_settings
from teacher.engines.outage import Dependency, Failure, Say
from teacher.engines.provenance import record_engine, require_same_options
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Model, Request
from teacher.progress import GenerateProgress, announce
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.scheduling.request_queue import RequestQueue
from teacher.store import question_plan
from teacher.store.final_traces import FinalTraces, Tally, collect_final_traces, plan_outputs, teacher_policies
from teacher.store.renamed_teachers import copy_traces_of_renamed_teachers
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import TraceForm, TraceJournal, make_trace, read_index, rewrite_parts

_CHARGE_INTERVAL_S = 0.2
_SAMPLES_CHECKED = 2000
_IMAGE_CHECK_S = (0.5, 15.0)
"""Between two looks at a folder of images that is away: at first, and later."""
REMEDY = (
    "run again with --fresh to plan anew (traces that are the same by content are kept and not asked again), "
    "or choose another --run"
)


Offline = Mapping[str, DistillError]
"""Teachers that could not be reached, and why."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One teacher's share of the work."""

    teacher: Teacher
    model: Model
    index: TraceIndex
    queue: RequestQueue


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
    models = question_plan.check_teachers(recipe)
    fields = question_plan.result_settings(recipe, models)
    started = time.monotonic()
    with locked(Path(run)):
        for teacher in recipe.teachers:
            require_same_options(folder / teacher.name, teacher, recipe.path.parent)
        earlier = None if fresh else finished(folder, fields, remedy=REMEDY)
        inputs = question_plan.plan_inputs(recipe, folder, fields, limit)
        if fresh or not question_plan.is_current(folder, inputs):
            inputs = _wait_for_images(recipe, folder, fields, limit, inputs, lambda what: announce(on_progress, what))
            pending, routed = question_plan.write_pending_plan(
                recipe, folder, limit=limit, inputs=None if fresh else inputs
            )
            (folder / MANIFEST).unlink(missing_ok=True)
            question_plan.install_plan(pending, folder, inputs, routed)
            earlier = None
        elif earlier and changed(folder, earlier.outputs.items()):
            (folder / MANIFEST).unlink()
            earlier = None
        elif earlier and _errors_are_proven(earlier) and not earlier.counts["errors_to_ask_again"]:
            return earlier
        # What is only asked again because it may pass today is not worth waiting for.
        complete = earlier is not None and _errors_are_proven(earlier)
        stage = _Stage(recipe, models, question_plan.read_plan(folder), on_progress, complete=complete, fresh=fresh)
        offline = stage.work()
        if offline and earlier and complete and (folder / MANIFEST).exists():
            return earlier
        return stage.finish(offline, fields, inputs, started)


def _errors_are_proven(manifest: Manifest) -> bool:
    """Whether every error of a finished stage is proven to be the row's own; earlier versions proved none."""
    return manifest.counts.get("error", 0) == manifest.counts.get("errors_proven", 0)


def _wait_for_images(
    recipe: Recipe, folder: Path, fields: Mapping[str, Any], limit: int | None, inputs: dict[str, Any], say: Say
) -> dict[str, Any]:
    """The state of the plan once the folders of its images are there. Raises CircuitOpen when they stay away."""
    images = Dependency("the images of this run")
    while missing := question_plan.unreadable_folders(folder, inputs):
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3:,} more folders" if len(missing) > 3 else "")
        images.failed(
            "images",
            Failure("image", f"{shown} cannot be read; if they are gone for good, take their rows out of the source"),
        )
        images.wait(recipe.generate.patience_s, say, idle=True)
        time.sleep(min(images.pause_s(*_IMAGE_CHECK_S), max(_CHARGE_INTERVAL_S, recipe.generate.patience_s / 4)))
        inputs = question_plan.plan_inputs(recipe, folder, fields, limit)
    return inputs


def ask(
    recipe: Recipe, models: Mapping[str, Model], plan: question_plan.QuestionPlan, on_progress: ProgressCallback
) -> None:
    """Have the samples of a plan answered and leave the stage unfinished; the caller holds the lock of the run.

    Raises what `generate` raises for teachers that are not there or fail.
    """
    offline = _Stage(recipe, models, plan, on_progress).work()
    if offline:
        raise _no_server_error(offline)


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
        self.indexes: dict[str, TraceIndex] = {}
        for teacher in recipe.teachers:
            index = self.indexes[teacher.name] = read_index(plan.folder / teacher.name, teacher)
            if index.damaged:
                (plan.folder / MANIFEST).unlink(missing_ok=True)
            rewrite_parts(index, teacher, drop_errors=False)
        self.finals = FinalTraces(recipe.teachers, self.indexes)
        self.finals.load(plan)
        notes = list(copy_traces_of_renamed_teachers(recipe, models, plan, plan.folder, self.indexes))
        if fresh:
            for index in self.indexes.values():
                index.errors.clear()
        outcomes = sum((index.outcomes() for index in self.indexes.values()), Counter[str]())
        total = sum(
            plan.routed[teacher.name] * teacher.samples for teacher in recipe.teachers if teacher.after is None
        )
        self.progress = GenerateProgress(on_progress, done=outcomes.total(), total=total, outcomes=outcomes)
        for note in notes:
            self.progress.note(note)

    def work(self) -> Offline:
        """Have everything answered that is open. Returns the teachers whose server is not there.

        Servers may be up one after the other: those that are there are used, the others are reported at the end.
        """
        offline: dict[str, DistillError] = {}
        for group in group_teachers(self.recipe.teachers):
            jobs = self._jobs(group)
            if jobs:
                offline |= asyncio.run(self._ask_engines(jobs))
        return offline

    def _jobs(self, group: Sequence[Teacher]) -> list[_Job]:
        """Those of a group that have something to do, or may get it from one another."""
        policies = teacher_policies(self.recipe, self.models, self.indexes, include_failures=False)
        jobs: dict[str, _Job] = {}
        for teacher in group:
            upstream = jobs.get(teacher.after or "")
            index = self.indexes[teacher.name]
            queue = RequestQueue(
                policies[teacher.name],
                self.plan.read(self.finals.done_before),
                upstream.queue if upstream else None,
                self.finals.add,
            )
            request = queue.take()
            if request is not None:
                queue.put_back(request)
            if not queue.finished:
                model = self.models[teacher.name]
                jobs[teacher.name] = _Job(teacher=teacher, model=model, index=index, queue=queue)
        return list(jobs.values())

    async def _ask_engines(self, jobs: Sequence[_Job]) -> Offline:
        """All engines at once, each with its own number of requests in flight."""
        offline: dict[str, DistillError] = {}
        serving: list[Teacher] = []
        try:
            async with asyncio.TaskGroup() as group:
                charging = group.create_task(self._charge_servers(serving))
                for task in [group.create_task(self._ask_engine(job, serving, offline)) for job in jobs]:
                    await task
                charging.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return offline

    async def _ask_engine(self, job: _Job, serving: list[Teacher], offline: dict[str, DistillError]) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(job.queue.close)
            try:
                engine = await stack.enter_async_context(connect(self._engine_settings(job)))
            except (TeacherError, CircuitOpen) as error:
                offline[job.teacher.name] = error
                return
            writer = stack.enter_context(_Writer(self, job, engine.info))
            self.progress.follow(lambda: engine.in_flight)
            serving.append(job.teacher)
            await engine.answer(job.queue.get, writer.done)

    def _engine_settings(self, job: _Job) -> EngineSettings:
        return engine_settings(
            self.recipe,
            job.teacher,
            job.model,
            job.index.folder,
            patience_s=self.patience_s,
            start_patience_s=self.check_patience_s,
            known_request=lambda: self._find_answered_request(job),
            say=self.progress.note,
        )

    def _find_answered_request(self, job: _Job) -> Request | None:
        """A request that was answered in an earlier run, if there is one near the start of the plan."""
        states = (job.queue.policy.state_of(sample) for sample in islice(self.plan.read(), _SAMPLES_CHECKED))
        return next((final.request for state in states for final in state.finals if final.complete), None)

    async def _charge_servers(self, teachers: Sequence[Teacher]) -> None:
        """Charge for the servers' time."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_CHARGE_INTERVAL_S)
            now = time.monotonic()
            for teacher in teachers:
                self.progress.spend(teacher, now - before)
            before = now

    def finish(
        self,
        offline: Offline,
        fields: Mapping[str, Any],
        inputs: Mapping[str, Any],
        started: float,
    ) -> Manifest:
        """Write down which traces count, and the manifest. Raises an error when traces are still to be made."""
        finals = self.finals
        if not finals.are_complete(self.plan):
            policies = teacher_policies(self.recipe, self.models, self.indexes, include_failures=True)
            finals = collect_final_traces(self.plan, policies, self.indexes)
        finals.write(self.plan)
        tallies = finals.tallies()
        _require_complete(self.recipe, self.plan.folder, tallies, offline)
        outcomes = sum((tally.outcomes for tally in tallies.values()), Counter[str]())
        self.progress.finish(outcomes)
        traces = outcomes.total() - sum(tally.dropped for tally in tallies.values())
        files: dict[str, Output] = plan_outputs(self.plan, traces)
        engines: dict[str, str] = {}
        for name, index in self.indexes.items():
            index.save()
            engines |= index.engines
            files |= {f"{name}/{part}": output for part, output in index.outputs().items()}
        finals.save(self.plan)
        return Manifest(
            stage="generate",
            fingerprint=fingerprint(fields),
            fields=fields,
            inputs={question_plan.SOURCE: str(inputs["content"]), "limit": str(inputs["limit"])},
            outputs=files,
            counts=_manifest_counts(
                self.plan, tallies, outcomes, traces, sum(each.odd for each in self.indexes.values())
            ),
            tokens=sum((tally.tokens for tally in tallies.values()), Counter[str]()),
            versions=versions("aiohttp", "orjson", "pillow") | engines,
            seconds=round(time.monotonic() - started, 3),
        ).write(self.plan.folder)


class _Writer:
    """Puts finished requests of one teacher on disk and on the screen, and hears what follows from them."""

    def __init__(self, stage: _Stage, job: _Job, served: EngineInfo) -> None:
        self.job = job
        self._form = TraceForm(job.teacher, job.model, record_engine(job.index.folder, served))
        self._progress = stage.progress
        self._skipped = job.queue.skipped
        (stage.plan.folder / MANIFEST).unlink(missing_ok=True)
        rewrite_parts(job.index, job.teacher, drop_errors=True)
        self.journal = TraceJournal(
            job.index,
            flush_interval_s=stage.recipe.generate.flush_interval_s,
            soon=asyncio.get_running_loop().call_soon,
        )

    def done(self, request: Request, completion: Completion) -> None:
        job = self.job
        record = self.journal.append(make_trace(self._form, request, completion))
        job.queue.done(request, record)
        extra = bool(request.attempt or job.teacher.after)
        if extra or job.queue.skipped != self._skipped:
            self._progress.expect(extra - (job.queue.skipped - self._skipped))
            self._skipped = job.queue.skipped
        self._progress.count(job.teacher, record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()
        self.job.index.close()


def _require_complete(recipe: Recipe, folder: Path, tallies: Mapping[str, Tally], offline: Offline) -> None:
    """Raises an error when traces are missing, or when a teacher has nothing but errors to show.

    One that only gets what others failed at may well fail at all of it.
    """
    if any(tally.open for tally in tallies.values()):
        finished_count = sum(tally.outcomes.total() for tally in tallies.values())
        raise _no_server_error(
            offline, f"{finished_count:,} traces are finished and kept; run again when all servers are up"
        )
    for teacher in recipe.teachers:
        outcomes = tallies[teacher.name].outcomes
        failed = outcomes[Outcome.ERROR]
        if failed and failed == outcomes.total() and teacher.when == "always":
            raise TeacherError(
                f"teacher '{teacher.name}': all {failed} requests failed; the reasons are in "
                f"{folder / teacher.name}; repair the server or the recipe, then run the same command again"
            )


def _no_server_error(offline: Offline, *more: str) -> DistillError:
    """The error of a run that could not reach all its teachers."""
    text = "\n".join([*(str(error) for error in offline.values()), *more])
    away = all(isinstance(error, CircuitOpen) for error in offline.values())
    return CircuitOpen(text) if away else TeacherError(text)


def _manifest_counts(
    plan: question_plan.QuestionPlan, tallies: Mapping[str, Tally], outcomes: Mapping[str, int], traces: int, odd: int
) -> dict[str, int]:
    counts = {"samples": plan.samples, "quarantined": plan.quarantined.total(), "traces": traces, **outcomes}
    for name, tally in tallies.items():
        counts |= {f"{name}.{outcome}": count for outcome, count in tally.outcomes.items()}
    counts |= {f"quarantined.{reason}": count for reason, count in plan.quarantined.items()}
    for key in ("repeated", "dropped", "hinted"):
        if total := sum(getattr(tally, key) for tally in tallies.values()):
            counts[key] = total
    if damaged := sum(count_damaged(plan.folder).values()):
        counts["damaged_lines"] = damaged
    counts["errors_to_ask_again"] = sum(tally.errors_to_ask_again for tally in tallies.values())
    if proven := sum(tally.proven for tally in tallies.values()):
        counts["errors_proven"] = proven
    if odd:
        counts["odd_numbers"] = odd
    return counts
