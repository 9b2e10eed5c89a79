"""The shortest time of a training step on a card: the sum over its kernels, each bound by FLOPs or by memory.

Decoder and head are counted operation by operation (student/training/cost/step_trace.py), tower and projector from
their matrices and the usual pointwise operations of a block, the optimizer from the weights. A kernel takes
max(bytes / bandwidth, FLOPs / rate) by the maker's figures, and a gap to the next one. A real step is slower: kernels
reach a share of these figures, and the host may be too slow to start them. So this is a bound, with its bottleneck.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from distill.machine.hardware import Gpu
from student.models import freeze
from student.models.flops import matrices_of_sight, patch_values, tower_widths
from student.models.parts import Parts
from student.training.cost.step_trace import ATTENTION, MATRICES, POINTWISE, DecoderTrace, Kernel, PassWork
from student.training.optimizer.compensated_adamw import STATE_BYTES

GAP_S = 1e-6
"""Between two kernels of one stream."""
LAUNCH_S = 5e-6
"""Least time of the host to start a kernel, in seconds."""
USUAL_LAUNCH_S, USUAL_SHARE = 26e-6, 0.76
"""What steps needed on one machine with an H100: for each kernel so much time of the host, and its kernels reached
this share of the maker's rates (docs/log.md, an H100 at full width: six settings within 13 %)."""
LINK = 25e9
"""Bytes a second from the host to a card: PCIe 4 with 16 lanes."""
TOWER, PROJECTOR, OPTIMIZER, LOADING = "tower", "projector", "optimizer", "loading"
_TOKEN_BYTES = 40
"""Bytes of a token's ids, positions, labels and weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKernels:
    """The kernels that one step launches in one process."""

    kernels: Counter[Kernel]
    model_flops: float
    """FLOPs that learning needs (student/models/flops.py)."""
    hardware_flops: float
    """FLOPs with layers that gradient checkpointing computes twice."""

    def on(self, gpu: Gpu) -> "Bound":
        assert gpu.bf16 is not None
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        launches = 0
        for kernel, number in self.kernels.items():
            if kernel.part == LOADING:
                seconds[kernel.part, kernel.kind] += kernel.bytes / LINK
                continue
            each = max(kernel.bytes / gpu.bandwidth, kernel.flops / gpu.bf16) + GAP_S
            seconds[kernel.part, kernel.kind] += number * each
            launches += number
        return Bound(
            seconds=dict(seconds),
            launches=launches,
            rate=gpu.bf16,
            model_flops=self.model_flops,
            hardware_flops=self.hardware_flops,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least time of one step on one card."""

    seconds: dict[tuple[str, str], float]
    """Seconds of the device, by part and kind of kernel."""
    launches: int
    rate: float
    model_flops: float
    hardware_flops: float

    @property
    def device_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def host_s(self) -> float:
        return self.launches * LAUNCH_S

    @property
    def total_s(self) -> float:
        """Host and device work at the same time."""
        return max(self.device_s, self.host_s)

    @property
    def usual_s(self) -> float:
        """With the overheads of the one machine that was measured; its host and device hardly worked at once."""
        return self.device_s / USUAL_SHARE + self.launches * USUAL_LAUNCH_S

    @property
    def waits_for_host(self) -> bool:
        """Whether more than a third of the expected time is spent on kernel launches."""
        return self.launches * USUAL_LAUNCH_S > self.usual_s / 3

    @property
    def mfu(self) -> float:
        """The most that model FLOPs a second can be of the card's nominal rate."""
        return self.model_flops / self.total_s / self.rate

    @property
    def hfu(self) -> float:
        return self.hardware_flops / self.total_s / self.rate

    def largest(self) -> tuple[str, str, float]:
        """Part, kind and share of the time of the kernels that take the most of it."""
        (part, kind), seconds = max(self.seconds.items(), key=lambda item: item[1])
        return part, kind, seconds / self.device_s


COMPILED, FUSED = ("compile", "auto"), ("liger", "hub")
"""Kernels of a recipe under which neighbouring pointwise operations, or norms and gates, are one kernel."""


def step_kernels(
    student: Any, parts: Parts, work: PassWork, decoder: DecoderTrace, *, passes: int, kernels: str
) -> Counter[Kernel]:
    """The kernels of a step of `passes` passes, each over `work`, for a student prepared for its stage."""
    each = decoder.kernels(compiled=kernels in COMPILED)
    each.update(_sight(student, parts, work))
    plain: Any = freeze.plain_model(student)
    pixels = work.patches * patch_values(plain.get_submodule(parts.tower)) * plain.dtype.itemsize
    result = Counter({kernel: passes * number for kernel, number in each.items()})
    result[Kernel(LOADING, "copies", 0.0, passes * (pixels + work.tokens * _TOKEN_BYTES))] += 1
    result.update(_update(student, passes))
    return result


def _sight(student: Any, parts: Parts, work: PassWork) -> Iterator[Kernel]:
    """Tower, without gradients, and projector."""
    plain: Any = freeze.plain_model(student)
    sight = plain.config.vision_config
    size, width = plain.dtype.itemsize, tower_widths(sight)[0]
    if not work.patches:
        return
    for matrix in matrices_of_sight(student, parts):
        rows, outputs = work.patches / matrix.joined, matrix.module.weight.shape[0]
        numbers = rows * (outputs + matrix.weights / outputs) + matrix.weights
        part = TOWER if matrix.role == freeze.TOWER else PROJECTOR
        kernel = Kernel(part, MATRICES, 2 * matrix.weights * rows, numbers * size)
        yield from (kernel for _ in range(matrix.products))
    values = work.patches * size
    inner = getattr(sight, "intermediate_size", 4 * width)
    for _ in range(getattr(sight, "num_hidden_layers", None) or sight.depth):
        yield Kernel(TOWER, ATTENTION, 4 * width * work.squared_patches, 4 * width * values)
        # Two norms, two sums with the residual, the bend of the inner layer.
        for read_and_written in (2 * width, 3 * width, 2 * width, 2 * inner, 3 * width):
            yield Kernel(TOWER, POINTWISE, 0.0, read_and_written * values)
    # Patches are laid side by side, and their gradients back.
    yield from (Kernel(PROJECTOR, POINTWISE, 0.0, 2 * width * values) for _ in range(2))


def _update(student: nn.Module, passes: int) -> Iterator[Kernel]:
    """The kernels that add up gradients over passes, clip them and update the weights."""
    trained = [weight for weight in student.parameters() if weight.requires_grad]
    moved = clipped = 0
    for weight in trained:
        size, number = weight.element_size(), weight.numel()
        # Over several passes gradients of 16-bit weights add up in float32 (student/training/loop/halving.py).
        gradient = torch.float32.itemsize if passes > 1 else size
        state = 8 if weight.dtype == torch.float32 else STATE_BYTES
        moved += number * (2 * (size + state) + gradient)
        clipped += number * gradient
        if passes > 1:
            if gradient != size:
                yield Kernel(OPTIMIZER, POINTWISE, 0.0, number * (size + gradient))
            yield from (Kernel(OPTIMIZER, POINTWISE, 0.0, number * (size + 2 * gradient)) for _ in range(passes - 1))
    yield Kernel(OPTIMIZER, POINTWISE, 0.0, clipped)
    yield Kernel(OPTIMIZER, POINTWISE, 0.0, 2 * clipped)
    yield Kernel(OPTIMIZER, POINTWISE, 0.0, moved)
