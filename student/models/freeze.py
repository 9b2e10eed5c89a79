"""Freezes everything that a stage does not train, by role, with guards; writes the table of parts.

Each tensor has one role: tower, projector or language (all other tensors). The tower is never trained: it stays in
eval mode and runs under no_grad even when gradient checkpointing asks every embedding for gradients, so no graph is
ever built through it. The same holds for a projector that is not trained. The checks are in
student/training/freeze_checks.py, adapters in student/models/lora.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from distill.errors import ModelError
from distill.recipe.sections.stages import Lora
from student.models.lora import ADAPTER_MARK, adapt, size
from student.models.parts import Parts

TOWER, PROJECTOR, LANGUAGE = "tower", "projector", "language"
ROLES = (TOWER, PROJECTOR, LANGUAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """One line of the table of parts. `dtype` lists every dtype found in the part."""

    part: str
    parameters: int
    trainable: int
    dtype: str
    bytes: int


def role_of(name: str, parts: Parts) -> str:
    """The role of a parameter or module; the longest part name decides, as a projector may lie inside the tower."""
    prefixes = {parts.tower: TOWER, parts.language: LANGUAGE, **dict.fromkeys(parts.projectors, PROJECTOR)}
    prefixes |= dict.fromkeys((*parts.unused, *parts.fixed), TOWER)
    name = plain_name(name)
    matching = [prefix for prefix in prefixes if name == prefix or name.startswith(f"{prefix}.")]
    return prefixes[max(matching, key=len)] if matching else LANGUAGE


def plain_name(name: str) -> str:
    """A name as it was before PEFT or torch.compile wrapped the model."""
    return name.replace("_orig_mod.", "").removeprefix("base_model.model.")


def plain_model(model: nn.Module) -> nn.Module:
    """The model that PEFT wrapped, or the model itself."""
    base: nn.Module = model.get_base_model() if isinstance(model, PeftModel) else model
    return base


def prepare(
    model: PreTrainedModel, parts: Parts, train: Sequence[str], lora: Lora | None
) -> PreTrainedModel | PeftModel:
    """Leave exactly the parameters of a stage trainable; with `lora`, the language model through adapters only.

    Adapters are float32, as optimizers need; every other weight keeps its dtype. Raises ModelError when nothing of
    an asked part can be trained, or when one tensor would be both trained and frozen.
    """
    full_roles = [role for role in train if not (role == LANGUAGE and lora)]
    _release(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(role_of(name, parts) in full_roles)
    _refuse_tensors_of_two_roles(model, parts, full_roles)
    guard(model, parts)
    prepared: PreTrainedModel | PeftModel = model
    if lora is not None:
        trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        prepared = adapt(model, lora, lora_targets(model, parts))
        for name in trainable:
            model.get_parameter(name).requires_grad_(True)
    for role in train:
        if not any(p.requires_grad for name, p in prepared.named_parameters() if role_of(name, parts) == role):
            raise ModelError(f"stage trains the {role}, but {type(model).__name__} has no parameters there")
    return prepared


def _refuse_tensors_of_two_roles(model: nn.Module, parts: Parts, full_roles: Sequence[str]) -> None:
    """Tied tensors are one: embedding and output head share a role, so they are trained or frozen together."""
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        other = names.setdefault(id(parameter), name)
        if (role_of(name, parts) in full_roles) != (role_of(other, parts) in full_roles):
            raise ModelError(f"{other} and {name} are one tensor: this stage would train it and freeze it at once")


def lora_targets(model: PreTrainedModel, parts: Parts) -> list[str]:
    """Full names of the linear layers inside the language model, its output head left out."""
    head = model.get_output_embeddings()
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and module is not head
        and name.startswith(f"{parts.language}.")
        and role_of(name, parts) == LANGUAGE
    ]
    if not names:
        raise ModelError(
            f"{type(model).__name__}: its language model ({parts.language}) has no linear layer for LoRA"
        )
    return names


def guard(model: nn.Module, parts: Parts) -> None:
    """Keep the tower, and a frozen projector, in eval mode and under no_grad in every call of the model."""
    for module in closed(model, parts):
        _guard(module)


def closed(model: nn.Module, parts: Parts) -> list[nn.Module]:
    """The modules through which no graph may pass, none inside another."""
    tower, projector = model.get_submodule(parts.tower), model.get_submodule(parts.projector)
    trained = any(parameter.requires_grad for parameter in projector.parameters())
    unused = [model.get_submodule(name) for name in parts.unused]
    if not parts.projector.startswith(f"{parts.tower}."):
        return [tower, *unused] if trained else [tower, projector, *unused]
    # The projector is a part of the tower's module (Qwen-VL's mergers): while it is trained, everything beside it.
    inside = [name.removeprefix(f"{parts.tower}.") for name in parts.projectors]
    return [*(_beside(tower, inside) if trained else [tower]), *unused]


def _beside(module: nn.Module, paths: Sequence[str]) -> Iterator[nn.Module]:
    """The largest submodules without any of the modules at `paths`."""
    for name, child in module.named_children():
        if not any(path == name or path.startswith(f"{name}.") for path in paths):
            yield child
        elif name not in paths:
            prefix = f"{name}."
            yield from _beside(child, [path.removeprefix(prefix) for path in paths if path.startswith(prefix)])


def _guard(module: nn.Module) -> None:
    if isinstance(module, nn.ModuleList):
        for child in module:
            _guard(child)
        return
    module.eval()
    # Bound to the module, not closures over it: a deep copy then guards itself.
    module._unguarded_forward = module.forward  # type: ignore[assignment]
    module.forward = MethodType(_forward_without_graph, module)  # type: ignore[method-assign]
    module.train = MethodType(_stay_in_eval, module)  # type: ignore[method-assign]


def _forward_without_graph(module: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return module._unguarded_forward(*args, **kwargs)


def _stay_in_eval(module: nn.Module, mode: bool = True) -> nn.Module:
    return module


def _release(model: nn.Module) -> None:
    """Undo the guards of an earlier stage on the same model in memory."""
    for module in model.modules():
        if "_unguarded_forward" in vars(module):
            module.forward = vars(module).pop("_unguarded_forward")
            del module.train


def table(model: nn.Module, parts: Parts) -> list[PartRow]:
    """Parameters, trainable parameters, dtypes and bytes of every part; adapters apart."""
    rows = []
    for part in (*ROLES, "adapters"):
        result = [
            parameter
            for name, parameter in model.named_parameters()
            if ("adapters" if ADAPTER_MARK in name else role_of(name, parts)) == part
        ]
        if not result:
            continue
        numbers, dtypes, sizes = zip(*map(size, result), strict=True)
        rows.append(
            PartRow(
                part=part,
                parameters=sum(numbers),
                trainable=sum(p.numel() for p in result if p.requires_grad),
                dtype=", ".join(sorted(set(dtypes))),
                bytes=sum(sizes),
            )
        )
    return rows
