"""A head that scores labelled positions only.

It computes the gradients of the loss in its forward pass, chunk by chunk. So only one chunk of logits and
probabilities exists at a time, and nothing is computed twice (as in Liger's fused linear cross-entropy, arXiv
2410.10989). TRL's own head projects every position on a CPU and the labelled ones twice on a GPU.
"""

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._triton import has_triton
from transformers import PreTrainedModel

from distill.errors import ModelError

_LOGITS = 1 << 26
"""Largest number of entries of a tensor over the vocabulary: 256 MiB of float32."""
_FUSED_LOGITS = 1 << 28
"""As _LOGITS, where one kernel works on the logits in place: 512 MiB of bfloat16, the only such tensor."""

Extra = Callable[[torch.Tensor, slice], torch.Tensor]
"""A further loss of a slice of the scored positions from their float32 logits, already weighted: a scalar."""

Joint = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""A further loss of all scored positions together: nats, float32[positions], to its value and its slope at each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The head's results at its positions; only `loss` carries gradients."""

    loss: torch.Tensor
    nll: torch.Tensor
    """Nats, float32[positions]."""
    right: torch.Tensor
    """Whether the label was the likeliest token, bool[positions]."""


class _Head(torch.autograd.Function):
    """Linear layer, softmax and weighted negative log-likelihood at once."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        weights: torch.Tensor,
        extra: Extra | None,
        cap: float | None,
        fused: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        # Summed in float32: chunks are many, and each adds little.
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and needs_bias else None
        loss = hidden.new_zeros((), dtype=torch.float32)
        nll = hidden.new_empty(len(labels), dtype=torch.float32)
        right = torch.empty(len(labels), dtype=torch.bool, device=hidden.device)
        size = max(1, (_FUSED_LOGITS if fused else _LOGITS) // len(weight))
        for start in range(0, len(labels), size):
            part = slice(start, start + size)
            logits = nn.functional.linear(hidden[part], weight, bias)
            if fused:
                nll[part], right[part] = _slopes_in_place(logits, labels[part], weights[part])
                slope = logits
            else:
                capped = soft_cap(logits.float(), cap)
                bend = None if cap is None else 1 - (capped / cap) ** 2
                slope, nll[part], right[part], added = _slopes(capped, labels[part], weights[part], extra, part)
                slope = slope if bend is None else slope.mul_(bend)
                slope, loss = slope.to(hidden.dtype), loss + added
            if grad_hidden is not None:
                torch.mm(slope, weight, out=grad_hidden[part])
            if grad_weight is not None:
                _add_product(grad_weight, slope.T, hidden[part])
            if grad_bias is not None:
                grad_bias += slope.sum(0)
        ctx.save_for_backward(
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None or bias is None else grad_bias.to(bias.dtype),
        )
        ctx.mark_non_differentiable(nll, right)
        return loss + (nll * weights).sum(), nll, right

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        by = grads[0]
        return (*(None if saved is None else saved * by.to(saved.dtype) for saved in ctx.saved_tensors), *(None,) * 5)


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add left @ right to `total` in place; on a GPU in the product's own kernel, so `total` moves once."""
    if total.is_cuda and left.dtype in (torch.float16, torch.bfloat16):
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right


def soft_cap(logits: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Logits as Gemma bends them into (-cap, cap); themselves without a cap."""
    return logits if cap is None else torch.tanh(logits / cap) * cap


def cap_of(model: PreTrainedModel) -> float | None:
    """The bound of a model's logits; None without one."""
    return getattr(model.config.get_text_config(), "final_logit_softcapping", None)


def capped_head(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """A model's output layer, followed by what bends its logits."""
    head, cap = model.get_output_embeddings(), cap_of(model)
    return head if cap is None else lambda hidden: soft_cap(head(hidden), cap)


@torch.library.custom_op("distill::slopes_", mutates_args=("logits",))
def _slopes_in_place(
    logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`student.loss.loss_kernel.slopes_`, as one operation for what watches a step without a GPU."""
    from student.loss.loss_kernel import slopes_

    return slopes_(logits, labels, weights)


@_slopes_in_place.register_fake
def _(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return weights.new_empty(len(labels)), weights.new_empty(len(labels), dtype=torch.bool)


def _slopes(
    logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor, extra: Extra | None, part: slice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | float]:
    """From float32 logits [n, words]: slopes of the loss, nll, whether the label is the likeliest, `extra`."""
    right = logits.argmax(1) == labels
    grad: torch.Tensor | None = None
    added: torch.Tensor | float = 0.0
    if extra is not None:
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            further = extra(leaf, part)
            (grad,) = torch.autograd.grad(further, leaf)
        added = further.detach()
    log_probs = torch.log_softmax(logits, 1)
    own = labels[:, None]
    nll = -log_probs.gather(1, own)[:, 0]
    slope = log_probs.exp_()
    slope.scatter_add_(1, own, torch.full_like(own, -1, dtype=slope.dtype))
    slope *= weights[:, None]
    if grad is not None:
        slope += grad
    return slope, nll, right, added


def _whole(head: nn.Module) -> list[Any]:
    """Weight and bias of a head, gathered where processes share them."""
    return [value.full_tensor() if isinstance(value, DTensor) else value for value in (head.weight, head.bias)]


def score(
    head: nn.Module,
    hidden: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    extra: Extra | None = None,
    cap: float | None = None,
    *,
    fused: bool | None = None,
) -> Scored:
    """Score `labels` int64[n] under the states [n, width] that predict them; loss = weights . nll + extra.

    `cap`: the bound of the logits, of a student that has one. `fused`: one kernel for each chunk of logits, without
    support for `extra` and `cap`; None: use it on a GPU with Triton.
    """
    if fused is None:
        fused = hidden.is_cuda and has_triton()
    fused = fused and extra is None and cap is None
    loss, nll, right = _Head.apply(  # type: ignore[no-untyped-call]
        hidden, *_whole(head), labels, weights, extra, cap, fused
    )
    return Scored(loss=loss, nll=nll, right=right)


@torch.no_grad()
def likelihoods(head: nn.Module, hidden: torch.Tensor, labels: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Nats of `labels` int64[n] under the states [n, width] that predict them, float32[n], without gradients."""
    weight, bias = _whole(head)
    size = max(1, _LOGITS // len(weight))
    parts = [
        nn.functional.cross_entropy(
            soft_cap(nn.functional.linear(states, weight, bias).float(), cap), own, reduction="none"
        )
        for states, own in zip(torch.split(hidden, size), torch.split(labels, size), strict=True)
    ]
    return torch.cat(parts)


def score_jointly(
    head: nn.Module,
    hidden: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    joint: Joint,
    cap: float | None = None,
) -> Scored:
    """As `score`, with `joint` added to the loss.

    The head processes the states twice, because the slope of a position is known only when all likelihoods are known.
    With the slopes as weights, the gradients equal the gradients of `joint`; a constant then corrects the value.
    """
    nll = likelihoods(head, hidden, labels, cap)
    value, slopes = joint(nll)
    scored = score(head, hidden, labels, weights + slopes, cap=cap)
    return replace(scored, loss=scored.loss + (value - slopes @ nll))


def attach(model: PreTrainedModel) -> None:
    """Make `model(**inputs, at=, labels=, weights=)` score `labels` at the flat positions `at`.

    With `joint` its loss is added; with `weights=None` the result is what `likelihoods` gives.

    Without `at` the forward is the model's own. To be called before PEFT or a parallel wrapper takes the model;
    both go on working because the pass stays one call of the model.
    """
    own = model.forward

    @functools.wraps(type(model).forward)
    def forward(self: PreTrainedModel, *args: Any, at: torch.Tensor | None = None, **inputs: Any) -> Any:
        if at is None:
            return own(*args, **inputs)
        labels, weights = inputs.pop("labels"), inputs.pop("weights")
        extra, joint = inputs.pop("extra", None), inputs.pop("joint", None)
        # With a cache the models skip the detection of packed lines, and rows leak into each other.
        states = self.base_model(*args, **inputs, use_cache=False).last_hidden_state
        head, hidden, cap = self.get_output_embeddings(), states.flatten(0, 1)[at], cap_of(self)
        if weights is None:
            return likelihoods(head, hidden, labels, cap)
        if joint is not None:
            return score_jointly(head, hidden, labels, weights, joint, cap)
        return score(head, hidden, labels, weights, extra, cap)

    model.forward = types.MethodType(forward, model)  # type: ignore[method-assign]


@torch.inference_mode()
def require_plain_head(model: PreTrainedModel, ids: torch.Tensor, types_name: str | None) -> None:
    """Raise ModelError for a student whose logits of `ids` int64[1, n] are more than its head of its states.

    A bound that bends the logits (Gemma) is known here; anything else is not.
    """
    inputs = {"input_ids": ids}
    if types_name is not None:
        inputs[types_name] = torch.zeros_like(ids)
    full = model(**inputs, use_cache=False).logits.float()
    ours = capped_head(model)(model.base_model(**inputs, use_cache=False).last_hidden_state).float()
    if full.shape != ours.shape or not torch.allclose(full, ours, rtol=1e-2, atol=1e-2 * float(full.abs().max())):
        raise ModelError(
            f"{type(model).__name__} changes its logits after the output layer; the toolkit cannot train or measure "
            "such a student"
        )
