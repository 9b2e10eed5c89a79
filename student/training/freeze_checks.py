"""Checks that a stage trains exactly the parts of the recipe: graphs, gradients, optimizer state, dtypes, bytes.

Every failure names the tensor or module. Does not freeze anything itself (student/models/freeze.py).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from distill.errors import DistillError
from student.distributed.fsdp import gather_tensor
from student.models.freeze import LANGUAGE, TOWER, closed, plain_model, plain_name, role_of
from student.models.lora import ADAPTER_MARK, is_quantized
from student.models.parts import Parts


class TowerWatch:
    """Remembers which modules of the tower, and of a frozen projector, had an output that was part of a graph.

    A module inside may give a leaf that asks for a gradient (gradient checkpointing makes embeddings do so); a graph
    begins where something is computed from it. What leaves the tower may not ask for one at all.
    """

    def __init__(self, model: nn.Module, parts: Parts) -> None:
        self.tracked: list[str] = []
        self.calls = 0
        plain = plain_model(model)
        names = {id(module): name for name, module in plain.named_modules()}
        self._handles = []
        for boundary in closed(plain, parts):
            for module in boundary.modules():
                # A list of modules is never called itself: its members are the boundary.
                outermost = module is boundary or (isinstance(boundary, nn.ModuleList) and module in list(boundary))
                hook = self._watch(names[id(module)], outermost)
                self._handles.append(module.register_forward_hook(hook))

    def _watch(self, name: str, outermost: bool) -> Any:
        def check_output(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self.calls += outermost
            result = any(
                tensor.grad_fn is not None or (outermost and tensor.requires_grad) for tensor in _tensors(output)
            )
            if result and name not in self.tracked:
                self.tracked.append(name)

        return check_output

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


def check_frozen(
    model: nn.Module,
    parts: Parts,
    train: Sequence[str],
    *,
    dtype: torch.dtype,
    tower_watch: TowerWatch | None,
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Raise DistillError naming the first tensor that breaks the freeze. To be called between backward and step."""
    owned = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]} if optimizer else None
    adapted = any(ADAPTER_MARK in name for name, _ in model.named_parameters())
    some_gradient = False
    for name, parameter in model.named_parameters():
        wrong = (
            _wrongly_trained(name, parts, train, adapted)
            if parameter.requires_grad
            else _wrongly_frozen(parameter, owned, dtype)
        )
        wrong = wrong or _misplaced(name, parameter, parts)
        if parameter.requires_grad and owned is not None and id(parameter) not in owned:
            wrong = wrong or "is to be trained but the optimizer doesn't hold it"
        if wrong:
            raise DistillError(f"freeze broken: {name} {wrong}")
        some_gradient = some_gradient or (parameter.requires_grad and parameter.grad is not None)
    for name, buffer in model.named_buffers():
        if buffer.requires_grad:
            raise DistillError(f"freeze broken: {name} is a buffer but asks for a gradient")
    _check_head(model)
    _check_modes(model, parts)
    if not some_gradient:
        raise DistillError("nothing is trained: no trainable tensor has a gradient after the first step")
    if tower_watch is not None and tower_watch.tracked:
        raise DistillError(f"freeze broken: the output of the frozen {tower_watch.tracked[0]} requires a gradient")


def _wrongly_trained(name: str, parts: Parts, train: Sequence[str], adapted: bool) -> str | None:
    role = role_of(name, parts)
    if role == TOWER or role not in train:
        return f"belongs to the {role}, which this stage does not train"
    if role == LANGUAGE and adapted and ADAPTER_MARK not in name:
        return "is trained in full, but this stage trains the language model through adapters"
    return None


def _wrongly_frozen(parameter: nn.Parameter, owned: set[int] | None, dtype: torch.dtype) -> str | None:
    if parameter.grad is not None:
        return "is frozen but has a gradient"
    if owned is not None and id(parameter) in owned:
        return "is frozen but the optimizer holds it"
    # 4-bit weights are bytes; where they may lie is another matter.
    if parameter.dtype != dtype and not is_quantized(parameter):
        return f"is frozen in {parameter.dtype}, the recipe asks for {dtype}"
    return None


def _misplaced(name: str, parameter: nn.Parameter, parts: Parts) -> str | None:
    """Adapters and 4-bit weights lie in the language model alone."""
    inside = plain_name(name).startswith(f"{parts.language}.") and role_of(name, parts) == LANGUAGE
    if ADAPTER_MARK in name:
        if not inside:
            return "is an adapter outside the language model"
        if parameter.dtype != torch.float32:
            return f"is an adapter in {parameter.dtype}, not torch.float32"
    return "is in 4 bits outside the language model" if is_quantized(parameter) and not inside else None


def _check_head(model: nn.Module) -> None:
    plain = plain_model(model)
    head = plain.get_output_embeddings() if isinstance(plain, PreTrainedModel) else None
    for name, parameter in head.named_parameters() if head is not None else ():
        if ADAPTER_MARK in name or is_quantized(parameter):
            raise DistillError(f"freeze broken: the output head has an adapter or lies in 4 bits ({name})")


def _check_modes(model: nn.Module, parts: Parts) -> None:
    plain = plain_model(model)
    names = {id(module): name for name, module in plain.named_modules()}
    for boundary in closed(plain, parts):
        for module in boundary.modules():
            if module.training and not isinstance(module, nn.ModuleList):
                raise DistillError(f"freeze broken: {names[id(module)]} is frozen but in training mode")


def check_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Raise DistillError naming the first frozen tensor the optimizer keeps state of. To be called after a step."""
    kept = {id(tensor) for tensor in optimizer.state}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad and id(parameter) in kept:
            raise DistillError(f"freeze broken: {name} is frozen but the optimizer keeps state of it")


def frozen_digests(model: nn.Module, parts: Parts) -> dict[str, str]:
    """Name to SHA-256 of every frozen tensor that a checkpoint would hold.

    Buffers (running statistics) and the scales of 4-bit weights count as frozen where their role is not trained in
    full. What a model computes again, such as tables of rotations, is not covered.
    """
    # With keep_vars parameters come as themselves and say whether they are trained.
    tensors = {name: value for name, value in model.state_dict(keep_vars=True).items() if torch.is_tensor(value)}
    trained = [name for name, value in tensors.items() if value.requires_grad and ADAPTER_MARK not in name]
    trained_roles = {role_of(name, parts) for name in trained}
    return {
        name: _sha256(value)
        for name, value in sorted(tensors.items())
        if not value.requires_grad and (isinstance(value, nn.Parameter) or role_of(name, parts) not in trained_roles)
    }


def by_role(digests: Mapping[str, str], parts: Parts) -> dict[str, str]:
    """One digest a role over the names and digests of its frozen tensors."""
    roles: dict[str, Any] = {}
    for name, digest in sorted(digests.items()):
        roles.setdefault(role_of(name, parts), hashlib.sha256()).update(f"{name}\0{digest}\0".encode())
    return {role: digest.hexdigest() for role, digest in roles.items()}


def _sha256(tensor: torch.Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
    digest.update(gather_tensor(tensor.detach()).cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def require_equal(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise a DistillError that names the first frozen tensor whose bytes changed during the stage."""
    for name, digest in before.items():
        if after.get(name) != digest:
            raise DistillError(f"freeze broken: {name} is frozen but changed during the stage")
