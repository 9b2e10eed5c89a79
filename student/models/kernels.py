"""Faster layers for the language model, one kind for a stage: compiled, from Liger, or from the hub.

They do not stack: torch.compile around Liger's kernels has been seen to read memory that is not its own. The loss has
a fused head of its own (student/loss/training_loss.py), so no kind replaces that. Does not choose attention
(student/models/attention.py).
"""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import is_kernels_available, is_liger_kernel_available

from distill.errors import ModelError
from distill.recipe.sections.stages import Stage
from student.models.parts import Parts


def apply(kind: str, model: Any, parts: Parts) -> None:
    """Give a student the kernels that its stage asks for, ModelError where there are none."""
    language = model.get_submodule(parts.language)
    if kind == "compile":
        compile_layers(language)
    elif kind == "liger":
        _liger(language)
    elif kind == "hub":
        _hub(model)


@contextmanager
def tried(kind: str, model: nn.Module, parts: Parts) -> Iterator[None]:
    """The kernels of a kind inside the block alone, also for a model that PEFT has taken."""
    before = [(module, dict(vars(module))) for module in model.get_submodule(parts.language).modules()]
    try:
        apply(kind, model, parts)
        yield
    finally:
        for module, names in before:
            vars(module).clear()
            vars(module).update(names)
        if kind == "compile":
            # What was compiled for the trial would count against the limit of compilations.
            torch.compiler.reset()


def require(stage: Stage) -> None:
    """Raise ModelError, before anything is loaded, where the package of a stage's kernels is missing."""
    if stage.kernels == "liger" and not is_liger_kernel_available():
        raise ModelError(_missing(stage, "liger-kernel", "it needs a GPU with Triton"))
    if stage.kernels == "hub" and not is_kernels_available():
        raise ModelError(_missing(stage, "kernels", "it fetches kernels from the hub"))


def _missing(stage: Stage, package: str, note: str) -> str:
    return (
        f"stages.{stage.name}.kernels = {stage.kernels!r}: the package {package} is not installed ({note}); "
        f'install it with `pip install {package}`, or choose "none" or "compile"'
    )


def compile_layers(language: nn.Module) -> int:
    """Compile the layers of the language model one by one; how many.

    All layers share one compilation, and the joining of images and text, which breaks graphs, stays outside.
    """
    layers = [module for module in language.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.compile(dynamic=True)
    return len(layers)


def _liger(language: nn.Module) -> None:
    """RMSNorm and SwiGLU of this model; the loss stays ours.

    Liger also replaces classes and functions of transformers' module, for every model made later. They are put back:
    on a model without weights (student/training/cost/memory.py) Liger's kernels read memory that is not there.
    """
    kind = language.config.model_type  # type: ignore[union-attr]
    try:
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

        if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
            raise ModelError(f'Liger has no kernels for a {kind} decoder; choose kernels = "compile" or "none"')
        patch = MODEL_TYPE_TO_APPLY_LIGER_FN[kind]
        known = inspect.signature(patch).parameters
        names = ("rope", "cross_entropy", "fused_linear_cross_entropy")
        with _restored(sys.modules[type(language).__module__]):
            patch(model=language, **{name: False for name in names if name in known})
    except ImportError as error:
        raise ModelError(
            f"this release of Liger does not work with a {kind} decoder of the installed transformers ({error}); "
            'choose kernels = "compile" or "none"'
        ) from error


@contextmanager
def _restored(module: ModuleType) -> Iterator[None]:
    """Restores the names of a module after the block."""
    before = dict(vars(module))
    try:
        yield
    finally:
        vars(module).update(before)


def _hub(model: PreTrainedModel) -> None:
    try:
        model.set_use_kernels(True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f'kernels = "hub": {str(error).splitlines()[0]}; choose "none" or "compile"') from error
