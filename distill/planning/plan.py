"""What training will take, before anything is loaded: tokens, steps, FLOPs, memory, hours and cost, as text.

Models are outlined from their configurations, data is sampled where it is there (distill/planning/stage_plans.py).
Hours are FLOPs over a share of the card's rate (MFU).
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distill import hardware
from distill.errors import RecipeError
from distill.hardware import Gpu
from distill.planning.stage_plans import MFU, MFU_RANGE, GpuFit, StagePlan, fit, local_gpu, plans
from distill.recipe.recipe import Recipe
from distill.reports.text_table import table


def training_plan(recipe: Recipe, run: Path, *, gpu: str | None = None, price: float | None = None) -> str:
    """The plan of a recipe's training as text, for one card by name, the card that is here, or a few usual ones.

    `price` is that of an hour of one card. Raises RecipeError for an unknown card or a recipe without training,
    ModelError for a student whose configuration cannot be read, and what reading the data raises.
    """
    if recipe.student is None or not recipe.stages:
        raise RecipeError(f"{recipe.path}: a plan needs a [student] section and at least one [[stages]] block")
    chosen = hardware.find_gpu(gpu) if gpu else local_gpu()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of libraries, about each other's names
        outline, stage_plans = plans(recipe, run)
    blocks = [_student(outline, stage_plans[0]), _stages(stage_plans), _generation(recipe)]
    blocks += [_card(stage_plans, chosen, price) if chosen else _cards(stage_plans, price)]
    blocks.append(_measured(stage_plans))
    return "\n\n".join(block for block in blocks if block)


def _student(outline: Any, planned: StagePlan) -> str:
    """The student and its parts; adapters belong to stages."""
    sizes = [(row.part, row.parameters) for row in planned.parts if row.part != "adapters"]
    parts = " + ".join(f"{part} {_short(count)}" for part, count in sizes)
    dtype = str(outline.dtype).removeprefix("torch.")
    return f"student: {_short(sum(count for _, count in sizes))} parameters = {parts}, in {dtype}"


def _stages(plans: Sequence[StagePlan]) -> str:
    rows = []
    notes: dict[str, list[str]] = {}
    for planned in plans:
        load, scheduled = planned.load, planned.schedule
        bound_sign = "<= " if load.is_bound else ""
        rows.append(
            (
                planned.stage.name,
                _short(sum(row.trainable for row in planned.parts)),
                "?" if load.rows is None else f"{bound_sign}{load.rows:,}",
                f"{bound_sign}{load.tokens:,.0f}",
                f"{scheduled.steps:,}" if scheduled else "?",
                f"{bound_sign}{_short(scheduled.tokens)}" if scheduled else "?",
                f"{bound_sign}{_short(planned.flops)}" if scheduled else "?",
                _gib(planned.bytes(checkpointing=False)),
                _gib(planned.bytes(checkpointing=True)),
            )
        )
        note = f"rows and tokens by {load.basis}"
        if scheduled is None:
            note += "; how many is known once its data is there, or with limit or max_steps"
        notes.setdefault(note, []).append(planned.stage.name)
    head = ("stage", "trained", "rows", "tokens a row", "steps", "tokens", "FLOPs", "memory", "checkpointed")
    return "\n".join([table(head, rows), *(f"{', '.join(names)}: {note}" for note, names in notes.items())])


def _generation(recipe: Recipe) -> str:
    """What the teachers may write at most; `distill generate --check` knows more."""
    if not recipe.teachers or "questions" not in recipe.data:
        return ""
    from student.training.workload import questions
    from teacher.estimate import attempt_growth, most_traces

    asked = questions(recipe, "questions")
    if asked is None:
        return ""
    rows = []
    attempts, share = attempt_growth(recipe.generate.outcomes)
    for teacher in recipe.teachers:
        traces = asked * most_traces(recipe, teacher)
        tokens = traces * teacher.sampling.max_tokens * share
        rows.append((teacher.name, f"<= {asked:,}", f"<= {_short(traces * attempts)}", f"<= {_short(tokens)}"))
    note = f"times and costs of teachers: distill generate {recipe.name} --check --probe 32"
    return f"{table(('teacher', 'questions', 'traces', 'output tokens'), rows)}\n{note}"


def _card(plans: Sequence[StagePlan], gpu: Gpu, price: float | None) -> str:
    """How every stage goes on one card."""
    rate = f"{gpu.bf16 / 1e12:,.0f} TFLOP/s in bf16 ({gpu.source})" if gpu.bf16 else f"no bf16 ({gpu.source})"
    lines = [f"{gpu.name}: {gpu.memory_gib:.1f} GiB, {rate}"]
    fits = [fit(planned, gpu) for planned in plans]
    any_bound = any(planned.load.is_bound for planned in plans)
    rows = [
        (
            planned.stage.name,
            _verdict(gpu_fit),
            f"{gpu_fit.most_tokens:,}",
            _hours(gpu_fit.hours, planned.load.is_bound),
            *_priced(gpu_fit.hours, price),
        )
        for planned, gpu_fit in zip(plans, fits, strict=True)
    ]
    if len(plans) > 1:
        total = _total(fits)
        rows.append(("all", "", "", _hours(total, any_bound), *_priced(total, price)))
    head = ("stage", "fits", "micro_batch_tokens up to", f"time at MFU {MFU:.2f} ({_range()})")
    lines.append(table((*head, *(("cost",) if price is not None else ())), rows))
    lines += _advice(plans, fits, gpu)
    return "\n".join(lines)


def _cards(plans: Sequence[StagePlan], price: float | None) -> str:
    """All stages on a few cards."""
    rows = []
    any_bound = any(planned.load.is_bound for planned in plans)
    for gpu in (hardware.find_gpu(name) for name in hardware.USUAL):
        fits = [fit(planned, gpu) for planned in plans]
        total = _total(fits)
        rows.append(
            (
                gpu.name,
                f"{gpu.memory_gib:.0f} GiB",
                *(_cell(gpu_fit) for gpu_fit in fits),
                _hours(total, any_bound),
                *_priced(total, price),
            )
        )
    head = ("card", "memory", *(planned.stage.name for planned in plans), f"time at MFU {MFU:.2f} ({_range()})")
    notes = ["*: with gradient checkpointing; no: does not fit"]
    if plans[0].dtype != "bfloat16":
        notes.append(f"student.dtype is {plans[0].dtype}: times are estimated for bfloat16 only")
    notes.append("no GPU here: --gpu NAME plans for one of " + ", ".join(gpu.name for gpu in hardware.GPUS))
    return "\n".join([table((*head, *(("cost",) if price is not None else ())), rows), *notes])


def _advice(plans: Sequence[StagePlan], fits: Sequence[GpuFit], gpu: Gpu) -> list[str]:
    """What to change, by stage."""
    lines = []
    if plans[0].dtype != "bfloat16":
        lines.append(f"student.dtype is {plans[0].dtype}: times are estimated for bfloat16 only")
    elif gpu.bf16 is None:
        lines.append(f"{gpu.name} has no bf16: set student.dtype to float32, for which no time is estimated")
    for planned, gpu_fit in zip(plans, fits, strict=True):
        name = planned.stage.name
        if not gpu_fit.fits:
            advice = (
                f"lower its micro_batch_tokens to {gpu_fit.most_tokens:,}"
                if gpu_fit.most_tokens
                else "take LoRA, or nf4"
            )
            lines.append(f"{name}: does not fit; {advice}, or take a card with more memory")
        elif gpu_fit.checkpointing and planned.stage.gradient_checkpointing is not True:
            plain = planned.memory.most_tokens(
                gpu.usable_bytes,
                patches_per_token=planned.load.patches_per_token(),
                checkpointing=False,
            )
            lines.append(
                f"{name}: needs gradient_checkpointing = true at these {planned.micro_batch_tokens:,.0f} tokens; "
                f"without it micro_batch_tokens up to {plain:,}"
            )
    return lines


def _measured(plans: Sequence[StagePlan]) -> str:
    """Hours at the speed that this run has shown."""
    rows = [
        (
            planned.stage.name,
            f"{planned.tokens_per_s:,.0f}",
            _short(planned.schedule.tokens),
            duration(planned.schedule.tokens / planned.tokens_per_s / 3600),
        )
        for planned in plans
        if planned.tokens_per_s and planned.schedule is not None
    ]
    return table(("measured in this run", "tokens/s", "tokens", "time"), rows) if rows else ""


def _total(fits: Sequence[GpuFit]) -> tuple[float, float, float] | None:
    hours = [gpu_fit.hours for gpu_fit in fits if gpu_fit.hours is not None]
    if len(hours) < len(fits):
        return None
    middle, low, high = (sum(each) for each in zip(*hours, strict=True))
    return middle, low, high


def _verdict(gpu_fit: GpuFit) -> str:
    if not gpu_fit.fits:
        return "no"
    return "checkpointed" if gpu_fit.checkpointing else "yes"


def _range() -> str:
    low, high = MFU_RANGE
    return f"{high:.2f} to {low:.2f}"


def _cell(gpu_fit: GpuFit) -> str:
    text = duration(gpu_fit.hours[0]) if gpu_fit.hours else "fits" if gpu_fit.fits else "no"
    return f"{text}*" if gpu_fit.fits and gpu_fit.checkpointing else text


def _hours(hours: tuple[float, float, float] | None, is_bound: bool) -> str:
    if hours is None:
        return "?"
    middle, low, high = map(duration, hours)
    return f"{'<= ' if is_bound else ''}{middle}" + (f" ({low} to {high})" if low != high else "")


def duration(hours: float) -> str:
    if hours * 60 < 1:
        return "< 1 min"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.0f} h" if hours >= 20 else f"{hours:.1f} h"


def _priced(hours: tuple[float, float, float] | None, price: float | None) -> tuple[str, ...]:
    """The cell of the cost, where there is such a column."""
    if price is None:
        return ()
    return ("?" if hours is None else f"{hours[0] * price:,.2f}",)


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 / 10 else f"{size / 2**20:,.0f} MiB"


_UNITS: Mapping[str, float] = {"E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}


def _short(value: float) -> str:
    for unit, size in _UNITS.items():
        if value >= 0.9995 * size:
            return f"{value / size:,.3g} {unit}"
    return f"{value:,.0f}"
