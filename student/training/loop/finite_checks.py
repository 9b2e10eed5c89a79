"""Ends a stage when its loss or its weights are not finite; the checkpoint before that stays."""

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from distill.errors import DistillError
from distill.recipe.sections.stages import Stage
from student.distributed import processes
from student.training.loop.metrics_log import StepLog


def require_finite_loss(report: StepLog, stage: Stage) -> None:
    """Raise DistillError where the loss since the last log is no number. To be called before a save."""
    if not math.isfinite(report.loss):
        raise _diverged(
            f"the loss is {report.loss} since step {report.step} of {report.steps} or shortly before", stage
        )


def require_finite_weights(named: Iterable[tuple[str, nn.Parameter]], step: int, stage: Stage) -> None:
    """Raise DistillError where a weight is not finite: the last update may do that after a finite loss.

    To be called by all processes, each of which may hold a share.
    """
    held = ((name, value.to_local() if isinstance(value, DTensor) else value) for name, value in named)
    damaged = next((name for name, value in held if not bool(torch.isfinite(value.detach()).all())), None)
    names = [name for name in processes.gather(damaged) if name is not None]
    if names:
        raise _diverged(f"after step {step} the weights {names[0]} contain values that are not numbers", stage)


def _diverged(problem: str, stage: Stage) -> DistillError:
    return DistillError(
        f"{problem}; training cannot recover from it. Set a lower learning_rate (now {stage.learning_rate:g}) or "
        f"max_grad_norm (now {stage.max_grad_norm:g})",
        f"begin the stage again: `distill train --stage {stage.name} --fresh`",
    )
