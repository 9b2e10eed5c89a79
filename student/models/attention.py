"""Attention for packed lines: every row attends to itself alone, and no mask is made.

On a CPU each row is one call of torch's causal attention; on a GPU torch's varlen kernel takes all rows at once.
Rows are separated by their bounds (`cu_seq_lens_q`), which the models hand down to every layer. Layers that carry a
state from token to token keep rows apart by the same bounds (student/models/recurrent.py).
"""

import inspect
from typing import Any

import torch
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from distill.errors import ModelError
from student.models import recurrent

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
    sliding_window: int | None = None,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """Query [1, heads, tokens, width], key and value with as many or fewer heads; output [1, tokens, heads, width].

    Without bounds it is plain causal attention of every line. `sliding_window`: how many tokens, itself included, a
    token of this layer sees.
    """
    options: dict[str, Any] = {"dropout": dropout, "scaling": scaling, "is_causal": True}
    if cu_seq_lens_q is None:
        mask = attention_mask if attention_mask is not None else _window(query, key, sliding_window)
        states, _ = sdpa_attention_forward(module, query, key, value, mask, **options)
        return states, None
    if takes_varlen(query) and not dropout:
        return _varlen(query, key, value, cu_seq_lens_q, max_length_q, scaling, sliding_window), None
    sizes = recurrent.row_sizes(cu_seq_lens_q)
    rows = zip(*(torch.split(part, sizes, 2) for part in (query, key, value)), strict=True)
    alone = [sdpa_attention_forward(module, q, k, v, _window(q, k, sliding_window), **options)[0] for q, k, v in rows]
    return torch.cat(alone, 1), None


def takes_varlen(query: torch.Tensor) -> bool:
    """Whether torch's varlen kernel works on such states."""
    return query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)


def _window(query: torch.Tensor, key: torch.Tensor, size: int | None) -> torch.Tensor | None:
    """What each token of one row sees in its window, bool[1, 1, tokens, tokens]; None: all before it."""
    tokens = query.shape[2]
    if size is None or tokens <= size or tokens != key.shape[2]:
        return None
    ones = torch.ones(1, 1, tokens, tokens, dtype=torch.bool, device=query.device)
    return ones.tril().triu(1 - size)


def _varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    longest: int,
    scaling: float | None,
    sliding_window: int | None = None,
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    flat = [part[0].transpose(0, 1).contiguous() for part in (query, key, value)]
    before = -1 if sliding_window is None else sliding_window - 1
    options: dict[str, Any] = {"scale": scaling, "window_size": (before, 0)}  # no later token
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
    return f'student.attention = {asked!r} cannot be used here: {why}; choose "auto", which takes the best one'


def use(model: PreTrainedModel, name: str) -> None:
    """Let the language model attend by `name`, and keep its rows apart in all layers; the tower keeps its own."""
    AttentionInterface.register(PACKED, attend)
    model.set_attn_implementation({"text_config": name})
    recurrent.separate_rows(model)


def use_fitting(model: PreTrainedModel, name: str, type_name: str | None) -> str:
    """Let the language model attend by `name`, or by masks if its rows cannot share a line; why they cannot.

    Attention without masks would drop what such a student needs masks for.
    """
    reason = why_not_packed(model.config, type_name, name)
    use(model, "sdpa" if reason and takes_bounds(name) else name)
    return reason


def of(model: PreTrainedModel) -> str:
    """How the language model attends now."""
    return str(model.config.get_text_config()._attn_implementation)


def takes_bounds(name: str) -> bool:
    """Whether an attention needs no mask, so that a line may hold any number of rows."""
    return name == PACKED or name.startswith("flash_attention")


def why_not_packed(config: PretrainedConfig, type_name: str | None, name: str) -> str:
    """Why rows of this student may not share a line under the attention `name`; empty if they may."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ("full_attention",))
    unknown = sorted(kinds - {"full_attention", "sliding_attention", *recurrent.MIXERS})
    if unknown:
        return f"nothing here keeps rows apart in layers of the kind {', '.join(unknown)}"
    if kinds & recurrent.MIXERS.keys() and not takes_bounds(name):
        return f"its layers of the kind {', '.join(sorted(kinds & recurrent.MIXERS.keys()))} need bounds, not masks"
    spatial = "mrope_section" in (getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {})
    # Gemma 4 takes the types of tokens in all sizes, and looks at them where image tokens see later ones.
    ignores_types = text.model_type.startswith("gemma4") and text.use_bidirectional_attention is None
    if type_name is None or spatial or ignores_types:
        return ""
    return "the tokens of an image see later ones of the same image"
