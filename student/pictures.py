"""Model inputs of images: computed by the student's processor, kept while they fit, joined to batches.

Does not cover text (student/encode.py) or which images share a batch (student/collate.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import ProcessorMixin

from distill import images as image_files
from distill.errors import ModelError
from distill.types import ImageRef

_MASK = "pixel_attention_mask"
_TEXT_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"))

Features = Mapping[str, torch.Tensor]


class ImageStore:
    """Model inputs of single images, computed by the processor and kept while they fit into `max_bytes`.

    Floating-point features lie in the student's dtype. What does not fit is decoded anew at every use.
    """

    def __init__(self, processor: ProcessorMixin, dtype: torch.dtype, *, max_bytes: int = 1 << 30) -> None:
        self._processor = processor
        self._dtype = dtype
        self._room = max_bytes
        self._kept: dict[str, Features] = {}
        self._expansions: dict[tuple[int, int], tuple[int, ...]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._names: frozenset[str] = frozenset()
        self.full = False
        """Whether some features have to be computed at every use."""

    def features(self, ref: ImageRef, max_pixels: int) -> Features:
        """Inputs of one image, text inputs left out. Raises ImageError."""
        found = self._kept.get(ref.sha256)
        return found if found is not None else self._make(ref, image_files.load(ref, max_pixels=max_pixels))

    def expansion(self, ref: ImageRef, max_pixels: int) -> tuple[int, ...]:
        """The token ids that stand for one image. They depend on its size only."""
        if ref.sha256 not in self._sizes:
            image = image_files.load(ref, max_pixels=max_pixels)
            self._sizes[ref.sha256] = image.size
            if image.size not in self._expansions:
                self._expansions[image.size] = self._expand(image)
            if not self.full:
                self._make(ref, image)
        return self._expansions[self._sizes[ref.sha256]]

    def _expand(self, image: Any) -> tuple[int, ...]:
        made = self._processor(text=image_token(self._processor), images=[image], add_special_tokens=False)
        # Image processors also return what only the processor itself needs (InternVL's num_patches).
        self._names = frozenset(made) - _TEXT_INPUTS
        return tuple(int(value) for value in np.asarray(made["input_ids"]).reshape(-1))

    def _make(self, ref: ImageRef, image: Any) -> Features:
        made = self._processor.image_processor(images=[image], return_tensors="pt")
        # Idefics-like processors put an axis of conversations before the axis of tiles; one conversation a tile means
        # the same to the model and lets any number of images be joined.
        tiled = _MASK in made
        features = {}
        for name, value in made.items():
            if name not in self._names or not isinstance(value, torch.Tensor):
                continue
            value = value.transpose(0, 1) if tiled else value
            if name == _MASK and bool(value.all()):
                continue
            features[name] = value.to(self._dtype) if value.is_floating_point() else value
        size = sum(value.numel() * value.element_size() for value in features.values())
        if size <= self._room:
            self._room -= size
            self._kept[ref.sha256] = features
        else:
            self.full = True
        return features


def join_features(parts: Sequence[Features]) -> dict[str, torch.Tensor]:
    """Inputs of several images as one batch; smaller tiles are padded with zeros and masked."""
    if not parts:
        return {}
    sides = {part["pixel_values"].shape[1:] for part in parts if "pixel_values" in part}
    tiles_differ = len(sides) > 1 and all(len(side) == 4 and side[0] == 1 for side in sides)
    if any(_MASK in part for part in parts) or (tiles_differ and "image_sizes" not in parts[0]):
        parts = [{_MASK: _mask_of(part), **part} for part in parts]
    return {name: _concatenate([part[name] for part in parts]) for name in parts[0]}


def _mask_of(part: Features) -> torch.Tensor:
    """The mask of tiles that need none."""
    tiles, _, _, height, width = part["pixel_values"].shape
    return torch.ones((tiles, 1, height, width), dtype=torch.int64)


def _concatenate(values: Sequence[torch.Tensor]) -> torch.Tensor:
    if len({value.shape[1:] for value in values}) > 1:
        sides = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
        values = [_grown(value, sides) for value in values]
    return torch.cat(list(values))


def _grown(value: torch.Tensor, sides: Sequence[int]) -> torch.Tensor:
    grown = value.new_zeros((value.shape[0], *sides))
    grown[tuple(slice(0, size) for size in value.shape)] = value
    return grown


def image_token(processor: ProcessorMixin) -> str:
    """The placeholder of one image in a rendered conversation."""
    token = getattr(processor, "image_token", None)
    if not token:
        raise ModelError(f"{type(processor).__name__} names no image_token; this student cannot be trained on images")
    return str(token)
