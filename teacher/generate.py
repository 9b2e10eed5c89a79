"""The verb: let the teachers write reasoning traces.

Plans every wanted trace by its content, asks only for those that no journal holds, appends each one as soon as
it is finished, and writes the manifest last. Killed at any moment, the same command goes on where it stopped.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from distill.artifacts import MANIFEST, Manifest, Output, describe, fingerprint, finished, locked, versions
from distill.errors import TeacherError
from distill.recipe import Recipe, Teacher
from distill.types import Outcome, Progress, ProgressCallback, Trace, unwatched
from teacher import plan as planning
from teacher.client import ChatClient
from teacher.completion import Completion, Served
from teacher.identity import Model, Request
from teacher.journals import Ledger, TraceJournal, clean, scan, trace

_REPORT_INTERVAL_S = 0.25
_REMEDY = (
    "run again with --fresh to plan anew (traces that are the same by content are kept and not asked again), "
    "or choose another --run"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One teacher's share of the work."""

    teacher: Teacher
    model: Model
    ledger: Ledger
    folder: Path

    @property
    def missing(self) -> int:
        """Wanted traces that were never finished; those that ended in an error are not among them."""
        return self.ledger.missing - len(self.ledger.errors)


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
    models = planning.check(recipe)
    fields = planning.settings(recipe, models)
    started = time.monotonic()
    with locked(Path(run)):
        before = None if fresh else finished(folder, fields, remedy=_REMEDY)
        now = planning.state(recipe, folder, fields, limit)
        if fresh or not planning.current(folder, now):
            pending = planning.prepare(recipe, models, folder, limit=limit)
            (folder / MANIFEST).unlink(missing_ok=True)
            planning.adopt(pending, folder, now)
            before = None
        elif before and not before.counts["errors_to_ask_again"]:
            return before
        plan = planning.read(folder, recipe.teachers)
        jobs = [_job(recipe, teacher, models[teacher.name], plan) for teacher in recipe.teachers]
        absent = _work(recipe, jobs, _Watch(jobs, on_progress))
        if absent and before and (folder / MANIFEST).exists():
            return before
        _require_complete(jobs, absent)
        return _manifest(folder, fields, now, plan, jobs, time.monotonic() - started)


def _job(recipe: Recipe, teacher: Teacher, model: Model, plan: planning.Plan) -> _Job:
    folder = plan.folder / teacher.name
    ledger = scan(folder, teacher, plan.wanted[teacher.name])
    return _Job(teacher=teacher, model=model, ledger=ledger, folder=folder)


def _work(recipe: Recipe, jobs: Sequence[_Job], watch: "_Watch") -> dict[str, TeacherError]:
    """Have everything answered that is missing. Returns the teachers whose server is not there.

    Servers may be up one after the other: those that are there are used, the others are reported at the end.
    """
    for job in jobs:
        clean(job.ledger, job.teacher, drop_errors=False)
    open_jobs = [job for job in jobs if job.ledger.missing]
    remote = [job for job in open_jobs if job.teacher.base_url]
    absent = asyncio.run(_ask_servers(recipe, remote, watch)) if remote else {}
    for job in open_jobs:
        if not job.teacher.base_url:
            _ask_embedded(recipe, job, watch)
    return absent


async def _ask_servers(recipe: Recipe, jobs: Sequence[_Job], watch: "_Watch") -> dict[str, TeacherError]:
    """All servers at once, each with its own number of requests in flight."""
    max_pixels = recipe.data[planning.SOURCE].max_pixels
    absent: dict[str, TeacherError] = {}
    async with AsyncExitStack() as stack:
        ready: list[tuple[_Job, ChatClient]] = []
        for job in jobs:
            client = ChatClient(
                job.teacher,
                job.model,
                max_pixels=max_pixels,
                max_failure_share=recipe.generate.max_failure_share,
            )
            await stack.enter_async_context(client)
            try:
                await client.check()
            except TeacherError as error:
                absent[job.teacher.name] = error
            else:
                ready.append((job, client))
        journals = [stack.enter_context(_Writer(recipe, job, client.served, watch)) for job, client in ready]
        pulse = asyncio.create_task(_pulse(journals, recipe.generate.flush_interval_s))
        try:
            async with asyncio.TaskGroup() as group:
                for (_, client), writer in zip(ready, journals, strict=True):
                    group.create_task(client.answer(writer.requests(recipe), writer.done))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            pulse.cancel()
    return absent


async def _pulse(writers: Sequence["_Writer"], interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        for writer in writers:
            writer.journal.flush()


def _ask_embedded(recipe: Recipe, job: _Job, watch: "_Watch") -> None:
    from teacher.inprocess import EmbeddedTeacher

    engine = EmbeddedTeacher(
        job.teacher,
        recipe.local_or_hub(job.teacher.model),
        max_pixels=recipe.data[planning.SOURCE].max_pixels,
    )
    with _Writer(recipe, job, engine.served, watch) as writer:
        engine.answer(writer.requests(recipe), writer.done, writer.journal.flush)


class _Writer:
    """Puts finished requests of one teacher on disk and on the screen."""

    def __init__(self, recipe: Recipe, job: _Job, served: Served, watch: "_Watch") -> None:
        self._job = job
        self._served = served
        self._watch = watch
        (job.folder.parent / MANIFEST).unlink(missing_ok=True)
        clean(job.ledger, job.teacher, drop_errors=True)
        self.journal = TraceJournal(job.folder, job.ledger, flush_interval_s=recipe.generate.flush_interval_s)

    def requests(self, recipe: Recipe) -> Iterator[Request]:
        job = self._job
        return planning.missing(recipe, job.teacher, job.model, job.folder.parent, job.ledger.done)

    def done(self, request: Request, completion: Completion) -> None:
        finished_trace = trace(self._job.teacher, self._job.model, self._served, request, completion)
        self.journal.append(finished_trace)
        self._watch.count(finished_trace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()


class _Watch:
    """Turns finished traces into reports, a few a second."""

    def __init__(self, jobs: Sequence[_Job], on_progress: ProgressCallback) -> None:
        self._on_progress = on_progress
        self._total = sum(len(job.ledger.wanted) for job in jobs)
        self._resumed = self._done = self._total - sum(job.ledger.missing for job in jobs)
        self._tokens = 0
        self._outcomes = sum((job.ledger.outcomes for job in jobs), Counter[str]())
        self._started = time.monotonic()
        self._reported = 0.0
        self._report()

    def count(self, finished_trace: Trace) -> None:
        self._done += 1
        self._tokens += finished_trace.usage.reasoning + finished_trace.usage.answer
        self._outcomes[finished_trace.outcome] += 1
        if self._done == self._total or time.monotonic() - self._reported >= _REPORT_INTERVAL_S:
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        seconds = max(self._reported - self._started, 1e-9)
        facts: dict[str, str | int | float] = {}
        if self._done > self._resumed:
            facts["traces_per_s"] = round((self._done - self._resumed) / seconds, 1)
            facts["tokens_per_s"] = round(self._tokens / seconds, 1)
        facts |= {str(outcome): self._outcomes[outcome] for outcome in Outcome if self._outcomes[outcome]}
        self._on_progress(Progress(stage="generate", done=self._done, total=self._total, unit="traces", facts=facts))


def _require_complete(jobs: Sequence[_Job], absent: Mapping[str, TeacherError]) -> None:
    """Raises TeacherError when traces are missing, or when a teacher has nothing but errors to show."""
    waiting = [absent[job.teacher.name] for job in jobs if job.missing and job.teacher.name in absent]
    if waiting:
        finished_count = sum(job.ledger.outcomes.total() for job in jobs)
        raise TeacherError(
            "\n".join(str(error) for error in waiting)
            + f"\n{finished_count:,} traces are finished and kept; run again when the rest of the servers is up"
        )
    for job in jobs:
        if job.ledger.errors and not job.ledger.outcomes:
            raise TeacherError(
                f"teacher '{job.teacher.name}': all {len(job.ledger.errors)} requests failed; the reasons are in "
                f"{job.folder}; repair the server or the recipe, then run the same command again"
            )


def _manifest(
    folder: Path,
    fields: Mapping[str, Any],
    now: Mapping[str, Any],
    plan: planning.Plan,
    jobs: Sequence[_Job],
    seconds: float,
) -> Manifest:
    outcomes, tokens, engines = Counter[str](), Counter[str](), dict[str, str]()
    counts = {"samples": plan.samples, "quarantined": plan.quarantined.total()}
    outputs: dict[str, Output] = planning.outputs(plan)
    for job in jobs:
        ledger = job.ledger
        of_teacher = ledger.outcomes + Counter({str(Outcome.ERROR): len(ledger.errors)})
        outcomes += of_teacher
        tokens += ledger.tokens
        engines |= ledger.engines
        counts |= {f"{job.teacher.name}.{outcome}": count for outcome, count in of_teacher.items()}
        for part, records in ledger.records.items():
            outputs[f"{job.teacher.name}/{part.name}"] = describe(part, records)
    counts |= {"traces": sum(len(job.ledger.wanted) for job in jobs), **outcomes}
    counts |= {f"quarantined.{reason}": count for reason, count in plan.quarantined.items()}
    counts["errors_to_ask_again"] = sum(sum(job.ledger.errors.values()) for job in jobs)
    return Manifest(
        stage="generate",
        fingerprint=fingerprint(fields),
        fields=fields,
        inputs={planning.SOURCE: str(now["content"]), "limit": str(now["limit"])},
        outputs=outputs,
        counts=counts,
        tokens=tokens,
        versions=versions("aiohttp", "orjson", "pillow") | engines,
        seconds=round(seconds, 3),
    ).write(folder)
