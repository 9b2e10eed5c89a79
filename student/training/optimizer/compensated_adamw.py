"""AdamW for weights of few bits: keeps the rounding error of each update and adds it to the next one.

A bfloat16 weight has 8 bits. At a learning rate of 2e-5 most updates of a weight are smaller than half of its last
bit, so plain AdamW on such weights changes hardly any of them. Here both moments are float32, and every weight
remembers its rounding error (Kahan summation, as in Zamirai et al. 2020, arXiv 2010.06192): 10 bytes a weight beside
its 2. For weights of float32 torch's own AdamW is used (student/training/loop/trainer.py).
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._triton import has_triton

_ALIGNED = 16
STATE_BYTES = 10
"""A trained weight's, in bfloat16."""


class CompensatedAdamW(torch.optim.Optimizer):
    """Decoupled weight decay (Loshchilov and Hutter 2019), arithmetic in float32."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._fused: dict[Any, Any] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        for number, group in enumerate(self.param_groups):
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                self._count(weight)
            if _can_fuse(weights) and len({int(self.state[weight]["step"]) for weight in weights}) == 1:
                self._update_together(number, weights, group)
            else:
                for weight in weights:
                    self._update(weight, group)

    def _count(self, weight: torch.Tensor) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(weight, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(weight, dtype=torch.float32)
            state["lost"] = torch.zeros_like(weight)
        state["step"] += 1

    def _update_together(self, number: int, weights: list[torch.Tensor], group: dict[str, Any]) -> None:
        from student.training.optimizer.update_kernel import FusedUpdate

        states = [self.state[weight] for weight in weights]
        key = number, tuple(state["lost"].data_ptr() for state in states)
        if key not in self._fused:
            self._fused = {other: update for other, update in self._fused.items() if other[0] != number}
            self._fused[key] = FusedUpdate(weights, states)
        self._fused[key](
            lr=group["lr"],
            betas=group["betas"],
            eps=group["eps"],
            decay=group["weight_decay"],
            step=int(states[0]["step"]),
        )

    def _update(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        state, (first, second) = self.state[weight], group["betas"]
        steps = int(state["step"])
        assert weight.grad is not None
        gradient = weight.grad.float()
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (state["exp_avg_sq"] / (1 - second**steps)).sqrt_().add_(group["eps"])
        updated = weight.to(torch.float32, copy=True)
        updated.mul_(1 - group["lr"] * group["weight_decay"])
        updated.add_(state["lost"]).addcdiv_(state["exp_avg"], scale, value=-group["lr"] / (1 - first**steps))
        weight.copy_(updated)
        state["lost"].copy_(updated.sub_(weight))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like torch's method, but states keep their own dtypes; torch would cast them to the dtype of the
        weights."""
        super().load_state_dict(state_dict)
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for number, values in state_dict["state"].items():
            for name, value in values.items():
                device = "cpu" if name == "step" else weights[number].device
                self.state[weights[number]][name] = value.to(device)


def _can_fuse(weights: list[Any]) -> bool:
    """Whether one kernel can update these weights: whole tensors of one dtype on a GPU, and Triton is there."""
    return (
        bool(weights)
        and weights[0].is_cuda
        and has_triton()
        and all(
            type(weight.data) is torch.Tensor and weight.is_contiguous() and weight.data_ptr() % _ALIGNED == 0
            for weight in weights
        )
        and len({(weight.device, weight.dtype, weight.grad.dtype) for weight in weights}) == 1
    )
