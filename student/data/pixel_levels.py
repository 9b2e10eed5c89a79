"""Pixels of eight bits to the values that a model takes: a table of 256 values a channel, from the processor itself.

So images are kept, handed over by worker processes and copied to a GPU in a quarter of the bytes of float32. Does not
decide which images are kept that way (student/data/images.py).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import ProcessorMixin

PIXELS, MASK = "pixel_values", "pixel_attention_mask"
_PATCH_ROWS = 3
"""Axes of pixels that are rows of patches, channels last, padded to one number (Gemma 4, LFM2-VL)."""


def normalised(features: Mapping[str, torch.Tensor], levels: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Inputs of images with raw pixels looked up in `levels` [channels, 256], on the device where they are.

    Pixels that are not of eight bits stay as they are.
    """
    pixels = features.get(PIXELS)
    if pixels is None or pixels.dtype != torch.uint8:
        return dict(features)
    assert levels is not None
    levels, channels = levels.to(pixels.device), len(levels)
    if are_patches(features):
        columns = torch.arange(channels, device=pixels.device)
        values = levels.T[pixels.reshape(-1, channels).int(), columns].view(pixels.shape)
        return {**features, PIXELS: values if MASK not in features else values * features[MASK][..., None]}
    # (..., channels, height, width), or rows of patches as Qwen-VL wants them: (patches, channels x the rest).
    rest = pixels.shape[-2:].numel() if pixels.ndim > 2 else pixels.shape[1] // channels
    raw = pixels.reshape(-1, channels, rest)
    values = torch.empty(raw.shape, dtype=levels.dtype, device=pixels.device)
    for channel, table in enumerate(levels):
        codes = raw[:, channel].reshape(-1).int()
        values[:, channel] = table.index_select(0, codes).view(-1, rest)
    return {**features, PIXELS: values.view(pixels.shape)}


def are_patches(features: Mapping[str, Any]) -> bool:
    """Whether pixels are rows of patches, channels last."""
    return PIXELS in features and np.ndim(features[PIXELS]) == _PATCH_ROWS


def levels_of(processor: ProcessorMixin, dtype: torch.dtype) -> torch.Tensor | None:
    """What the image processor makes of each of the 256 values of each channel; None when it cannot be asked."""
    images = processor.image_processor
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8), (3, 1, 256))
    try:
        if hasattr(images, "rescale_and_normalize"):
            outputs = images.rescale_and_normalize(
                torch.from_numpy(ramp.copy())[None],
                images.do_rescale,
                images.rescale_factor,
                images.do_normalize,
                images.image_mean,
                images.image_std,
            )[0]
        else:
            outputs = images.rescale(ramp, images.rescale_factor) if images.do_rescale else ramp
            outputs = (
                images.normalize(outputs, images.image_mean, images.image_std) if images.do_normalize else outputs
            )
    except (AttributeError, TypeError, ValueError):
        return None
    return torch.as_tensor(np.asarray(outputs)).reshape(3, 256).to(dtype)
