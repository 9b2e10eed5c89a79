"""What each stage of a training will take, before anything is loaded, and how it fits a card.

Memory is the memory of the tensors of a step (student/training/cost/memory.py) plus a reserve for everything else.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.artifacts.journal import read_jsonl
from distill.artifacts.layout import METRICS
from distill.machine import hardware
from distill.machine.hardware import Gpu
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage

if TYPE_CHECKING:
    from student.models.flops import Cost
    from student.models.freeze import PartRow
    from student.training.cost.memory import Memory
    from student.training.cost.roofline import StepKernels
    from student.training.cost.step_trace import DecoderTrace
    from student.training.cost.workload import Load, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """The amounts of a stage before it runs: rows, tokens, steps, memory, time."""

    stage: Stage
    parts: "Sequence[PartRow]"
    load: "Load"
    schedule: "Schedule | None"
    memory: "Memory"
    dtype: str
    cost: "Cost"
    tokens_per_s: float | None
    """Measured in this run, on the machine that it used."""
    step: "Callable[..., StepKernels]"
    """The kernels of a step; see `StagePlanner.step`."""

    @property
    def flops(self) -> float:
        assert self.schedule is not None
        return self.load.flops(self.cost, self.schedule.tokens)

    @property
    def micro_batch_tokens(self) -> float:
        """Tokens in memory at once: never more than a step has, except for a single long row or pair."""
        group = self.stage.group_rows * self.load.tokens
        step = self.stage.batch_tokens or self.stage.batch_size * group
        return min(self.stage.pass_tokens, max(step, group))

    def on(self, gpu: Gpu) -> "StagePlan":
        """The plan with as many tokens in memory at once as the stage takes on this card."""
        from student.training.cost.memory import widened

        checkpointing = fit(self, gpu).checkpointing
        stage = widened(
            self.stage,
            self.memory,
            patches_per_token=self.load.patches_per_token(),
            available=gpu.usable_bytes,
            checkpointing=checkpointing,
        )
        return replace(self, stage=stage)

    def bytes(self, *, checkpointing: bool) -> int:
        tokens = self.micro_batch_tokens
        patches = tokens * self.load.patches_per_token()
        return self.memory.needed(tokens=tokens, patches=patches, checkpointing=checkpointing)

    def most_tokens(self, gpu: Gpu, *, checkpointing: bool) -> int:
        """The largest micro-batch on a card."""
        patches = self.load.patches_per_token()
        return self.memory.most_tokens(gpu.usable_bytes, patches_per_token=patches, checkpointing=checkpointing)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFit:
    """Whether and how fast a stage runs on a GPU."""

    checkpointing: bool
    """Whether layers are computed twice, as asked or for want of memory."""
    fits: bool
    most_tokens: int
    """The largest micro-batch."""

    @property
    def remedy(self) -> str:
        """What to change about a stage that does not fit."""
        change = f"lower micro_batch_tokens to {self.most_tokens:,}" if self.most_tokens else "use LoRA, or nf4"
        return f"{change}, or use a GPU with more memory"


def fit(planned: StagePlan, gpu: Gpu) -> GpuFit:
    """Whether a stage fits a card, with checkpointing only where it is asked for or needed."""
    available = gpu.usable_bytes
    asked = planned.stage.gradient_checkpointing is True
    checkpointing = asked or planned.bytes(checkpointing=False) > available
    fits = planned.bytes(checkpointing=checkpointing) <= available
    most_tokens = planned.most_tokens(gpu, checkpointing=checkpointing)
    return GpuFit(checkpointing=checkpointing, fits=fits, most_tokens=most_tokens)


def plans(recipe: Recipe, run: Path) -> tuple[Any, list[StagePlan]]:
    """The outline of the student and the plans of its stages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of libraries, about each other's names
        planner = StagePlanner(recipe, run)
        return planner.outline, [planner.plan(stage) for stage in recipe.stages]


class StagePlanner:
    """Plans stages one by one, from one outline of the student. Raises what outlining the student raises."""

    def __init__(self, recipe: Recipe, run: Path) -> None:
        from student.models import start_model
        from student.models.parts import find_parts

        self._recipe, self._run = recipe, run
        self.outline, self.processor = start_model.outline(recipe)
        self._roles = find_parts(self.outline)
        self._prepared: dict[Any, Any] = {}
        self._loads: dict[str, Load] = {}
        self._memory: dict[Any, Memory] = {}
        self._traces: dict[Any, DecoderTrace] = {}

    def prepared(self, stage: Stage) -> Any:
        """The student as a stage trains it, without weights. Raises ModelError where nothing of it can be trained."""
        from student.training.cost import memory

        key = _outlined_alike(stage)
        if key not in self._prepared:
            self._prepared[key] = memory.prepared(self.outline, self._roles, stage)
        return self._prepared[key]

    def parts(self, stage: Stage) -> "Sequence[PartRow]":
        """The student's parts, and what a stage trains of them."""
        from student.models import freeze

        return freeze.table(self.prepared(stage), self._roles)

    def load(self, stage: Stage) -> "Load":
        """How much a stage has to learn. Raises the errors of reading its data, if the data exists."""
        from student.models.flops import Cost
        from student.training.cost import workload

        if stage.name not in self._loads:
            cost = Cost.of(self.prepared(stage), self._roles)
            self._loads[stage.name] = workload.of_stage(
                self._recipe, self._run, stage, self.outline, self.processor, cost
            )
        return self._loads[stage.name]

    def plan(self, stage: Stage) -> StagePlan:
        """Raises what preparing the student for a stage raises, and reading the stage's data."""
        from student.models.flops import Cost
        from student.training.cost import memory, workload

        assert self._recipe.student is not None
        student, load = self.prepared(stage), self.load(stage)
        key = _outlined_alike(stage), memory.may_take_passes(stage)
        if key not in self._memory:
            self._memory[key] = memory.of(student, self._roles, stage)
        return StagePlan(
            stage=stage,
            parts=self.parts(stage),
            load=load,
            schedule=workload.schedule(stage, load),
            memory=self._memory[key],
            dtype=self._recipe.student.dtype,
            cost=Cost.of(student, self._roles),
            tokens_per_s=_tokens_per_s(self._run / "train" / stage.name / METRICS),
            step=functools.cache(functools.partial(self.step, stage)),
        )

    def step(
        self, stage: Stage, load: "Load", step_tokens: float, passes: int, checkpointing: bool, kernels: str
    ) -> "StepKernels":
        """The kernels of a step of these tokens in this number of passes. About 0.2 s for a pass not seen before."""
        from student.models.flops import Cost
        from student.training.cost import roofline
        from student.training.cost.step_trace import PassWork, trace

        student, rows = self.prepared(stage), step_tokens / load.tokens
        work = PassWork(
            tokens=step_tokens / passes,
            squared_lengths=load.squared_length * rows / passes,
            response_tokens=load.response_tokens * rows / passes,
            patches=load.patches * rows / passes,
            squared_patches=load.squared_patches * rows / passes,
        )
        fused = kernels in roofline.FUSED
        key = stage.train, stage.lora, work, checkpointing, fused
        if key not in self._traces:
            self._traces[key] = trace(student, self._roles, work, checkpointing=checkpointing, fused_layers=fused)
        model, hardware = (
            load.flops(Cost.of(student, self._roles, checkpointing=twice), step_tokens)
            for twice in (False, checkpointing)
        )
        return roofline.StepKernels(
            kernels=roofline.step_kernels(
                student, self._roles, work, self._traces[key], passes=passes, kernels=kernels
            ),
            model_flops=model,
            hardware_flops=hardware,
        )


def _outlined_alike(stage: Stage) -> Any:
    """Equal for stages that train the same of the same student, in micro-batches of the same size."""
    return stage.train, stage.lora, stage.pass_tokens


def local_gpu() -> Gpu | None:
    """The card of this machine."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    memory_gib = properties.total_memory / 2**30
    listed = hardware.gpu_of_device(properties.name, memory_gib)
    if listed is not None:
        return replace(listed, name=properties.name, memory_gib=memory_gib)
    from student.models.flops import copy_rate, matmul_rate

    rate = matmul_rate("cuda", torch.bfloat16) if torch.cuda.is_bf16_supported() else None
    return Gpu(
        name=properties.name, memory_gib=memory_gib, bf16=rate, bandwidth=copy_rate("cuda"), source="measured here"
    )


def _tokens_per_s(metrics: Path) -> float | None:
    """Real tokens a second over the log steps so far."""
    lines = list(read_jsonl(metrics, on_damage=lambda _: None))
    if not lines or not lines[-1].get("seconds"):
        return None
    return float(lines[-1]["tokens"] / lines[-1]["seconds"])
