"""Checks of the student and its stages: checkpoints, tokenizer, roles, packages, rows that fit, memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from distill import packages
from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, not_checked, problem, warning
from distill.errors import DistillError
from distill.local_paths import from_home
from distill.machine import hardware
from distill.planning.stage_plans import StagePlan, fit
from distill.planning.stage_times import stage_time
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import is_traces, lineage
from distill.recipe.sections.student import Student
from distill.word_tables import counted

if TYPE_CHECKING:
    from student.data.encode import Encoder

_SPANS_SHARE = 0.6
"""Share of a row's loss below which its rationale is hardly learned (docs/train.md, Loss)."""

_HIGHEST_RATE = 0.05
"""Largest sensible learning rate: steps of AdamW are about as large as the rate. The small worlds use 3e-3."""


def check_sections(context: CheckContext) -> Iterator[CheckResult]:
    """The sections that later stages of a whole run cannot do without."""
    recipe = context.recipe
    if recipe.student is None:
        yield problem("student", "the recipe has none, so the run would end after filter", "add [student]")
    if not recipe.stages:
        yield problem("stages", "the recipe has none, so the run would end after filter", "add [[stages]]")
    for stage in recipe.stages:
        if is_traces(stage) and not recipe.teachers:
            yield problem(
                f"stages.{stage.name}.data",
                "learns from traces, and the recipe has no [[teachers]]",
                "add [[teachers]]",
            )
        if stage.learning_rate > _HIGHEST_RATE:
            yield warning(
                f"stages.{stage.name}.learning_rate",
                f"{stage.learning_rate:g}: weights diverge at such a rate; common ones are 1e-5 to 3e-3",
                "check whether its exponent is missing",
            )
    yield from _untrained_projector(recipe)


def _untrained_projector(recipe: Recipe) -> Iterator[CheckResult]:
    """A student of parts begins with a random projector: the language model would learn from noise."""
    if recipe.student is None or recipe.student.vision is None:
        return
    for stage in recipe.stages:
        if not any("projector" in each.train for each in lineage(recipe.stages, stage.name)):
            yield warning(
                f"stages.{stage.name}.train",
                "the projector has random weights, and no stage up to this one trains it",
                'put a stage with train = ["projector"] before it',
            )


def check_packages(context: CheckContext) -> Iterator[CheckResult]:
    """Packages of the extras that training, evaluation and embedded teachers need."""
    recipe = context.recipe
    if recipe.student is None and not any(teacher.capabilities.in_process for teacher in recipe.teachers):
        return
    lacking = packages.missing(*packages.TRAIN)
    if lacking:
        line = packages.install_line(*lacking)
        yield problem("extra train", f"{', '.join(lacking)} are not installed; training needs them", line)
    else:
        yield fine("extra train", "torch, transformers and the other packages of training are installed")


def check_checkpoints(context: CheckContext) -> Iterator[CheckResult]:
    """Check that the student's weights are complete, by names and shapes, and that tokenizer and processor exist."""
    settings = context.recipe.student
    if settings is None or packages.missing(*packages.TRAIN):
        return
    for part in ("model", "vision", "language"):
        name = getattr(settings, part)
        if name is None:
            continue
        key = f"student.{part}"
        if not context.recipe.local(name).exists():
            yield context.hub.look(key, name, "model", settings.revision if part == "model" else None)
            continue
        path = Path(context.recipe.local_or_hub(name))
        try:
            yield _whole(part, path, settings)
            if part == "model":
                from student.models import checkpoint_faults

                for fault in checkpoint_faults.find(path):
                    yield warning(key, f"{path}: {fault.problem}", f"correct {fault.change}")
        except DistillError as error:
            yield problem(key, str(error), f"correct {key}, or copy the checkpoint again")


def _whole(part: str, path: Path, settings: Student) -> CheckResult:
    from student.models import siq_vl
    from student.models.library_output import hide_library_output

    if part == "model":
        require_checkpoint(path, revision=settings.revision, trust_remote_code=settings.trust_remote_code)
    else:
        with hide_library_output():
            (siq_vl.require_tower if part == "vision" else siq_vl.require_decoder)(str(path))
    if part == "vision" and not (path / "preprocessor_config.json").is_file():
        return warning(
            "student.vision",
            f"{path} has no preprocessor_config.json, so images are normalised with a mean and deviation of 0.5",
            "copy preprocessor_config.json from the original model",
        )
    return fine(f"student.{part}", f"{path} is whole, its tokenizer and processor included")


def require_checkpoint(path: Path, *, revision: str | None = None, trust_remote_code: bool) -> None:
    """Raise ModelError for a folder that holds no whole student: weights, tokenizer and processor."""
    from student.models import siq_vl
    from student.models.library_output import hide_library_output

    with hide_library_output():
        siq_vl.require_whole(str(path), revision=revision, trust_remote_code=trust_remote_code)


def check_student(context: CheckContext) -> Iterator[CheckResult]:
    """Roles, pixel shuffle, chat template: what the student would be made of."""
    if not can_be_outlined(context):
        if context.recipe.student is not None and not packages.missing(*packages.TRAIN):
            yield not_checked(
                "student", "its configuration is not here, so roles, memory and row lengths are not known"
            )
        return
    key = "student.pixel_shuffle" if context.recipe.student and context.recipe.student.vision else "student.model"
    try:
        planner = context.planner
        if planner.processor is not None:
            encoder_of(context)
    except DistillError as error:
        yield problem(key, str(error), f"correct {key}")
        return
    yield fine(
        "student", f"{type(planner.outline).__name__}: tower, projector and language model found, chat template"
    )


def can_be_outlined(context: CheckContext) -> bool:
    return bool(context.recipe.stages) and context.student_is_here and not packages.missing(*packages.TRAIN)


def encoder_of(context: CheckContext) -> "Encoder":
    from student.data.encode import Encoder

    return Encoder.of(context.planner.outline, context.planner.processor)


def check_stage_needs(context: CheckContext) -> Iterator[CheckResult]:
    """Kernels, attention, 4-bit weights and trackers that stages ask for are installed."""
    recipe = context.recipe
    if recipe.student is None or packages.missing(*packages.TRAIN):
        return
    from student.training import stage as stages

    for stage in recipe.stages:
        problems = list(stages.requirement_problems(recipe, stage))
        for error in problems:
            yield problem(f"stages.{stage.name}", str(error), f"change stages.{stage.name}, or install what it needs")
        if not problems:
            yield fine(f"stages.{stage.name}", "kernels, attention, adapters and trackers are available")


def check_plans(context: CheckContext) -> Iterator[CheckResult]:
    """Every stage by its plan: rows that fit, trained parts, memory, hours."""
    if not can_be_outlined(context):
        return
    try:
        context.planner  # noqa: B018 (its errors are said of the student)
    except DistillError:
        return
    gpu = context.gpu
    if gpu is None:
        yield not_checked(
            "memory", "no GPU in this machine; `--gpu NAME` checks the stages for a GPU", "name one with --gpu"
        )
    for stage in context.recipe.stages:
        key = f"stages.{stage.name}"
        if context.seconds_left <= 0:
            yield not_checked(key, "no time was left to plan it", "see `distill plan`")
            continue
        if not is_traces(stage) and context.readable(stage.data) is None and context.is_here(stage.data):
            continue  # said of the source
        try:
            load = context.planner.load(stage)
            if gpu is None:
                rows = "rows not known yet" if load.rows is None else f"{counted(load.rows, 'row')}"
                yield fine(key, f"{rows} of {counted(round(load.own_tokens), 'token')}, by {load.basis}")
            else:
                yield from _planned(key, context.planner.plan(stage), gpu)
        except DistillError as error:
            yield problem(key, str(error), f"change {key}.data, max_length or train")


def _planned(key: str, planned: StagePlan, gpu: hardware.Gpu) -> Iterator[CheckResult]:
    tokens = f"{counted(planned.schedule.steps, 'step')}" if planned.schedule else "steps not known yet"
    planned = planned.on(gpu)
    needs = planned.bytes(checkpointing=planned.stage.gradient_checkpointing is True)
    summary = f"{tokens}, {needs / 2**30:.1f} GiB of GPU memory"
    gpu_fit = fit(planned, gpu)
    if planned.stage.gradient_checkpointing is False and gpu_fit.checkpointing:
        yield problem(
            f"{key}.gradient_checkpointing",
            f"false, and a micro-batch needs {needs / 2**30:.1f} GiB; {gpu.name} has {gpu.memory_gib:.1f}",
            f'set {key}.gradient_checkpointing = "auto", or lower micro_batch_tokens',
        )
    elif not gpu_fit.fits:
        message = f"does not fit {gpu.name} ({gpu.memory_gib:.1f} GiB), with gradient checkpointing either"
        yield problem(f"{key}.micro_batch_tokens", message, gpu_fit.remedy)
    else:
        time = stage_time(planned, gpu, gpu_fit)
        hours = "" if time is None else f", {time.hours[0]:.1f} to {time.hours[1]:.1f} h on {gpu.name}"
        yield fine(key, f"{summary}{hours}")
    if gpu.bf16 is None and planned.dtype == "bfloat16":
        yield warning("student.dtype", f"{gpu.name} has no bfloat16", 'set student.dtype = "float32"')


def check_loss(context: CheckContext) -> Iterator[CheckResult]:
    """Losses that have cost accuracy."""
    for stage in context.recipe.stages:
        loss = stage.loss
        if loss.normalise != "spans" or stage.target == "answer":
            continue
        # Of a row with all three parts.
        share = loss.rationale / (loss.rationale + loss.answer + loss.format)
        if share < _SPANS_SHARE:
            yield warning(
                f"stages.{stage.name}.loss.normalise",
                f'"spans": the rationale has {100 * share:.0f} % of the loss of a row, whatever its length; with '
                '"tokens" one of 80 tokens has 88 %. In the one case measured accuracy fell from 80.0 % to 42.4 %',
                'set it to "tokens", or raise loss.rationale and lower loss.format, and compare both',
            )


def check_trackers(context: CheckContext) -> Iterator[CheckResult]:
    """A tracker that asks for a key would wait for one in the midst of a run."""
    has_credentials = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_MODE") in ("offline", "disabled")
    recipe = context.recipe
    if lacking := packages.missing(*recipe.report_to):
        yield problem(
            "report_to", f"{', '.join(lacking)} not installed", f"{packages.install_line(*lacking)}, or leave it out"
        )
    named = {"report_to": recipe.report_to} | {
        f"stages.{each.name}.report_to": each.report_to for each in recipe.stages
    }
    for key, trackers in named.items():
        if "wandb" in trackers and not has_credentials and not from_home("~/.netrc").is_file():
            yield warning(
                key,
                "wandb needs WANDB_API_KEY, which is not set",
                "export WANDB_API_KEY, set WANDB_MODE=offline, or leave wandb out",
            )
