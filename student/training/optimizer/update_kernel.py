"""The update of student/training/optimizer/compensated_adamw.py as one kernel for all weights.

Each weight passes the memory once, with its state.

As a chain of torch's operations the same update moves four times as many bytes, in thousands of launches. Needs a GPU
and Triton.
"""

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl

_BLOCK = 2048
ALIGNED = 16
"""Bytes that every tensor begins at a multiple of, so that loads are wide."""


@triton.jit  # type: ignore[untyped-decorator]
def _update_kernel(  # type: ignore[no-untyped-def]
    addresses,
    tensors,
    starts,
    sizes,
    keep,
    rate,
    one_less_first,
    second_decay,
    one_less_second,
    eps,
    second_correction,
    COUNT: tl.constexpr,
    WEIGHT: tl.constexpr,
    GRADIENT: tl.constexpr,
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    tensor = tl.load(tensors + block)
    offsets = tl.multiple_of(tl.load(starts + block), BLOCK) + tl.arange(0, BLOCK)
    inside = offsets < tl.load(sizes + tensor)
    addresses += tensor
    weight_at = tl.multiple_of(tl.load(addresses), ALIGN).to(tl.pointer_type(WEIGHT)) + offsets
    gradient_at = tl.multiple_of(tl.load(addresses + COUNT), ALIGN).to(tl.pointer_type(GRADIENT)) + offsets
    first_at = tl.multiple_of(tl.load(addresses + 2 * COUNT), ALIGN).to(tl.pointer_type(tl.float32)) + offsets
    second_at = tl.multiple_of(tl.load(addresses + 3 * COUNT), ALIGN).to(tl.pointer_type(tl.float32)) + offsets
    lost_at = tl.multiple_of(tl.load(addresses + 4 * COUNT), ALIGN).to(tl.pointer_type(WEIGHT)) + offsets
    gradient = tl.load(gradient_at, mask=inside).to(tl.float32)
    first = tl.load(first_at, mask=inside)
    second = tl.load(second_at, mask=inside)
    first += one_less_first * (gradient - first)
    second = second * second_decay + one_less_second * gradient * gradient
    updated = tl.load(weight_at, mask=inside).to(tl.float32) * keep
    updated += tl.load(lost_at, mask=inside).to(tl.float32)
    updated -= rate * first / (tl.sqrt(second * second_correction) + eps)
    rounded = updated.to(WEIGHT)
    tl.store(first_at, first, mask=inside)
    tl.store(second_at, second, mask=inside)
    tl.store(weight_at, rounded, mask=inside)
    tl.store(lost_at, (updated - rounded.to(tl.float32)).to(WEIGHT), mask=inside)


class FusedUpdate:
    """One update in place of contiguous weights of one dtype on one GPU."""

    def __init__(self, weights: Sequence[torch.Tensor], states: Sequence[Mapping[str, torch.Tensor]]) -> None:
        """`states` as CompensatedAdamW keeps them: exp_avg, exp_avg_sq, lost."""
        self._weights, self._device = list(weights), weights[0].device
        self._block = _BLOCK
        counts = [weight.numel() for weight in weights]
        blocks = [(number, start) for number, count in enumerate(counts) for start in range(0, count, self._block)]
        self._tensors = torch.tensor([number for number, _ in blocks], dtype=torch.int32, device=self._device)
        self._starts = torch.tensor([start for _, start in blocks], dtype=torch.int64, device=self._device)
        self._sizes = torch.tensor(counts, dtype=torch.int64, device=self._device)
        self._own = [weight.data_ptr() for weight in weights]
        self._kept = [[state[name].data_ptr() for state in states] for name in ("exp_avg", "exp_avg_sq", "lost")]

    def __call__(self, *, lr: float, betas: tuple[float, float], eps: float, decay: float, step: int) -> None:
        """Update number `step`, counted from 1, with the gradients that the weights have now."""
        gradients = [weight.grad.contiguous() for weight in self._weights if weight.grad is not None]
        addresses = torch.tensor(
            [self._own, [gradient.data_ptr() for gradient in gradients], *self._kept], dtype=torch.int64
        ).to(self._device)
        with torch.cuda.device(self._device):
            _update_kernel[(len(self._tensors),)](
                addresses,
                self._tensors,
                self._starts,
                self._sizes,
                1 - lr * decay,
                lr / (1 - betas[0] ** step),
                1 - betas[0],
                betas[1],
                1 - betas[1],
                eps,
                1 / (1 - betas[1] ** step),
                COUNT=len(self._weights),
                WEIGHT=_TYPES[self._weights[0].dtype],
                GRADIENT=_TYPES[gradients[0].dtype],
                ALIGN=ALIGNED,
                BLOCK=self._block,
                num_warps=8,
            )


_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
