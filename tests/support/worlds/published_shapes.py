"""Shapes of published models, for tests that need figures of their size and none of their weights."""

from typing import Any

QWEN_HALF_BILLION: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
"""The decoder of Qwen2.5-0.5B."""
SIGLIP_BASE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
"""The layers of SigLIP2-base."""
