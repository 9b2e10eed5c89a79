"""The decoder of a SiQ-VL student as tensors and metadata of llama.cpp: Qwen2, or Llama.

llama.cpp turns pairs of neighbouring channels in Llama's attention, where transformers turns channel i with channel
i + half. The rows of Llama's query and key projections are therefore put in another order; Qwen2's are not. Does not
cover other decoders: llama.cpp's own converter reads those.
"""

from typing import Any

from transformers import PreTrainedModel

from distill.errors import ModelError
from student.export.gguf.vision import Tensors

_DECODERS = ("qwen2", "llama")
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def decoder_tensors(model: PreTrainedModel) -> Tensors:
    """All tensors of the model file in float32, by llama.cpp's names."""
    config = model.config.get_text_config()
    weights = {name: value.detach().float() for name, value in model.state_dict().items()}
    source = "model.text_model"
    result = {
        "token_embd.weight": weights[f"{source}.embed_tokens.weight"],
        "output_norm.weight": weights[f"{source}.norm.weight"],
    }
    if not model.config.tie_word_embeddings:
        result["output.weight"] = weights["lm_head.weight"]
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for theirs, ours in _LAYER.items():
            for kind in ("weight", "bias"):
                value = weights.get(f"{source}.layers.{layer}.{theirs}.{kind}")
                if value is None:
                    continue
                if config.model_type == "llama" and ours in heads:
                    value = _neighbouring(value, heads[ours])
                result[f"blk.{layer}.{ours}.{kind}"] = value
    return result


def _neighbouring(rows: Any, heads: int) -> Any:
    """Rows of a projection so that the channels which turn together lie side by side."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def decoder_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Metadata of the model file. Raises ModelError for a decoder that is not read here."""
    config = model.config.get_text_config()
    name = config.model_type
    if name not in _DECODERS:
        raise ModelError(f"a {name} decoder is not written as GGUF; {' and '.join(_DECODERS)} are")
    rope = config.rope_parameters
    if rope.get("rope_type", "default") != "default":
        raise ModelError(f"rotary embeddings of type {rope['rope_type']!r} are not written as GGUF")
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        raise ModelError("a decoder with sliding-window attention is not written as GGUF")
    if config.hidden_act != "silu":
        raise ModelError(f"llama.cpp's {name} has no activation {config.hidden_act!r}; it has silu")
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        f"{name}.context_length": config.max_position_embeddings,
        f"{name}.embedding_length": config.hidden_size,
        f"{name}.block_count": config.num_hidden_layers,
        f"{name}.feed_forward_length": config.intermediate_size,
        f"{name}.attention.head_count": config.num_attention_heads,
        f"{name}.attention.head_count_kv": config.num_key_value_heads,
        f"{name}.attention.key_length": head,
        f"{name}.attention.value_length": head,
        f"{name}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{name}.rope.freq_base": float(rope["rope_theta"]),
        f"{name}.rope.dimension_count": head,
        f"{name}.vocab_size": config.vocab_size,
    }
