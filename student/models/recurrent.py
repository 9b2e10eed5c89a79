"""Rows of a packed line in layers that carry a state from token to token: gated delta rule, short convolution.

Causal attention is kept apart by masks or bounds; these layers read neither, and would carry the end of one row into
the next without an error. Each row goes through such a layer alone, unless kernels are there that take bounds. Does
not cover attention (student/models/attention.py).
"""

from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from transformers import PreTrainedModel

from student.models.row_bounds import row_sizes

MIXERS = {"linear_attention": "linear_attn", "conv": "conv"}
"""Kinds of such layers, as `layer_types` of a configuration names them, and their module inside a decoder layer."""
_KERNELS = {"linear_attention": ("fla", "causal_conv1d"), "conv": ("causal_conv1d",)}
"""Packages whose kernels take the bounds of rows (`cu_seqlens`) and the row of each token (`seq_idx`)."""
_BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")


def separate_rows(model: PreTrainedModel) -> None:
    """Make such layers of the language model start from an empty state at each row of a packed line."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    if not set(kinds) & MIXERS.keys():
        return
    for kind, layer in zip(kinds, model.get_decoder().layers, strict=True):
        if kind in MIXERS:
            _separate(layer.get_submodule(MIXERS[kind]), fused=all(map(find_spec, _KERNELS[kind])))


def _separate(mixer: Any, *, fused: bool) -> None:
    if "_forward_of_row" in vars(mixer):
        return
    # Bound to the module, not closures over it: a deep copy then separates by itself.
    mixer._fused_rows = fused
    mixer._forward_of_row = mixer.forward
    mixer.forward = MethodType(_forward_by_rows, mixer)


def _forward_by_rows(self: Any, hidden_states: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """States [lines, tokens, width]; `cu_seq_lens_q` has the bounds of the rows of a line."""
    bounds = options.get("cu_seq_lens_q")
    if bounds is None:
        whole: torch.Tensor = self._forward_of_row(hidden_states, *args, **options)
        return whole
    if self._fused_rows and hidden_states.is_cuda:
        sizes = bounds.diff()
        numbers, tokens = torch.arange(len(sizes), device=sizes.device), hidden_states.shape[1]
        # With the length of the result given, it does not wait for the device.
        row_of_token = torch.repeat_interleave(numbers, sizes, output_size=tokens)
        at_once: torch.Tensor = self._forward_of_row(
            hidden_states, *args, **options, seq_idx=row_of_token[None].to(torch.int32)
        )
        return at_once
    alone = {name: value for name, value in options.items() if name not in _BOUNDS}
    rows = torch.split(hidden_states, row_sizes(bounds), 1)
    return torch.cat([self._forward_of_row(row, *args, **alone) for row in rows], 1)
