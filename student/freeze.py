"""What a stage trains, and proof that it trains nothing else.

Parameters belong to a role: tower, projector or language (everything that is neither of the first two). The tower
is never trained: it stays in eval mode and runs under no_grad even when gradient checkpointing asks every
embedding for gradients, so no graph is ever built through it.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from distill.errors import DistillError, ModelError
from distill.recipe import Lora
from student.model import Parts

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
    prefixes = {parts.tower: TOWER, parts.projector: PROJECTOR, parts.language: LANGUAGE}
    name = _plain(name)
    matching = [prefix for prefix in prefixes if name == prefix or name.startswith(f"{prefix}.")]
    return prefixes[max(matching, key=len)] if matching else LANGUAGE


def _plain(name: str) -> str:
    """A name as it was before PEFT or torch.compile wrapped the model."""
    return name.replace("_orig_mod.", "").removeprefix("base_model.model.")


def prepare(
    model: PreTrainedModel, parts: Parts, train: Sequence[str], lora: Lora | None
) -> PreTrainedModel | PeftModel:
    """Leave exactly the parameters of a stage trainable; with `lora`, the language model through adapters only.

    Adapters are float32, as optimizers need; every other weight keeps its dtype. Raises ModelError when nothing of
    an asked part can be trained.
    """
    whole = [role for role in train if not (role == LANGUAGE and lora)]
    # Tied embeddings are one parameter and therefore have one role.
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(role_of(name, parts) in whole)
    guard_tower(model, parts)
    prepared: PreTrainedModel | PeftModel = model
    if lora is not None:
        trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        prepared = get_peft_model(
            model,
            LoraConfig(
                r=lora.rank,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules=lora_targets(model, parts),
            ),
        )
        for name in trainable:
            model.get_parameter(name).requires_grad_(True)
    for role in train:
        if not any(p.requires_grad for name, p in prepared.named_parameters() if role_of(name, parts) == role):
            raise ModelError(f"stage trains the {role}, but {type(model).__name__} has no parameters there")
    return prepared


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


def guard_tower(model: nn.Module, parts: Parts) -> None:
    """Keep the tower in eval mode and under no_grad, whatever is later asked of the model."""
    tower = model.get_submodule(parts.tower)
    inside = parts.projector.removeprefix(f"{parts.tower}.")
    if inside == parts.projector:
        _guard(tower)
        return
    # The projector is a part of the tower's module (Qwen-VL's merger): guard everything beside it.
    for _, child in _beside(tower, inside):
        _guard(child)
        child.requires_grad_(False)
    if not any(p.requires_grad for p in model.get_submodule(parts.projector).parameters()):
        _guard(tower)


def _beside(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The largest submodules that don't contain the one at `path`."""
    head, _, rest = path.partition(".")
    for name, child in module.named_children():
        if name != head:
            yield name, child
        elif rest:
            yield from _beside(child, rest)


def _guard(module: nn.Module) -> None:
    if isinstance(module, nn.ModuleList):
        for child in module:
            _guard(child)
        return
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return inner(*args, **kwargs)

    def stay_in_eval(mode: bool = True) -> nn.Module:
        return module

    module.eval()
    module.forward = forward  # type: ignore[method-assign]
    module.train = stay_in_eval  # type: ignore[method-assign, assignment]


class TowerWatch:
    """Remembers whether any output of the guarded tower was part of a graph."""

    def __init__(self, model: nn.Module, parts: Parts) -> None:
        self.tracked = False
        self.calls = 0
        inside = parts.projector.removeprefix(f"{parts.tower}.")
        plain = model.get_base_model() if isinstance(model, PeftModel) else model
        watched = plain.get_submodule(parts.tower)
        modules = [watched] if inside == parts.projector else [child for _, child in _beside(watched, inside)]
        self._handles = [module.register_forward_hook(self._look) for module in modules]

    def _look(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        self.calls += 1
        self.tracked = self.tracked or any(tensor.requires_grad for tensor in _tensors(output))

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def prove(
    model: nn.Module,
    parts: Parts,
    train: Sequence[str],
    *,
    dtype: torch.dtype,
    watch: TowerWatch | None,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Raise DistillError naming the first tensor that breaks the freeze. To be called between backward and step."""
    owned = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]} if optimizer else set()
    some_gradient = False
    for name, parameter in model.named_parameters():
        role = role_of(name, parts)
        if parameter.requires_grad:
            if role == TOWER or role not in train:
                raise DistillError(f"freeze broken: {name} belongs to the {role}, which this stage does not train")
            some_gradient = some_gradient or parameter.grad is not None
            continue
        if parameter.grad is not None:
            raise DistillError(f"freeze broken: {name} is frozen but has a gradient")
        if id(parameter) in owned:
            raise DistillError(f"freeze broken: {name} is frozen but the optimizer holds it")
        if parameter.is_floating_point() and parameter.dtype != dtype:
            raise DistillError(f"freeze broken: {name} is frozen in {parameter.dtype}, the recipe asks for {dtype}")
    if not some_gradient:
        raise DistillError("nothing is trained: no trainable tensor has a gradient after the first step")
    if watch is not None and watch.tracked:
        raise DistillError(f"freeze broken: the output of the vision tower ({parts.tower}) requires a gradient")


def table(model: nn.Module, parts: Parts) -> list[PartRow]:
    """Parameters, trainable parameters, dtypes and bytes of every part; adapters apart."""
    rows = []
    for part in (*ROLES, "adapters"):
        found = [
            parameter
            for name, parameter in model.named_parameters()
            if ("adapters" if "lora_" in name else role_of(name, parts)) == part
        ]
        if not found:
            continue
        rows.append(
            PartRow(
                part=part,
                parameters=sum(p.numel() for p in found),
                trainable=sum(p.numel() for p in found if p.requires_grad),
                dtype=", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in found})),
                bytes=sum(p.numel() * p.element_size() for p in found),
            )
        )
    return rows


def table_values(rows: Sequence[PartRow]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def frozen_sha256(model: nn.Module, parts: Parts) -> dict[str, str]:
    """One digest a role over names, dtypes and bytes of its frozen tensors."""
    digests: dict[str, Any] = {}
    for name, parameter in sorted(model.named_parameters(), key=lambda item: item[0]):
        if parameter.requires_grad:
            continue
        digest = digests.setdefault(role_of(name, parts), hashlib.sha256())
        digest.update(f"{name}\0{parameter.dtype}\0{tuple(parameter.shape)}\0".encode())
        digest.update(_bytes(parameter))
    return {role: digest.hexdigest() for role, digest in digests.items()}


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def require_equal(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise DistillError when a frozen part is not what it was before the stage."""
    for role, digest in before.items():
        if after.get(role) != digest:
            raise DistillError(f"freeze broken: frozen tensors of the {role} changed during the stage")
