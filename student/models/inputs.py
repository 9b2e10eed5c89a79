"""Tokens for the end of a turn, padding and images, and the name of a model's input for token types."""

import inspect
from typing import Any


def end_ids(model: Any) -> list[int]:
    """Every token that ends a turn of this model."""
    ids = getattr(model.generation_config, "eos_token_id", None)
    return [] if ids is None else [ids] if isinstance(ids, int) else [int(value) for value in ids]


def pad_id(processor: Any) -> int:
    """The token that lines are padded with."""
    pad = processor.tokenizer.pad_token_id
    return int(pad if pad is not None else processor.tokenizer.eos_token_id)


def image_id(model: Any) -> int:
    """The token that the model replaces by an image; Gemma 3's processor asks for an image by another token."""
    return int(model.config.image_token_id)


def type_name(model: Any) -> str | None:
    """The input that marks image tokens, for models that take one."""
    names = inspect.signature(type(model).forward).parameters
    return next((name for name in ("mm_token_type_ids", "token_type_ids") if name in names), None)
