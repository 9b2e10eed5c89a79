"""Attention for packed lines: every row attends to itself alone, and no mask is made.

On a CPU each row is one call of torch's causal attention; on a GPU torch's varlen kernel takes all rows at once.
Rows are separated by their bounds (`cu_seq_lens_q`), which the models hand down to every layer.
"""

import inspect
from typing import Any

import torch
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from distill.errors import ModelError

PACKED = "packed_rows"
"""The name under which transformers knows this attention."""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int = 0,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """Query [1, heads, tokens, width], key and value with as many or fewer heads; output [1, tokens, heads, width].

    Without bounds it is plain causal attention of every line.
    """
    options: dict[str, Any] = {"dropout": dropout, "scaling": scaling}
    if cu_seq_lens_q is None:
        states, _ = sdpa_attention_forward(module, query, key, value, attention_mask, is_causal=True, **options)
        return states, None
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and not dropout:
        return _varlen(query, key, value, cu_seq_lens_q, max_length_q, scaling), None
    sizes = cu_seq_lens_q.diff().tolist()
    rows = zip(*(torch.split(part, sizes, 2) for part in (query, key, value)), strict=True)
    return torch.cat(
        [sdpa_attention_forward(module, *row, None, is_causal=True, **options)[0] for row in rows], 1
    ), None


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    longest: int,
    scaling: float | None,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    flat = [part[0].transpose(0, 1).contiguous() for part in (query, key, value)]
    options: dict[str, Any] = {"scale": scaling, "window_size": (-1, 0)}  # no later token
    if "enable_gqa" in inspect.signature(varlen_attn).parameters:
        # From torch 2.12 on it has to be asked for; before, the kernel takes fewer keys than queries as they are.
        options["enable_gqa"] = query.shape[1] != key.shape[1]
    result: Any = varlen_attn(flat[0], flat[1], flat[2], bounds, bounds, longest, longest, **options)
    states: torch.Tensor = result[None]
    return states


def choose(asked: str, device: torch.device, dtype: torch.dtype) -> str:
    """The attention that a recipe's `student.attention` means on this machine, in the names of transformers."""
    if asked == "packed":
        return PACKED
    if asked != "auto":
        return asked
    if device.type == "cpu":
        return PACKED
    if dtype not in (torch.float16, torch.bfloat16):
        return "sdpa"
    if is_flash_attn_2_available():
        return "flash_attention_2"
    # torch's varlen kernel is flash attention too; it needs an Ampere card or a later one.
    return PACKED if torch.cuda.get_device_capability(device) >= (8, 0) else "sdpa"


def require(asked: str) -> None:
    """Raise ModelError, before anything is loaded, where this machine lacks the attention that a recipe names."""
    if asked == "flex_attention" and not torch.cuda.is_available():
        raise ModelError(_lacking(asked, "torch trains with it on a GPU only"))
    result = {"flash_attention_2": is_flash_attn_2_available, "flash_attention_3": is_flash_attn_3_available}
    if asked in result and not result[asked]():
        raise ModelError(_lacking(asked, "its package is not installed, or there is no GPU for it"))


def _lacking(asked: str, why: str) -> str:
    return f'student.attention = {asked!r} cannot be used here: {why}; choose "auto", which takes what there is'


def use(model: PreTrainedModel, name: str) -> None:
    """Let the language model attend by `name`; the tower keeps its own."""
    AttentionInterface.register(PACKED, attend)
    model.set_attn_implementation({"text_config": name})


def of(model: PreTrainedModel) -> str:
    """How the language model attends now."""
    return str(model.config.get_text_config()._attn_implementation)


def takes_bounds(name: str) -> bool:
    """Whether an attention needs no mask, so that a line may hold any number of rows."""
    return name == PACKED or name.startswith("flash_attention")


def can_pack(config: PretrainedConfig, type_name: str | None) -> bool:
    """Whether rows may share a line: causal attention, and no other input that says which tokens are an image."""
    text = config.get_text_config()
    spatial = "mrope_section" in (getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {})
    slides = any(kind != "full_attention" for kind in getattr(text, "layer_types", None) or ())
    return not slides and (type_name is None or spatial)
