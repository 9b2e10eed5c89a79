"""A model's language layers spread over the processes of a run (FSDP2), and how whole tensors are gathered from them.

Every process keeps a share of weights, gradients and optimizer state. A layer is gathered when it is needed. The
parts outside the layers (embeddings, head, projector) stay gathered from forward to backward, so a loss may use the
head's weights directly. The frozen tower is not sharded, because it has no gradients and no optimizer state.
Checkpoints hold whole tensors, so another number of processes can read them. Does not start processes
(student/distributed/processes.py).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils import _pytree as pytree
from transformers.modeling_layers import GradientCheckpointingLayer

from student.loss.training_loss import Scored
from student.models.freeze import TOWER, plain_model, role_of
from student.models.parts import Parts

# FSDP hangs its hooks on the tensors that it finds in what a module gives back.
pytree.register_dataclass(Scored)


class Sharded(nn.Module):
    """A sharded model with the interface that trainers know from DistributedDataParallel."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep gradients whole and to this process until a pass outside of the block."""
        assert isinstance(self.module, FSDPModule)
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)


def shard(model: nn.Module, parts: Parts, device: torch.device, processes: int) -> None:
    """Spread a prepared model over all processes, in place; every process has to hold the same weights."""
    model.to(device)
    mesh = init_device_mesh(device.type, (processes,))
    # Sums over many processes in bfloat16 would lose what each adds.
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for module in plain_model(model).get_submodule(parts.language).modules():
        if isinstance(module, GradientCheckpointingLayer):
            fully_shard(module, mesh=mesh, mp_policy=policy)
    kept = {parameter for name, parameter in model.named_parameters() if role_of(name, parts) == TOWER}
    fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=kept)


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, FSDPModule)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """What lies outside the layers is whole inside the block, for passes that don't begin at the outermost module.

    Every process of a sharded model has to come here, and to make the same passes; any other model is left alone.
    """
    if not isinstance(model, FSDPModule):
        yield
        return
    model.unshard()
    try:
        yield
    finally:
        model.reshard()


def gather_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor itself, or put together from its shards, for which every process has to ask at once."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fill(parameter: torch.Tensor, value: torch.Tensor) -> None:
    """Write the whole `value` into a parameter, of which this process may hold a share."""
    with torch.no_grad():
        parameter.copy_(_like(value, parameter))


def gather_optimizer_state(
    optimizer: torch.optim.Optimizer, copy: Callable[[tuple[int, str], torch.Tensor], Any]
) -> dict[str, Any]:
    """An optimizer's state, of which `copy` gets one tensor or share after the other with its number and name."""
    result = optimizer.state_dict()
    state = {
        number: {
            name: copy((number, name), value) if torch.is_tensor(value) else value for name, value in values.items()
        }
        for number, values in result["state"].items()
    }
    return {**result, "state": state}


def fill_state(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Give an optimizer the state that `gather_optimizer_state` gave, of which this process may keep a share."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {
            name: _like(value, parameters[number])
            if torch.is_tensor(value) and value.shape == parameters[number].shape
            else value
            for name, value in values.items()
        }
        for number, values in saved["state"].items()
    }
    optimizer.load_state_dict({**saved, "state": state})


def _like(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    if not isinstance(parameter, DTensor):
        return value
    return distribute_tensor(
        value.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )
