"""What training will take, before anything is loaded: tokens, steps, FLOPs, memory, hours and cost, as text.

Models are outlined from their configurations, data is sampled where it is there (distill/planning/stage_plans.py).
Times are sums over the kernels of a step (distill/planning/stage_times.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.errors import RecipeError
from distill.local_paths import as_argument
from distill.machine import hardware
from distill.machine.hardware import Gpu
from distill.planning.stage_plans import GpuFit, StagePlan, local_gpu, plans
from distill.planning.stage_times import StageTime, advice, on_card
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.reports.text_table import short_number, table, time_span
from distill.word_tables import counted

_TIMES = ("time at least", "expected")
_TIMES_NOTE = (
    "at least: every kernel of a step at the nominal rate or bandwidth of the GPU. expected: at 78 % of them, or "
    "50 us of the host for each kernel, as one machine with an H100 needed. MFU: FLOPs that learning needs, by the "
    "nominal rate; HFU counts layers computed twice"
)


def training_plan(recipe: Recipe, run: Path, *, gpu: str | None = None, price: float | None = None) -> str:
    """The plan of a recipe's training as text, for one card by name, the card that is here, or a few usual ones.

    `price` is the price of one card for an hour. Raises RecipeError for an unknown card or a recipe without training,
    ModelError for a student whose configuration cannot be read, and what reading the data raises.
    """
    chosen = chosen_gpu(recipe, gpu)
    outline, stage_plans = plans(recipe, run)
    blocks = [
        _student(outline, stage_plans[0]),
        _stages(stage_plans),
        _generation(recipe),
        _rounds(recipe, stage_plans),
        _card(stage_plans, chosen, price) if chosen else _cards(stage_plans, price),
        _measured(stage_plans),
    ]
    return "\n\n".join(block for block in blocks if block)


def chosen_gpu(recipe: Recipe, gpu: str | None) -> Gpu | None:
    """The card to plan for: by name, or the card of this machine. Raises RecipeError, also for nothing to plan."""
    if recipe.student is None or not recipe.stages:
        raise RecipeError(f"{recipe.path}: a plan needs a [student] section and at least one [[stages]] block")
    return hardware.find_gpu(gpu) if gpu is not None else local_gpu()


def _student(outline: Any, planned: StagePlan) -> str:
    """The student and its parts; adapters belong to stages."""
    sizes = [(row.part, row.parameters) for row in planned.parts if row.part != "adapters"]
    parts = " + ".join(f"{part} {short_number(count)}" for part, count in sizes)
    dtype = str(outline.dtype).removeprefix("torch.")
    return f"student: {short_number(sum(count for _, count in sizes))} parameters = {parts}, in {dtype}"


def _stages(plans: Sequence[StagePlan]) -> str:
    rows = []
    notes: dict[str, list[str]] = {}
    for planned in plans:
        load, scheduled = planned.load, planned.schedule
        bound_sign = "<= " if load.is_bound else ""
        rows.append(
            (
                planned.stage.name,
                short_number(sum(row.trainable for row in planned.parts)),
                "?" if load.rows is None else f"{bound_sign}{load.rows:,}",
                f"{bound_sign}{load.own_tokens:,.0f}",
                f"{scheduled.steps:,}" if scheduled else "?",
                f"{bound_sign}{short_number(scheduled.tokens)}" if scheduled else "?",
                f"{bound_sign}{short_number(planned.flops)}" if scheduled else "?",
                _gib(planned.bytes(checkpointing=False)),
                _gib(planned.bytes(checkpointing=True)),
            )
        )
        note = f"rows and tokens by {load.basis}"
        if scheduled is None:
            note += "; how many is known once its data is there, or with limit or max_steps"
        notes.setdefault(note, []).append(planned.stage.name)
    head = ("stage", "trained", "rows", "tokens a row", "steps", "tokens", "FLOPs", "memory", "checkpointed")
    copies = ", ".join(f"{planned.stage.name} {_gib(planned.memory.checkpoint)}" for planned in plans)
    lines = [f"{', '.join(names)}: {note}" for note, names in notes.items()]
    return "\n".join([table(head, rows), *lines, f"checkpoints, on disk and copied to host memory: {copies}"])


def _generation(recipe: Recipe) -> str:
    """The largest number of tokens that the teachers may write; `distill generate --check` estimates it better."""
    if not recipe.teachers or ASKED not in recipe.data:
        return ""
    from student.training.cost.workload import questions
    from teacher.estimate import attempt_growth

    asked = questions(recipe, ASKED)
    if asked is None:
        return ""
    rows = []
    attempts, share = attempt_growth(recipe.generate.outcomes)
    for teacher in recipe.teachers:
        traces = asked * recipe.most_traces(teacher)
        tokens = traces * teacher.sampling.max_tokens * share
        most = (f"{asked:,}", *map(short_number, (traces, traces * attempts, tokens)))
        rows.append((teacher.name, *(f"<= {number}" for number in most)))
    note = f"times and costs of teachers: distill generate {as_argument(recipe.path)} --check --probe 32"
    return f"{table(('teacher', 'questions', 'traces', 'attempts', 'output tokens'), rows)}\n{note}"


def _rounds(recipe: Recipe, planned: Sequence[StagePlan]) -> str:
    """What the rounds after round 0 add to it, at most."""
    settings = recipe.rounds
    if not settings.count:
        return ""
    stage = next(each for each in planned if each.stage == recipe.round_stage)
    shares = f"{settings.steps_share:g} of the steps of {stage.stage.name}"
    if stage.schedule is not None:
        steps = max(1, round(settings.steps_share * stage.schedule.steps))
        shares = f"{counted(steps, 'step')}, {short_number(settings.steps_share * stage.schedule.tokens)} tokens"
    limit = (
        ""
        if settings.returned is None
        else f"; at most {counted(settings.returned, 'question goes', 'questions go')} back"
    )
    return (
        f"rounds: up to {settings.count} after round 0, each {shares}{limit}. The student "
        f"answers the questions of [data.{settings.questions}] and the validation questions before and after each"
    )


def _card(plans: Sequence[StagePlan], gpu: Gpu, price: float | None) -> str:
    """Memory and time of every stage on one card."""
    rate = f"{gpu.bf16 / 1e12:,.0f} TFLOP/s in bf16" if gpu.bf16 else "no bf16"
    lines = [f"{gpu.name}: {gpu.memory_gib:.1f} GiB, {rate}, {gpu.bandwidth / 1e12:.2f} TB/s ({gpu.source})"]
    stages = on_card(plans, gpu)
    rows = [
        (
            planned.stage.name,
            _verdict(gpu_fit),
            f"{gpu_fit.most_tokens:,}",
            *_hours(time.hours if time else None, planned.load.is_bound),
            *((f"{100 * time.bound.mfu:.0f} %", f"{100 * time.bound.hfu:.0f} %") if time else ("?", "?")),
            *_priced(time.hours if time else None, price),
        )
        for planned, gpu_fit, time in stages
    ]
    if len(plans) > 1:
        total = _total([time for _, _, time in stages])
        any_bound = any(planned.load.is_bound for planned in plans)
        rows.append(("all", "", "", *_hours(total, any_bound), "", "", *_priced(total, price)))
    head = ("stage", "fits", "micro_batch_tokens up to", *_TIMES, "MFU at most", "HFU at most")
    lines.append(table((*head, *(("cost",) if price is not None else ())), rows))
    lines += _advice(stages, gpu)
    limits: dict[str, list[str]] = {}
    for planned, gpu_fit, time in stages:
        if time is not None:
            limits.setdefault(advice(planned, gpu, gpu_fit, time), []).append(planned.stage.name)
    lines += [f"{', '.join(names)}: {text}" for text, names in limits.items()]
    return "\n".join([*lines, *([_TIMES_NOTE] if limits else [])])


def _cards(plans: Sequence[StagePlan], price: float | None) -> str:
    """All stages on a few cards."""
    rows = []
    any_bound = any(planned.load.is_bound for planned in plans)
    for gpu in (hardware.find_gpu(name) for name in hardware.USUAL):
        stages = on_card(plans, gpu)
        total = _total([time for _, _, time in stages])
        rows.append(
            (
                gpu.name,
                f"{gpu.memory_gib:.0f} GiB",
                *(_cell(gpu_fit, time) for _, gpu_fit, time in stages),
                *_hours(total, any_bound),
                *_priced(total, price),
            )
        )
    head = ("card", "memory", *(planned.stage.name for planned in plans), *_TIMES)
    notes = ["*: with gradient checkpointing; no: does not fit", _TIMES_NOTE]
    if plans[0].dtype != "bfloat16":
        notes.append(f"student.dtype is {plans[0].dtype}: times are estimated for bfloat16 only")
    notes.append("no GPU here: --gpu NAME plans for one of " + ", ".join(gpu.name for gpu in hardware.GPUS))
    return "\n".join([table((*head, *(("cost",) if price is not None else ())), rows), *notes])


def _advice(stages: Sequence[tuple[StagePlan, GpuFit, StageTime | None]], gpu: Gpu) -> list[str]:
    """Settings to change, by stage."""
    lines = []
    dtype = stages[0][0].dtype
    if dtype != "bfloat16":
        lines.append(f"student.dtype is {dtype}: times are estimated for bfloat16 only")
    elif gpu.bf16 is None:
        lines.append(f"{gpu.name} has no bf16: set student.dtype to float32, for which no time is estimated")
    for planned, gpu_fit, _ in stages:
        name = planned.stage.name
        if not gpu_fit.fits:
            lines.append(f"{name}: does not fit; {gpu_fit.remedy}")
        elif gpu_fit.checkpointing and planned.stage.gradient_checkpointing is not True:
            lines.append(
                f"{name}: needs gradient_checkpointing = true at these "
                f"{counted(round(planned.micro_batch_tokens), 'token')}; "
                f"without it micro_batch_tokens up to {planned.most_tokens(gpu, checkpointing=False):,}"
            )
    return lines


def _measured(plans: Sequence[StagePlan]) -> str:
    """Hours at the speed that this run has shown."""
    rows = [
        (
            planned.stage.name,
            f"{planned.tokens_per_s:,.0f}",
            short_number(planned.schedule.tokens),
            time_span(planned.schedule.tokens / planned.tokens_per_s),
        )
        for planned in plans
        if planned.tokens_per_s and planned.schedule is not None
    ]
    if not rows:
        return ""
    note = "tokens/s: over the whole time in the training loop, with validations and checkpoints"
    return f"{table(('measured in this run', 'tokens/s', 'tokens', 'time'), rows)}\n{note}"


def _total(times: Sequence[StageTime | None]) -> tuple[float, float] | None:
    hours = [time.hours for time in times if time is not None]
    if len(hours) < len(times):
        return None
    least, expected = (sum(each) for each in zip(*hours, strict=True))
    return least, expected


def _verdict(gpu_fit: GpuFit) -> str:
    if not gpu_fit.fits:
        return "no"
    return "checkpointed" if gpu_fit.checkpointing else "yes"


def _cell(gpu_fit: GpuFit, time: StageTime | None) -> str:
    text = time_span(3600 * time.hours[0]) if time else "fits" if gpu_fit.fits else "no"
    return f"{text}*" if gpu_fit.fits and gpu_fit.checkpointing else text


def _hours(hours: tuple[float, float] | None, is_bound: bool) -> tuple[str, str]:
    """The cells of the times. Both are for all the data that there may be, where it is not there yet."""
    if hours is None:
        return "?", "?"
    least, expected = (time_span(3600 * each) for each in hours)
    return least, f"{'<= ' if is_bound else ''}{expected}"


def _priced(hours: tuple[float, float] | None, price: float | None) -> tuple[str, ...]:
    """The cell of the cost, where there is such a column."""
    if price is None:
        return ()
    return ("?" if hours is None else f"{hours[0] * price:,.2f} to {hours[1] * price:,.2f}",)


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:,.0f} MiB"
