"""The shortest time of a stage on a card, what limits it, and the setting that lifts the limit.

The lower bound comes from student/training/cost/roofline.py; MFU and HFU are shares of the card's nominal bf16 rate,
as in metrics.jsonl.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distill.machine.hardware import Gpu
from distill.planning.stage_plans import GpuFit, StagePlan, fit
from distill.word_tables import counted

if TYPE_CHECKING:
    from student.training.cost.roofline import Bound

_FULLER = 4
"""Factor on the tokens of the step that is tried where kernels are too small for a card."""
_GAIN = 1.05


@dataclass(frozen=True, slots=True)
class Settings:
    """The properties of a stage that decide how fast a step is."""

    step_tokens: float
    micro_batch_tokens: float
    checkpointing: bool
    kernels: str

    @property
    def passes(self) -> int:
        return max(1, math.ceil(self.step_tokens / self.micro_batch_tokens - 1e-9))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """The steps of a stage on one card."""

    settings: Settings
    bound: "Bound"
    """The bound of one step."""
    steps: int

    @property
    def hours(self) -> tuple[float, float]:
        """At least, and as expected."""
        return self.steps * self.bound.total_s / 3600, self.steps * self.bound.usual_s / 3600


def stage_time(planned: StagePlan, gpu: Gpu, gpu_fit: GpuFit) -> StageTime | None:
    """None where no time can be predicted: no fit, no bf16, no known number of steps."""
    if not gpu_fit.fits or not gpu.bf16 or planned.dtype != "bfloat16" or planned.schedule is None:
        return None
    settings = Settings(
        planned.schedule.tokens / planned.schedule.steps,
        planned.micro_batch_tokens,
        gpu_fit.checkpointing,
        planned.stage.kernels,
    )
    return StageTime(settings=settings, bound=_bound(planned, gpu, settings), steps=planned.schedule.steps)


def on_card(plans: Sequence[StagePlan], gpu: Gpu) -> list[tuple[StagePlan, GpuFit, StageTime | None]]:
    """Each stage with how it fits a card and how long it takes there."""
    wide = [planned.on(gpu) for planned in plans]
    return [(planned, gpu_fit := fit(planned, gpu), stage_time(planned, gpu, gpu_fit)) for planned in wide]


def bottleneck(bound: "Bound") -> str:
    """The part of a step that takes most of its time."""
    part, kind, share = bound.largest()
    text = f"{100 * share:.0f} % of its time on the GPU is {kind} ({part})"
    if bound.waits_for_host:
        text += f", and the host may be too slow to start {counted(bound.launches, 'kernel')} a step"
    return text


def advice(planned: StagePlan, gpu: Gpu, gpu_fit: GpuFit, time: StageTime) -> str:
    """The bottleneck, the setting that lifts the bound most, and what all that lift it reach together."""
    text = bottleneck(time.bound)
    changes = {
        name: _bound(planned, gpu, replace(time.settings, **change))
        for name, change in _changes(planned, gpu, gpu_fit, time.settings)
    }
    lifting = {name: bound for name, bound in changes.items() if bound.mfu > _GAIN * time.bound.mfu}
    if not lifting:
        return text
    best = max(lifting, key=lambda name: lifting[name].mfu)
    text += f"; {best} lifts the MFU to {100 * lifting[best].mfu:.0f} % at most"
    others = [name for name in changes if name != best and "kernels" not in name]
    if others:
        together: dict[str, Any] = {}
        for name, change in _changes(planned, gpu, gpu_fit, time.settings):
            together |= change if name == best or name in others else {}
        reached = _bound(planned, gpu, replace(time.settings, **together)).mfu
        if reached > _GAIN * lifting[best].mfu:
            text += f", with {' and '.join(others)} to {100 * reached:.0f} %"
    return text


def _changes(
    planned: StagePlan, gpu: Gpu, gpu_fit: GpuFit, settings: Settings
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings of the recipe that may make a step faster, and their effects."""
    if settings.kernels not in ("compile", "auto"):
        yield 'kernels = "compile"', {"kernels": "compile"}
    if settings.kernels == "none":
        yield 'kernels = "liger"', {"kernels": "liger"}
    plain = planned.most_tokens(gpu, checkpointing=False)
    if settings.checkpointing and plain > planned.load.tokens:
        tokens = min(plain, round(settings.micro_batch_tokens))
        yield (
            f"micro_batch_tokens = {tokens:_} without gradient checkpointing",
            {"checkpointing": False, "micro_batch_tokens": tokens},
        )
    most = gpu_fit.most_tokens if settings.checkpointing else plain
    if settings.passes > 1 and most > 1.2 * settings.micro_batch_tokens:
        tokens = min(most, math.ceil(settings.step_tokens))
        yield f"micro_batch_tokens = {tokens:_}", {"micro_batch_tokens": tokens}
    yield f"steps of {_FULLER} times the tokens (fewer updates)", {"step_tokens": _FULLER * settings.step_tokens}


def _bound(planned: StagePlan, gpu: Gpu, settings: Settings) -> "Bound":
    return planned.step(
        planned.load, settings.step_tokens, settings.passes, settings.checkpointing, settings.kernels
    ).on(gpu)
