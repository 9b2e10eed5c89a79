"""The traces of one plan: finds the finished and the open ones, and ends the stage.

Reads the journals of every teacher when it is made. `jobs` are what engines have to answer (teacher/agent.py);
`finish` lists the final traces and writes the manifest.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from distill.artifacts.damaged_lines import count_damaged
from distill.artifacts.files import Output
from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import SAMPLES
from distill.artifacts.manifest import MANIFEST, Manifest, fingerprint, versions
from distill.data.images import image_files
from distill.errors import CircuitOpen, DataError, DistillError, ImageError, TeacherError
from distill.local_paths import is_store_address
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.teachers import Teacher
from distill.trace_records.trace_lines import trace_fault
from distill.types import Outcome, ProgressCallback, unwatched
from distill.word_tables import counted
from teacher.engines.connect import EngineSettings, engine_settings
from teacher.engines.http.batch_records import BatchRecords
from teacher.engines.provenance import record_engine
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Model, Request
from teacher.progress import GenerateProgress
from teacher.scheduling.request_queue import RequestQueue
from teacher.store import question_plan
from teacher.store.final_traces import FinalTraces, Tally, collect_final_traces, plan_outputs, teacher_policies
from teacher.store.renamed_teachers import copy_traces_of_renamed_teachers
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import TraceForm, TraceJournal, make_trace, read_index, rewrite_parts, trace_parts

_SAMPLES_CHECKED = 2000

Offline = Mapping[str, DistillError]
"""Teachers that could not be reached, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitWork:
    """What the plan of a unit of a run in a store has beside its samples."""

    engines: Path
    """Gets what engines leave that outlive the unit."""
    batches: Mapping[str, BatchRecords]
    """What engines submit, for a teacher by name."""
    settled: Collection[str]
    """Teachers that are not asked again: their errors are final."""


class Generation:
    """A plan with its existing traces."""

    def __init__(
        self,
        recipe: Recipe,
        models: Mapping[str, Model],
        plan: question_plan.QuestionPlan,
        progress: ProgressCallback | GenerateProgress = unwatched,
        unit: UnitWork | None = None,
    ) -> None:
        """A `progress` that several plans share counts the traces of each."""
        self.recipe = recipe
        self.plan = plan
        self.models = models
        self.patience_s = recipe.generate.patience_s
        self.start_patience_s = self.patience_s
        self.indexes: dict[str, TraceIndex] = {}
        for teacher in recipe.teachers:
            index = self.indexes[teacher.name] = read_index(plan.folder / teacher.name, teacher)
            if index.damaged:
                (plan.folder / MANIFEST).unlink(missing_ok=True)
            rewrite_parts(index, teacher, drop_errors=False)
            if unit is not None and teacher.name in unit.settled:
                index.settle_errors()
        self.finals = FinalTraces(recipe.teachers, self.indexes)
        self.finals.load(plan)
        notes = list(copy_traces_of_renamed_teachers(recipe, models, plan, plan.folder, self.indexes))
        self.progress = progress if isinstance(progress, GenerateProgress) else self._new_progress(progress)
        self._unit = unit
        self.open_jobs: list[TeacherJob] = []
        for note in notes:
            self.progress.note(note)

    @property
    def is_shared(self) -> bool:
        """Whether the plan belongs to a unit, on which any machine may work."""
        return self._unit is not None

    def ask_failed_again(self) -> None:
        """Ask again for every trace that ended in an error."""
        for index in self.indexes.values():
            index.errors.clear()

    def _new_progress(self, on_progress: ProgressCallback) -> GenerateProgress:
        """Progress that starts with the traces of earlier runs; traces of other samples count when these samples are
        drawn."""
        outcomes = sum((tally.outcomes for tally in self.finals.tallies().values()), Counter[str]())
        done = outcomes.total()
        teachers = (teacher for teacher in self.recipe.teachers if teacher.after is None)
        first_attempts = sum(self.plan.routed[teacher.name] * teacher.samples for teacher in teachers)
        left = (self.plan.samples - self.finals.done_before.count) / max(1, self.plan.samples)
        return GenerateProgress(on_progress, done=done, total=done + round(left * first_attempts), outcomes=outcomes)

    def jobs(self, group: Sequence[Teacher]) -> list["TeacherJob"]:
        """The work of the teachers of a group that have requests, or may get requests from one another."""
        policies = teacher_policies(self.recipe, self.models, self.indexes, include_failures=False)
        jobs: dict[str, TeacherJob] = {}
        for teacher in group:
            upstream = jobs.get(teacher.after or "")
            index = self.indexes[teacher.name]
            queue = RequestQueue(
                policies[teacher.name],
                self.plan.read(self.finals.done_before),
                upstream.queue if upstream else None,
                self.finals.add,
                on_found=self.progress.found,
                on_expect=self.progress.expect,
            )
            if queue.prepare() or not queue.finished:
                model = self.models[teacher.name]
                jobs[teacher.name] = TeacherJob(
                    generation=self, teacher=teacher, model=model, index=index, queue=queue
                )
        self.open_jobs = list(jobs.values())
        return self.open_jobs

    def engine_settings(self, job: "TeacherJob") -> EngineSettings:
        """The settings of the engine that answers a job."""
        return engine_settings(
            self.recipe,
            job.teacher,
            job.model,
            self._unit.engines / job.teacher.name if self._unit else job.index.folder,
            batch_records=self._unit.batches.get(job.teacher.name) if self._unit else None,
            patience_s=self.patience_s,
            start_patience_s=self.start_patience_s,
            known_request=lambda: self._find_answered_request(job),
            say=self.progress.note,
        )

    def _find_answered_request(self, job: "TeacherJob") -> Request | None:
        """A request that was answered in an earlier run, if there is one near the start of the plan."""
        states = (job.queue.policy.state_of(sample) for sample in islice(self.plan.read(), _SAMPLES_CHECKED))
        try:
            return next((final.request for state in states for final in state.finals if final.complete), None)
        except DataError:
            if (self.plan.folder / SAMPLES).exists():
                raise
            return None  # an engine outlives the unit of a store that it was started for

    def finish(
        self,
        offline: Offline,
        fields: Mapping[str, Any],
        inputs: Mapping[str, Any],
        started: float,
        *,
        retry: str = "run the same command again",
    ) -> Manifest:
        """Write the list of final traces, and the manifest. Raises an error when traces are still to be made.

        `retry` says how all that has failed is asked again.
        """
        finals = self.finals
        if not finals.are_complete(self.plan):
            policies = teacher_policies(self.recipe, self.models, self.indexes, include_failures=True)
            finals = collect_final_traces(self.plan, policies, self.indexes)
        finals.write(self.plan)
        tallies = finals.tallies()
        _require_complete(self.recipe, self.plan.folder, tallies, offline, retry)
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
            inputs={ASKED: str(inputs["content"]), "limit": str(inputs["limit"]), SAMPLES: self.plan.content},
            outputs=files,
            counts=_manifest_counts(
                self.plan, tallies, outcomes, traces, sum(each.odd for each in self.indexes.values())
            ),
            tokens=_manifest_tokens(tallies),
            versions=versions("aiohttp", "orjson", "pillow") | engines,
            seconds=round(time.monotonic() - started, 3),
        ).write(self.plan.folder)


@dataclass(slots=True, kw_only=True)
class TeacherJob:
    """One teacher's share of the work on a plan."""

    generation: Generation
    teacher: Teacher
    model: Model
    index: TraceIndex
    queue: RequestQueue
    writer: "Writer | None" = None


class Writer:
    """Writes the traces of one teacher's finished requests, and reports them to its queue and to the progress."""

    def __init__(self, job: TeacherJob, served: EngineInfo) -> None:
        self.job = job
        self._form = TraceForm(job.teacher, job.model, record_engine(job.index.folder, served))
        generation = job.generation
        self._progress = generation.progress
        (generation.plan.folder / MANIFEST).unlink(missing_ok=True)
        rewrite_parts(job.index, job.teacher, drop_errors=True)
        self.journal = TraceJournal(
            job.index,
            flush_interval_s=generation.recipe.generate.flush_interval_s,
            soon=asyncio.get_running_loop().call_soon,
        )

    def done(self, request: Request, completion: Completion) -> None:
        job = self.job
        if job.index.status_of(request.id) is not None:
            return  # another agent that works on the same unit was faster
        if completion.error and job.generation.is_shared:
            _require_images(request)
        record = make_trace(self._form, request, completion)
        self.journal.append(record)
        stands = job.queue.done(request, record)
        self._progress.count(job.teacher, record, stands=stands)

    def take_over(self, record: Mapping[str, Any]) -> None:
        """Write the trace of another agent, and report it to the queue."""
        if self.job.index.status_of(record["id"]) is None:
            self.journal.take_over(record)
            self.job.queue.found(record)

    def close(self) -> None:
        """Write what is held, and end."""
        self.journal.close()
        self.job.index.close()


def _require_images(request: Request) -> None:
    """Raise CircuitOpen where this machine has another image than the one that the run was planned with, or none.

    A committed unit keeps its errors, and a machine that lacks images would end its units faster than all others.
    """
    for ref in request.sample.images:
        if is_store_address(ref.path):
            continue  # all machines see the same
        try:
            image_files.read_bytes(ref)
        except ImageError as error:
            raise CircuitOpen(
                f"{error.reason} on this machine: {error}; other processes go on with its units. {image_files.SHARE}"
            ) from None


def _require_complete(
    recipe: Recipe, folder: Path, tallies: Mapping[str, Tally], offline: Offline, retry: str
) -> None:
    """Raises an error when traces are missing, or when a teacher has nothing but errors to show.

    A teacher that is asked only after others may fail at everything: it gets only what the others failed at.
    """
    if any(tally.open for tally in tallies.values()):
        finished_count = sum(tally.outcomes.total() for tally in tallies.values())
        raise no_server_error(
            offline,
            f"{counted(finished_count, 'trace is', 'traces are')} finished and kept; run again with all servers up",
        )
    for teacher in recipe.teachers:
        outcomes = tallies[teacher.name].outcomes
        failed = outcomes[Outcome.ERROR]
        if failed and failed == outcomes.total() and teacher.when == "always":
            raise TeacherError(
                f"teacher '{teacher.name}': {f'all {failed:,} requests' if failed > 1 else 'its only request'} "
                f"failed; {_first_error(folder / teacher.name)}the reasons are in {folder / teacher.name}; "
                f"repair the server or the recipe, then {retry}"
            )


def _first_error(folder: Path) -> str:
    """The first error that a teacher's folder of traces holds; empty if the traces are not on this disk."""
    parts = (read_jsonl(part, check=trace_fault, on_damage=lambda _: None) for part in trace_parts(folder))
    error = next((record["error"] for records in parts for record in records if record.get("error")), "")
    return f"the first: {error}; " if error else ""


def no_server_error(offline: Offline, *more: str) -> DistillError:
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
        if tally.repeated:
            counts[f"{name}.repeated"] = tally.repeated
    counts |= {f"quarantined.{reason}": count for reason, count in plan.quarantined.items()}
    for key in ("repeated", "dropped", "hinted", "without_usage"):
        if total := sum(getattr(tally, key) for tally in tallies.values()):
            counts[key] = total
    if damaged := sum(count_damaged(plan.folder).values()):
        counts["damaged_lines"] = damaged
    counts["errors_to_ask_again"] = sum(tally.errors_to_ask_again for tally in tallies.values())
    if odd:
        counts["odd_numbers"] = odd
    return counts


def _manifest_tokens(tallies: Mapping[str, Tally]) -> Counter[str]:
    """The tokens of all replies, replaced attempts included; `NAME.output` of each teacher of whom all are known."""
    tokens = sum((tally.tokens for tally in tallies.values()), Counter[str]())
    for name, tally in tallies.items():
        if not tally.without_usage:
            tokens[f"{name}.output"] = tally.tokens["reasoning"] + tally.tokens["answer"]
    return tokens
