"""Checks of the machine and the run directory: write permission, no other process, the same settings; disk, time,
cost; licences."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from distill import packages
from distill.artifacts.files import LOCK, run_holder
from distill.artifacts.layout import stage_folders
from distill.artifacts.manifest import MANIFEST, Manifest, finished
from distill.checks.context import CheckContext
from distill.checks.licences import LICENCES
from distill.checks.results import CheckResult, fine, not_checked, problem, warning
from distill.data.source_images import require_same_images
from distill.errors import DistillError, StaleError
from distill.local_paths import is_store_address
from distill.machine.file_locks import try_lock
from distill.object_store.recipe_stores import scratch_root
from distill.recipe.messages import did_you_mean
from distill.recipe.sections.data import ASKED
from distill.reports.text_table import byte_size
from distill.word_tables import counted
from filters.apply import require_same_policy
from student.train import stage_fields
from teacher.estimate import JournalSummary, TeacherUsage, forecast
from teacher.store import question_plan

_LOOKED_IMAGES = 10_000
"""Images of a finished stage that are compared: seconds, also where a copy of their folder has to be read."""
_OPEN_FILES = 256
_SHARED_BYTES = 256e6
_KEPT_CHECKPOINTS = 2
"""Checkpoints of a stage that exist at the same time: a new one is written before the last is removed."""
_CHECKPOINT_BYTES = 12
"""Bytes in a checkpoint for each trained parameter: its value and its optimizer's state."""
_NO_TRACES = JournalSummary(samples=frozenset(), records=0, bytes=0, tokens_per_s=0.0)


def check_run_directory(context: CheckContext) -> Iterator[CheckResult]:
    """The run directory can be written, and no other process uses it."""
    run, key = context.run, "--run"
    if "://" in str(run) or str(run).startswith(("s3:/", "gs:/", "hf:/", "az:/")):
        yield problem(
            key, f"{run} is the address of an object store, and a run needs a folder", "give a local folder"
        )
        return
    existing = _existing(run)
    if not existing.is_dir():
        what = "a link that leads to no folder" if existing.is_symlink() else "a file"
        yield problem(key, f"{existing} is {what}, so {run} cannot be a folder", "choose another --run")
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield problem(key, f"{existing} cannot be written", "fix its permissions, or choose another --run")
    elif _is_locked(run):
        summary = f"another process is working in {run}{run_holder(run)}"
        yield problem(key, summary, "wait for it, or choose another --run")
    else:
        yield fine(key, f"{run} can be written")


def _existing(path: Path) -> Path:
    """The path, or the closest folder above it that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _is_locked(run: Path) -> bool:
    try:
        with (run / LOCK).open("rb") as file:
            return not try_lock(file.fileno())
    except OSError:
        return False


def check_earlier_work(context: CheckContext) -> Iterator[CheckResult]:
    """What is finished in the run directory was made by these settings."""
    recipe, run = context.recipe, context.run
    if context.redo_stale or not (run / "generate" / MANIFEST).is_file() or not recipe.teachers:
        return
    try:
        fields = question_plan.result_settings(recipe, question_plan.check_teachers(recipe))
        finished(run / "generate", fields, remedy="the stage would have to start again")
        require_same_policy(recipe, run)
        if (run / "filter" / MANIFEST).is_file() and recipe.student is not None:
            for stage, settings in stage_fields(recipe, run).items():
                finished(run / "train" / stage, settings, remedy="the stage would have to start again")
    except DistillError as error:
        yield problem(
            "--run", str(error), "undo the change, choose another --run, or give --redo-stale to `distill run`"
        )
        return
    yield fine("--run", "the finished stages in this run directory were made with these settings")


def check_replaced_images(context: CheckContext) -> Iterator[CheckResult]:
    """The images that finished stages read are still the same."""
    folders = [] if context.redo_stale else [*stage_folders(context.run), context.run / "eval"]
    for folder in folders:
        try:
            if (folder / MANIFEST).is_file():
                require_same_images(context.recipe, folder, looked=_LOOKED_IMAGES)
        except StaleError as error:
            yield problem("--run", error.problem, str(error.args[-1]))


def check_limits(context: CheckContext) -> Iterator[CheckResult]:
    """Open files and shared memory that processes which decode images need."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _OPEN_FILES:
        yield warning(
            "ulimit -n", f"{soft} open files are allowed, and a run may need {_OPEN_FILES}", "ulimit -n 4096"
        )
    shared = Path("/dev/shm")
    if context.recipe.stages and shared.is_dir() and (room := shutil.disk_usage(shared).total) < _SHARED_BYTES:
        yield warning(
            "/dev/shm",
            f"{byte_size(room)} of shared memory, through which decoded images are handed on",
            "give the container more (docker run --shm-size 1g)",
        )


def check_disk(context: CheckContext) -> Iterator[CheckResult]:
    """Room for traces, dataset and checkpoints of the stages that are not finished."""
    existing = next(each for each in (context.run, *context.run.parents) if each.is_dir())
    free = shutil.disk_usage(existing).free
    dataset_bytes, max_trace_bytes = _dataset_bytes(context), _trace_bytes(context)
    models, survey = _model_bytes(context), context.readable(ASKED)
    needed = dataset_bytes + (models or 0.0)
    students = "not known how much" if models is None else f"about {byte_size(models)}"
    extent = "" if survey is None or survey.whole else f" of {survey.extent}"
    summary = (
        f"{students} for students and checkpoints, about {byte_size(dataset_bytes)} for images of the dataset, "
        f"at most {byte_size(max_trace_bytes)} for traces{extent}; {byte_size(free)} free at {existing}"
    )
    if needed > free:
        yield problem(
            "disk", summary, "free space, choose another --run, or save less (stages.save_every_steps, LoRA)"
        )
    elif needed + max_trace_bytes > free:
        yield warning("disk", summary, "free space, or lower samples and max_tokens of the teachers")
    else:
        yield fine("disk", summary)


def check_scratch(context: CheckContext) -> Iterator[CheckResult]:
    """Room for images of a store, which are on the machine that plans a run, and on the one that filters it."""
    survey = context.readable(ASKED)
    if survey is None or not any(is_store_address(ref.path) for each in survey.kept for ref in each.images):
        return
    scratch = scratch_root(context.recipe)
    free, needed = shutil.disk_usage(scratch).free, survey.pictured * survey.most_images * survey.image_bytes
    asked = "the questions" if survey.whole else survey.extent
    summary = f"at most {byte_size(needed)} for images of {asked}, which lie in a store; "
    summary += f"{byte_size(free)} free at {scratch}"
    if needed > free:
        yield warning("engine.scratch", summary, "set engine.scratch to a folder on a larger disk")
    else:
        yield fine("engine.scratch", summary)


def _dataset_bytes(context: CheckContext) -> float:
    survey = context.readable(ASKED)
    if survey is None or context.is_done("filter"):
        return 0.0
    select = context.recipe.filter.select
    # Parquet keeps equal images of neighbouring rows once (1.0 to 1.1 times the bytes of one up to 200 KB), and
    # the traces of a question are neighbours unless a curriculum orders them.
    rows, limit = survey.samples * ((select.per_question or 1) if select.curriculum else 1), select.limit
    return (min(rows, limit) if limit else rows) * survey.image_bytes * survey.images / max(1, survey.samples)


def _trace_bytes(context: CheckContext) -> float:
    recipe, survey, asked = context.recipe, context.readable(ASKED), 0
    if survey is None or not survey.samples:
        return 0.0
    if context.is_done("generate"):
        generated = Manifest.read(context.run / "generate")
        if generated is None or generated.inputs.get("limit", "0") == "0":
            return 0.0
        asked = generated.counts["samples"]  # with --limit; the others are still to be asked
    left = max(0.0, 1 - asked / survey.samples)
    seen = {teacher.name: _unseen(round(left * context.routed[teacher.name])) for teacher in recipe.teachers}
    return sum(forecast(recipe, teacher, seen[teacher.name]).disk.high for teacher in recipe.teachers)


def _unseen(questions: int) -> TeacherUsage:
    return TeacherUsage(journals=_NO_TRACES, left=Counter({"": questions}))


def _model_bytes(context: CheckContext) -> float | None:
    """The bytes of the models of unfinished stages; None where the student is not known."""
    stages = [stage for stage in context.recipe.stages if not context.is_done(f"train/{stage.name}")]
    if not stages:
        return 0.0
    if not context.student_is_here or packages.missing(*packages.TRAIN):
        return None
    try:
        tables = [context.planner.parts(stage) for stage in stages]
    except DistillError:
        return None  # said of the stage
    # A finished stage leaves its student; a stage that trains also has checkpoints of the trained weights.
    students = sum(row.bytes for table in tables for row in table)
    trained = max(sum(row.trainable for row in table) for table in tables)
    return students + _KEPT_CHECKPOINTS * _CHECKPOINT_BYTES * trained


def check_cost(context: CheckContext) -> Iterator[CheckResult]:
    """The most that teachers may write, and cost where a price is given."""
    recipe = context.recipe
    survey = context.readable(ASKED)
    if survey is None:
        return
    extent = "" if survey.whole else f" for {survey.extent}"
    for teacher in recipe.teachers:
        usage = _unseen(context.routed[teacher.name])
        ahead = forecast(recipe, teacher, usage)
        assert ahead.output is not None  # without a finished sample it is the most that the settings allow
        cost = f", cost at most {ahead.cost.high:,.2f}" if ahead.cost is not None else ""
        traces, attempts = recipe.most_traces(teacher) * sum(usage.left.values()), ahead.traces.high
        more = f" ({counted(round(attempts), 'attempt')})" if attempts > traces else ""
        summary = (
            f"at most {counted(traces, 'trace')}{more} and "
            f"{counted(round(ahead.output.high), 'output token')}{cost}{extent}"
        )
        yield fine(f"teachers.{teacher.name}", f"{summary}; `distill generate --check --probe 32` measures it")


def check_licences(context: CheckContext) -> Iterator[CheckResult]:
    """Licences that the card of the dataset will state."""
    card = context.recipe.filter.card
    sources = [ASKED] if ASKED in context.recipe.data else []
    lacking = [
        *(f"sources.{name}" for name in sources if name not in card.sources),
        *(f"teachers.{teacher.name}" for teacher in context.recipe.teachers if teacher.name not in card.teachers),
        *(["license"] if card.license == "other" and not card.license_name else []),
    ]
    if card.license not in LICENCES:
        hint = did_you_mean(card.license, LICENCES)
        yield warning(
            "filter.card.license",
            f"{card.license!r} is no licence that the hub knows{hint}",
            'name one of the hub, such as cc-by-4.0, or set license = "other" and license_name',
        )
    if lacking:
        yield not_checked(
            "filter.card",
            f"licences are not stated: {', '.join(lacking)}",
            "state them under [filter.card] before the dataset or the student is published",
        )
    else:
        yield fine("filter.card", f"the dataset's licence is {card.license_name or card.license}")
