"""The log-probabilities of a given text under an embedded model: one pass, and logits of the text's tokens only."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def token_ends(tokenizer: Any, prompt: str, text: str) -> np.ndarray:
    """The character of `text` after each of its tokens behind `prompt`, int32[tokens].

    A token that begins in the prompt and ends in the text belongs to the text.
    """
    offsets = tokenizer(prompt + text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    ends = [end - len(prompt) for _, end in offsets]
    first = next((index for index, end in enumerate(ends) if end > 0), len(ends))
    return np.array(ends[first:], np.int32)


@torch.inference_mode()
def log_probabilities(
    model: Any, inputs: Mapping[str, torch.Tensor], tokens: int, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Ids int32 and natural log-probabilities float32 of the last `tokens` tokens, both [tokens, 1 + top_k].

    The token itself comes first, then the likeliest ones. `inputs` holds one row without padding.
    """
    # Image tokens need no logits: of a large vocabulary they would take most of the memory.
    kept = {"logits_to_keep": tokens + 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    logits = model(**inputs, **kept, use_cache=False).logits[0, -tokens - 1 : -1]
    own = inputs["input_ids"][0, -tokens:, None] if tokens else inputs["input_ids"][0, :0, None]
    values = logits[: len(own)].float().log_softmax(dim=-1)
    best, ids = values.topk(top_k, dim=-1)
    return (
        torch.cat([own, ids], dim=1).cpu().numpy().astype(np.int32),
        torch.cat([values.gather(1, own), best], dim=1).cpu().numpy(),
    )
