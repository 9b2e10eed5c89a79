"""Rows of a packed line in layers that carry a state from token to token: gated delta rule, short convolution.

Causal attention separates rows by masks or bounds. These layers read no masks and no bounds, and would carry the end
of one row into the next without an error. So each row passes such a layer alone, unless kernels with bounds are
installed. The decoder is asked for the bounds: a decoder layer need not pass them on (LFM2's doesn't in transformers
5.17). Does not cover attention (student/models/attention.py).
"""

from importlib.util import find_spec
from types import MethodType
from typing import Any

import torch
from transformers import PreTrainedModel

MIXERS = {"linear_attention": "linear_attn", "conv": "conv"}
"""Kinds of such layers, as `layer_types` of a configuration names them, and their module inside a decoder layer."""
_KERNELS = {"linear_attention": ("fla", "causal_conv1d"), "conv": ("causal_conv1d",)}
"""Packages whose kernels take the bounds of rows (`cu_seqlens`) and the row of each token (`seq_idx`)."""
BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
"""Inputs that hold where the rows of a packed line begin and end."""
OF_LINES = (*BOUNDS, "max_length_q", "max_length_k")
_SIZES = "_row_sizes"
"""Attribute of bounds that holds the same as numbers of the host."""


class _Line:
    """The bounds of the rows of the line that the decoder works on; None where a line is a row."""

    bounds: torch.Tensor | None = None

    def note(self, _decoder: Any, _args: Any, options: dict[str, Any]) -> None:
        self.bounds = options.get("cu_seq_lens_q")


def separate_rows(model: PreTrainedModel) -> None:
    """Make such layers of the language model start from an empty state at each row of a packed line."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    if not set(kinds) & MIXERS.keys():
        return
    decoder, line = model.get_decoder(), _Line()
    mixers = {
        layer.get_submodule(MIXERS[kind]): all(map(find_spec, _KERNELS[kind]))
        for kind, layer in zip(kinds, decoder.layers, strict=True)
        if kind in MIXERS
    }
    new = {mixer: fused for mixer, fused in mixers.items() if "_forward_of_row" not in vars(mixer)}
    if new:
        decoder.register_forward_pre_hook(line.note, with_kwargs=True)
    for mixer, fused in new.items():
        # Bound to the module, not closures over it: a deep copy then separates by itself.
        mixer._fused_rows, mixer._line = fused, line
        mixer._forward_of_row = mixer.forward
        mixer.forward = MethodType(_forward_by_rows, mixer)


def _forward_by_rows(self: Any, hidden_states: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """States [lines, tokens, width] of rows, one after the other in a line."""
    bounds = self._line.bounds
    if bounds is None:
        whole: torch.Tensor = self._forward_of_row(hidden_states, *args, **options)
        return whole
    if self._fused_rows and hidden_states.is_cuda:
        sizes = bounds.diff()
        numbers, tokens = torch.arange(len(sizes), device=sizes.device), hidden_states.shape[1]
        # With the length of the result given, it does not wait for the device.
        row_of_token = torch.repeat_interleave(numbers, sizes, output_size=tokens)
        fused = options | {"seq_idx": row_of_token[None].to(torch.int32)}
        at_once: torch.Tensor = self._forward_of_row(hidden_states, *args, **fused)
        return at_once
    alone = {name: value for name, value in options.items() if name not in OF_LINES}
    rows = torch.split(hidden_states, row_sizes(bounds), 1)
    return torch.cat([self._forward_of_row(row, *args, **alone) for row in rows], 1)


def row_sizes(bounds: torch.Tensor) -> list[int]:
    """Tokens of each row. Reading them waits for the device, so that is done once for all layers."""
    known: list[int] | None = getattr(bounds, _SIZES, None)
    if known is None:
        known = bounds.diff().tolist()
        setattr(bounds, _SIZES, known)
    return known


def with_row_sizes(bounds: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Bounds on a device, which are not read back from there."""
    sizes = row_sizes(bounds)
    moved = bounds.to(device, non_blocking=True)
    setattr(moved, _SIZES, sizes)
    return moved
