"""One training step of a student without weights, on the meta device: tensors have sizes but no content.

What runs is the language model and the head, forward and backward, as a GPU would run them; attention is one
operation, like a flash kernel. Counting modes watch it: bytes alive (student/training/cost/memory.py), bytes moved
and FLOPs (student/training/cost/roofline.py).
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface

from student.loss.training_loss import cap_of, score
from student.models import freeze
from student.models.parts import Parts

DECODER, HEAD = "decoder", "head"
_ATTENTION = "outlined"
"""The name under which transformers knows the attention that is run here."""


def run(
    student: nn.Module,
    parts: Parts,
    *,
    tokens: int,
    labelled: int,
    checkpointing: bool,
    fused_head: bool = False,
    on_part: Callable[[str], None] = lambda _: None,
) -> None:
    """Forward and backward of one packed line; before each part, `on_part` gets the part's name."""
    plain: Any = freeze.plain_model(student)
    language, head = plain.get_submodule(parts.language), plain.get_output_embeddings()
    projector_trains = any(p.requires_grad for p in plain.get_submodule(parts.projector).parameters())
    ids = torch.zeros(1, tokens, dtype=torch.int64, device="meta")
    images = torch.zeros((), dtype=plain.dtype, device="meta", requires_grad=projector_trains or checkpointing)
    at = torch.zeros(labelled, dtype=torch.int64, device="meta")
    weights = torch.zeros(labelled, device="meta")
    # A mask that is not looked at keeps the models from looking at positions, which have no values here.
    mask = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device="meta")
    on_part(DECODER)
    # Image tokens take the places of placeholders in a copy, as masked_scatter makes it.
    states = plain.get_input_embeddings()(ids) + images
    # Gemma 4 brings every token to every layer by a second embedding of its own.
    by_layer = getattr(language, "hidden_size_per_layer_input", None)
    further = {"per_layer_inputs": language.get_per_layer_inputs(ids)} if by_layer else {}
    hidden = language(inputs_embeds=states, attention_mask=mask, use_cache=False, **further).last_hidden_state
    del states, further
    on_part(HEAD)
    hidden.register_hook(lambda _: on_part(DECODER))
    loss = score(head, hidden.flatten(0, 1)[at], at, weights, cap=cap_of(plain), fused=fused_head).loss
    del hidden
    loss.backward()  # type: ignore[no-untyped-call]


@contextmanager
def outlined(
    student: nn.Module, *, checkpointing: bool, gradients: bool = True, fused_layers: bool = False
) -> Iterator[None]:
    """The student as in the midst of training: attention outlined, gradients there, checkpointing on or off.

    `fused_layers`: norms and gated products are one kernel each way, as Liger's are.
    """
    AttentionInterface.register(_ATTENTION, _attend)
    plain: Any = freeze.plain_model(student)
    before = plain.config.get_text_config()._attn_implementation
    plain.set_attn_implementation({"text_config": _ATTENTION})
    student.train()
    for parameter in student.parameters():
        parameter.grad = torch.empty_like(parameter) if gradients and parameter.requires_grad else None
    replaced = [(module, way) for module in student.modules() if (way := _outline_of(module, fused_layers))]
    for module, way in replaced:
        module.forward = functools.partial(way, module)  # type: ignore[method-assign]
    with warnings.catch_warnings():
        # The names that transformers gives up in version 6; those that replace them are not in 5.21.
        warnings.simplefilter("ignore", FutureWarning)
        if checkpointing:
            plain.gradient_checkpointing_enable({"use_reentrant": False})
        try:
            yield
        finally:
            plain.gradient_checkpointing_disable()
            plain.set_attn_implementation({"text_config": before})
            for module, _ in replaced:
                del module.forward


def decoder_layers(student: nn.Module, parts: Parts) -> nn.ModuleList:
    """The layers of the language model."""
    language = freeze.plain_model(student).get_submodule(parts.language)
    return next(module for module in language.modules() if isinstance(module, nn.ModuleList))


@contextmanager
def first_layers(layers: nn.ModuleList, count: int) -> Iterator[None]:
    """Inside the block the student has so many layers; all operations of further ones are like the last one's."""
    left_out = list(layers[count:])
    del layers[count:]
    try:
        yield
    finally:
        layers.extend(left_out)


def _outline_of(module: nn.Module, fused_layers: bool) -> Callable[..., torch.Tensor] | None:
    """What takes the place of a module's forward, if anything does."""
    if isinstance(module, nn.Dropout):
        return _dropout
    if fused_layers and type(module).__name__.endswith("RMSNorm"):
        return _norm
    if fused_layers and all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj")):
        return _gated
    return None


def _norm(module: Any, states: torch.Tensor, *_: Any) -> torch.Tensor:
    result: torch.Tensor = _Norm.apply(states, getattr(module, "weight", None))  # type: ignore[no-untyped-call]
    return result


def _gated(module: Any, states: torch.Tensor) -> torch.Tensor:
    inner = _Gated.apply(module.gate_proj(states), module.up_proj(states))  # type: ignore[no-untyped-call]
    result: torch.Tensor = module.down_proj(inner)
    return result


class _Norm(torch.autograd.Function):
    """Reads and writes what a fused norm does, and computes nothing of it."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(states, weight)
        return states.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        return grads[0] + states, torch.zeros_like(weight) if ctx.needs_input_grad[1] else None


class _Gated(torch.autograd.Function):
    """As the function above, for an activation times a gate."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return gate + up

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gate, up = ctx.saved_tensors
        return grads[0] + gate, grads[0] + up


def _dropout(module: nn.Dropout, states: torch.Tensor) -> torch.Tensor:
    """Dropout as devices do it: what is kept for the way back is a mask of one byte a value."""
    return torch.native_dropout(states, module.p, True)[0]


def _attend(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **_: Any
) -> tuple[torch.Tensor, None]:
    """What a flash attention kernel takes, makes and keeps; queries and keys are laid out token by token before."""
    states = [part.transpose(1, 2).contiguous().transpose(1, 2) for part in (query, key, value)]
    result: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(*states)[0]
    return result.transpose(1, 2), None
