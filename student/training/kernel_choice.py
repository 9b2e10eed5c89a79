"""`kernels = "auto"`: three steps with each kind of layers are timed before a stage begins; the fastest is kept.

They are the first steps of the stage, forward and backward. Weights, gradients and random states are afterwards as
they were, so a stage with the kind that was kept learns the same. What an exchange between processes costs is not in
the times. student/training/stage_run.py writes the choice down.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.utils import is_liger_kernel_available

from distill.errors import DistillError, ModelError, first_line
from distill.recipe.sections.stages import Stage
from distill.word_tables import counted
from student.distributed import processes
from student.models import kernels
from student.models.freeze import plain_model
from student.models.parts import Parts
from student.training.step_dataset import MICRO_BATCHES, PAIR, TEACHER, StepDataset

KINDS = ("none", "compile", "liger")
_STEPS = 3


def kept(begun: Mapping[str, Any], student: nn.Module, model: nn.Module, parts: Parts, *made: Any) -> dict[str, Any]:
    """Give the student the kind that `choose` found, or that a stage under way has `begun` with; the choice.

    The main process measures, and all processes use its result.
    """
    choice: dict[str, Any] | None = None
    if processes.is_main():
        choice = begun.get("kernels") or choose(student, model, parts, *made)
    shared: dict[str, Any] = processes.share(choice)
    kernels.apply(shared["kernels"], model, parts)
    return shared


def choose(
    student: nn.Module, model: nn.Module, parts: Parts, steps: StepDataset, stage: Stage, device: torch.device
) -> dict[str, Any]:
    """The selected kind with the reason, the seconds of three steps by kind, the seconds of their first pass, and the
    kinds left out.

    `model`: the student without the wrapper of its adapters. Raises what making the rows of a step raises.
    """
    items = [steps.made(number) for number in range(min(_STEPS, len(steps.plan)))]
    batches = [micro_batch for item in items for micro_batch in item[MICRO_BATCHES]]
    student.to(device).train()
    plain: Any = plain_model(student)
    if stage.gradient_checkpointing is True:
        plain.gradient_checkpointing_enable({"use_reentrant": False})
    seconds: dict[str, float] = {}
    first: dict[str, float] = {}
    left_out: dict[str, str] = {}
    full = False
    for kind in KINDS:
        try:
            if kind == "liger":
                _require_liger(device)
            with kernels.tried(kind, model, parts), torch.random.fork_rng():
                first[kind], seconds[kind] = (
                    timed(lambda: _passes(student, steps, batches, device), device) for _ in range(2)
                )
        except Exception as error:
            # A kind that fails here, for want of a compiler or of memory, is no choice; the reason is kept.
            left_out[kind] = first_line(error)
            full = full or (kind == "none" and isinstance(error, torch.OutOfMemoryError))
        finally:
            student.zero_grad(set_to_none=True)
    if stage.gradient_checkpointing is True:
        plain.gradient_checkpointing_disable()
    if not seconds and full:
        # Training makes such steps in smaller passes, or says what to change (student/training/loop/halving.py).
        why = f"none: the steps do not fit the memory at once; {_joined(left_out)}"
        return {"kernels": "none", "why": why, "seconds": {}, "first_seconds": {}, "left_out": left_out}
    if not seconds:
        raise DistillError(f"no kind of kernels can run a step: {_joined(left_out)}")
    best = min(seconds, key=lambda kind: seconds[kind])
    others = {kind: f"{seconds[kind]:.3g} s" for kind in seconds if kind != best}
    why = f"{best}: {counted(len(items), 'step')} in {seconds[best]:.3g} s; {_joined(others | left_out)}"
    return {"kernels": best, "why": why, "seconds": seconds, "first_seconds": first, "left_out": left_out}


def timed(call: Callable[[], None], device: torch.device) -> float:
    """Seconds of a call, including its queued work on the device."""
    begun = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def _passes(student: nn.Module, steps: StepDataset, batches: list[dict[str, Any]], device: torch.device) -> None:
    for batch in batches:
        inputs = {
            name: value
            for name, value in steps.on_device(batch, device).items()
            if name != "cells" and not name.startswith((TEACHER, PAIR))
        }
        loss = student(**inputs, extra=None).loss
        if loss.requires_grad:
            loss.backward()


def _require_liger(device: torch.device) -> None:
    if device.type != "cuda":
        raise ModelError("needs a GPU")
    if not is_liger_kernel_available():
        raise ModelError("the package liger-kernel is not installed")


def _joined(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{kind}: {text}" for kind, text in texts.items())
