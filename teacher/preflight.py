"""Checks before a run: every row, image and setting, and an estimate of what the run will take.

No server, GPU or torch is needed. The plan of the source is kept for the next run, unless that would damage a
finished stage. Estimates come from existing traces, such as the traces of a probe; without traces there are only
upper bounds.
"""

import math
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from distill.artifacts.files import locked
from distill.artifacts.layout import SAMPLES
from distill.artifacts.manifest import finished
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.reports.text_table import short_number, table
from distill.types import ProgressCallback, Sample, unwatched
from distill.word_tables import counted
from teacher import checks
from teacher.estimate import (
    Amount,
    Forecast,
    TeacherUsage,
    forecast,
    sample_usage,
    summarize_journals,
    total_time,
    traces_there,
)
from teacher.generate import REMEDY, ask
from teacher.messages.request import Model
from teacher.scheduling.routing import route
from teacher.store import question_plan
from teacher.store.final_traces import teacher_policies
from teacher.store.trace_journal import read_index


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe(question_plan.QuestionPlan):
    """A few samples of a plan."""

    chosen: tuple[Sample, ...]

    def read(self, done: question_plan.DoneRows | None = None) -> Iterator[Sample]:
        return iter(self.chosen)


def preflight(
    recipe: Recipe,
    run: Path,
    *,
    limit: int | None = None,
    fresh: bool = False,
    probe: int = 0,
    on_progress: ProgressCallback = unwatched,
) -> str:
    """Check everything that a run of `generate` depends on but its servers; the findings as text.

    With `probe` the teachers are first asked about this number of samples, from all domains in turn; the run keeps
    these traces. Raises what `generate` would raise: RecipeError, DataError, ModelError, StaleError; one error names
    all problems of the teachers.
    """
    models = question_plan.check_teachers(recipe)
    folder = run / "generate"
    _check_teachers(recipe)
    fields = question_plan.result_settings(recipe, models)
    with locked(run):
        done = None if fresh else finished(folder, fields, remedy=REMEDY)
        now = question_plan.plan_inputs(recipe, folder, fields, limit)
        if question_plan.is_current(folder, now):
            plan = question_plan.read_plan(folder)
        else:
            pending = question_plan.write_pending_plan(recipe, folder, limit=limit, inputs=None if fresh else now)
            if done or (fresh and (folder / SAMPLES).is_file()):
                # Later stages may still use the present files.
                plan = question_plan.read_pending_plan(pending)
            else:
                question_plan.install_plan(pending, folder, now)
                plan = question_plan.read_plan(folder)
        if probe and plan.folder == folder and not done:
            ask(recipe, models, _probe(recipe, plan, probe), on_progress)
        images, domains, usage = _inspect_plan(recipe, models, plan, folder)
        if plan.folder != folder:
            shutil.rmtree(plan.folder)
    return "\n\n".join([_source_table(plan, images, domains), _teacher_table(recipe, usage)])


def _probe(recipe: Recipe, plan: question_plan.QuestionPlan, count: int) -> _Probe:
    chosen = tuple(question_plan.spread_over_domains(plan.read(), count))
    routed = Counter(teacher.name for sample in chosen for teacher in route(recipe.teachers, sample))
    return _Probe(folder=plan.folder, samples=len(chosen), quarantined=plan.quarantined, routed=routed, chosen=chosen)


def _check_teachers(recipe: Recipe) -> None:
    """Raises RecipeError or ModelError with everything that teachers lack."""
    problems = [problem for teacher in recipe.teachers for problem in checks.teacher_problems(recipe, teacher)]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise RecipeError("\n".join(str(problem) for problem in problems))


def _inspect_plan(
    recipe: Recipe, models: Mapping[str, Model], plan: question_plan.QuestionPlan, folder: Path
) -> tuple[int, Counter[str], dict[str, TeacherUsage]]:
    """Go through the samples of a plan: their images and domains, and what each teacher has done about them."""
    indexes = {teacher.name: read_index(folder / teacher.name, teacher) for teacher in recipe.teachers}
    policies = teacher_policies(recipe, models, indexes, include_failures=False)
    journals = {name: summarize_journals(folder / name) for name in policies}
    asked = frozenset[str]().union(*(each.samples for each in journals.values()))
    usage = {name: TeacherUsage(journals=summary) for name, summary in journals.items()}
    images: set[str] = set()
    domains: Counter[str] = Counter()
    for sample in plan.read():
        domains[sample.domain] += 1
        images.update(ref.sha256 for ref in sample.images)
        for teacher in route(recipe.teachers, sample):
            policy, index = policies[teacher.name], indexes[teacher.name]
            used = sample_usage(policy, index, sample) if sample.id in asked else None
            usage[teacher.name].there += traces_there(policy, index, sample) if sample.id in asked else 0
            if used is None:
                usage[teacher.name].left[sample.domain] += 1
            else:
                usage[teacher.name].add(sample.domain, *used)
    for index in indexes.values():
        index.close()
    return len(images), domains, usage


def _source_table(plan: question_plan.QuestionPlan, images: int, domains: Counter[str]) -> str:
    rows = [("usable questions", f"{plan.samples:,}"), ("different images", f"{images:,}")]
    rows += [(f"domain {name}", f"{count:,}") for name, count in domains.most_common(20) if name]
    rows += [(f"set aside: {reason}", f"{count:,}") for reason, count in plan.quarantined.most_common()]
    return table(("source", "count"), rows)


def _teacher_table(recipe: Recipe, usages: Mapping[str, TeacherUsage]) -> str:
    rows, notes = [], []
    forecasts: dict[str, Forecast] = {}
    for teacher in recipe.teachers:
        name, usage = teacher.name, usages[teacher.name]
        estimate = forecasts[name] = forecast(recipe, teacher, usage)
        questions = usage.done + usage.left.total()
        rows.append(
            (
                name,
                f"{questions:,}",
                f"{questions * recipe.most_traces(teacher):,}",
                f"{usage.there:,}",
                _format_amount(estimate.prompt),
                _format_amount(estimate.output),
                _format_amount(estimate.disk, "B"),
                _format_time(estimate.seconds),
                _format_amount(estimate.cost) if any(teacher.price.model_dump().values()) else "-",
            )
        )
        if not estimate.measured:
            notes.append(
                f"{name}: there are no traces yet, so this is the maximum; --probe 32 first asks 32 questions"
            )
        elif usage.left:
            notes.append(
                f"{name}: by {counted(usage.done, 'finished question')}"
                + (
                    f", at {counted(round(usage.journals.tokens_per_s), 'token')}/s"
                    if usage.journals.tokens_per_s
                    else ""
                )
            )
        if teacher.after and not estimate.measured:
            notes.append(f"{name}: its number of questions depends on the traces of {teacher.after}")
    amounts = ("questions", "traces at most", "there", "prompt tokens", "output tokens")
    head = ("teacher", *amounts, "disk", "time", "cost")
    if any(estimate.measured for estimate in forecasts.values()):
        notes.append("tokens, disk, time and cost cover the remaining work, with 95 % intervals")
    time = total_time(recipe, forecasts)
    if time and len(recipe.teachers) > 1:
        notes.append(f"all teachers: {_format_time(time)}")
    return "\n".join([table(head, rows), *notes])


def _format_amount(amount: Amount | None, unit: str = "") -> str:
    if amount is None:
        return "?"
    if not amount.mean and not amount.low:
        return f"<= {_format_number(amount.high)}{unit}" if amount.high else f"0{unit}"
    if amount.low == amount.high:
        return f"{_format_number(amount.mean)}{unit}"
    return f"{_format_number(amount.mean)}{unit} ({_format_number(amount.low)} to {_format_number(amount.high)})"


def _format_time(amount: Amount | None) -> str:
    if amount is None:
        return "?"
    if amount.low == amount.high:
        return _format_duration(amount.mean)
    return f"{_format_duration(amount.mean)} ({_format_duration(amount.low)} to {_format_duration(amount.high)})"


def _format_number(value: float) -> str:
    if math.isinf(value):
        return "?"
    return f"{value:,.3g}" if value < 10 else short_number(value, between="")


def _format_duration(seconds: float) -> str:
    if math.isinf(seconds):
        return "?"
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02} h"
