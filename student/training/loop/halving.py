"""Out of memory: repeats the step in more passes of fewer rows.

The rows of a step and the weights of its tokens stay the same. So the gradients equal the gradients of the planned
step, except for the order of sums and the random numbers of dropout. Gradients and metrics of the failed passes are
discarded. Several processes cannot do this one by one, because they wait for each other's gradients: the stage stops
and says which settings to change.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from distill.errors import DistillError, first_line
from distill.machine import gpu_memory
from student.distributed import processes
from student.training.step_dataset import MICRO_BATCHES, PARTS, STEP, StepDataset

_REMEDY = (
    "set gradient_checkpointing = true, or a smaller micro_batch_tokens or max_length, or stages.lora; "
    "`distill plan` says what fits"
)


class Halving:
    """The passes of a stage's steps, made smaller when they do not fit."""

    def __init__(self, steps: StepDataset, on_notice: Callable[[str], None]) -> None:
        self._steps, self._on_notice = steps, on_notice

    def run(
        self, item: dict[str, Any], passes: Callable[[list[dict[str, Any]]], torch.Tensor], undo: Callable[[], None]
    ) -> torch.Tensor:
        """What `passes` gives for the micro-batches of a step, which are halved until they fit.

        `undo` takes back what an unfinished call of `passes` did.
        """
        while True:
            if item[PARTS] < self._steps.parts:
                # Made before memory ran out, perhaps by a worker process.
                item = self._steps.made(item[STEP])
            try:
                return passes(item[MICRO_BATCHES])
            except torch.OutOfMemoryError as error:
                reason = first_line(error)
            # Only here is the error gone, and with it the tensors of the pass that failed.
            undo()
            self._halve(item, reason)

    def _halve(self, item: dict[str, Any], reason: str) -> None:
        step = item[STEP] + 1
        if processes.count() > 1:
            raise DistillError(
                f"step {step} does not fit the memory of process {processes.rank()} ({reason}); {_REMEDY}"
            )
        self._steps.halve()
        if len(self._steps.made(item[STEP])[MICRO_BATCHES]) == len(item[MICRO_BATCHES]):
            raise DistillError(
                f"step {step} does not fit the memory, even with one row in each pass ({reason}); {_REMEDY}"
            )
        gpu_memory.free_unused()
        self._on_notice(f"out of memory at step {step}: from here on each micro-batch is {self._steps.parts} passes")


def sum_in_float32(model: nn.Module, passes: int) -> None:
    """Let gradients of 16-bit weights add up in float32 over the passes of a step, in one process.

    In bfloat16, with 8 bits, what a later pass adds is rounded to a 256th of the sum so far. A step of one pass has
    gradients of its weights' dtype, also after a step of several: a resumed stage would round others otherwise.
    """
    if processes.count() > 1:
        return
    for weight in model.parameters():
        if weight.requires_grad and weight.dtype in (torch.bfloat16, torch.float16):
            weight.grad_dtype = torch.float32 if passes > 1 else weight.dtype  # type: ignore[attr-defined]
