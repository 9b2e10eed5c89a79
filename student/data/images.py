"""Model inputs of images: made by the student's processor, kept as the resized pixels, joined to batches.

The cache keeps the output of the processor before it rescales and normalises: eight bits a value, a quarter of
float32. Normalising is a table of 256 values a channel, taken from the processor itself, so a kept image gives the
processor's own output bit for bit. The first images of a processor test this; where it does not hold, the cache keeps
the final output. Does not cover text (student/data/encode.py) or which images share a batch
(student/data/collate.py).
"""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from transformers import ProcessorMixin

from distill.artifacts.manifest import fingerprint, versions
from distill.data.images import image_files
from distill.errors import ImageError, ModelError
from distill.machine.thread_map import thread_map
from distill.types import ImageRef
from student.data import pixel_levels
from student.data.disk_cache import DiskCache
from student.data.pixel_levels import MASK, PIXELS, are_patches, levels_of
from student.data.rows import Smaller

TOKEN_AXES = 6
"""Axes of `pixel_values` that hold image tokens; pixels have two to five axes."""
_TEXT_INPUTS = frozenset(("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"))
_PROBE = (64, 64)
"""Width and height of an image that shows what a processor writes around any."""
_COMPARED_SHAPES = 8
"""Number of different shapes whose first image is compared with the processor's output."""

Features = Mapping[str, torch.Tensor]


def load(ref: ImageRef, *, max_pixels: int) -> Image.Image:
    """The pixels of one image, RGB, in the size that `ref` asks for. Raises ImageError."""
    return _decode(ref, _read_bytes(ref), max_pixels)


def _read_bytes(ref: ImageRef) -> bytes:
    return image_files.read_bytes(ref.original if isinstance(ref, Smaller) else ref)


def _decode(ref: ImageRef, data: bytes, max_pixels: int) -> Image.Image:
    image = image_files.decode(data, max_pixels=max_pixels)
    return image.resize(_size(ref, image.size), Image.Resampling.BICUBIC) if isinstance(ref, Smaller) else image


def _size(ref: ImageRef, size: tuple[int, int]) -> tuple[int, int]:
    """The size of an image as it is asked for. Raises ImageError for one whose shape processors refuse."""
    if not isinstance(ref, Smaller):
        return size
    width, height = (max(1, side // ref.divisor) for side in size)
    image_files.require_shape(width, height)
    return width, height


class ImageSource(Protocol):
    """What gives a batch its images: their pixels, or tokens that were computed before
    (student/data/image_tokens.py)."""

    def features(self, ref: ImageRef, max_pixels: int) -> Features:
        """Inputs of one image for `join`."""

    def join(self, parts: Sequence[Features], *, raw: bool = False) -> dict[str, torch.Tensor]:
        """Inputs of several images as one batch; `raw`: pixels may be left for `normalised`."""

    def normalised(self, features: Features) -> dict[str, torch.Tensor]:
        """A batch with its raw pixels as the model takes them, on the device where they are."""


class ImageStore:
    """Model inputs of single images: in memory while they fit, then on disk, and beyond that made at every use.

    Floating-point features lie in the student's dtype; pixels may be uint8 until `join` normalises them.
    """

    def __init__(
        self,
        processor: ProcessorMixin,
        dtype: torch.dtype,
        *,
        memory_bytes: int = 1 << 31,
        disk_bytes: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`folder`: where the caches of a run lie; None: nothing is kept on disk."""
        self.processor = processor
        self._dtype = dtype
        self._room = memory_bytes
        self._kept: dict[str, Features] = {}
        self._folder = folder
        self._disk_bytes = disk_bytes
        self._cache: DiskCache | None = None
        self._expansions: dict[tuple[int, int], tuple[int, ...]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._areas: dict[str, int] = {}
        self._errors: dict[str, ImageError] = {}
        self._names: frozenset[str] = frozenset()
        self._levels = levels_of(processor, dtype)
        self._reproducible = self._levels is not None
        self._compared: set[tuple[int, ...]] = set()
        self._lock = Lock()
        self.full = memory_bytes == 0
        """Whether some features are not in memory."""

    @property
    def facts(self) -> dict[str, int]:
        """Number of images by place; empty when all are in memory."""
        cache = self._cache if self._cache is not None else ()
        elsewhere = [name for name in self._sizes if name not in self._kept]
        on_disk = sum(name in cache for name in elsewhere)
        counts = {"images on disk": on_disk, "images not kept": len(elsewhere) - on_disk}
        return {name: count for name, count in counts.items() if count}

    def features(self, ref: ImageRef, max_pixels: int) -> Features:
        """Inputs of one image for `join`, text inputs left out. Raises ImageError."""
        result = self._kept.get(ref.sha256)
        if result is not None:
            return result
        if self.full:
            self._open_cache()
        if self._cache is not None and (packed := self._cache.get(ref.sha256)) is not None:
            return unpack(*packed)
        try:
            image = load(ref, max_pixels=max_pixels)
        except ImageError as error:
            if ref.sha256 not in self._sizes:
                raise
            raise ImageError(
                error.reason, f"{error}; an earlier read succeeded: restore the file, and run the same command again"
            ) from None
        if not self._names:
            self._expand(image)
        return self._make(image)

    def prepare(self, refs: Iterable[ImageRef], max_pixels: int) -> None:
        """Look at images that will be asked for, several at a time, and keep what fits."""
        new = [ref for ref in {ref.sha256: ref for ref in refs}.values() if self._is_new(ref, max_pixels)]
        if self.full:
            self._open_cache()
        threads = min(16, os.cpu_count() or 1, len(new))
        if threads < 2:
            for ref in new:
                self._keep(ref.sha256, self._look(ref, max_pixels))
            return
        # A few at a time: the tiles of one image may take megabytes.
        seen_images = thread_map(lambda ref: self._look(ref, max_pixels), new, threads, ahead=2 * threads)
        for ref, seen in zip(new, seen_images, strict=True):
            self._keep(ref.sha256, seen)

    def expansion(self, ref: ImageRef, max_pixels: int) -> tuple[int, ...]:
        """The token ids of one image. They depend on its size only. Raises ImageError."""
        if self._is_new(ref, max_pixels):
            self.prepare([ref], max_pixels)
        # An error may be there from a smaller limit, for images that this stage does not ask for.
        error = self._errors.pop(ref.sha256, None)
        if error is not None and self._is_new(ref, max_pixels):
            raise error
        return self._expansions[self._sizes[ref.sha256]]

    def _is_new(self, ref: ImageRef, max_pixels: int) -> bool:
        """Whether an image has not been seen, or is too large now that a stage before allowed larger ones."""
        return self._areas.get(ref.sha256, max_pixels + 1) > max_pixels

    def join(self, parts: Sequence[Features], *, raw: bool = False) -> dict[str, torch.Tensor]:
        """Inputs of several images as one batch; smaller tiles are padded with zeros and masked.

        Normalised, or with `raw` in eight bits where all images have one shape.
        """
        kinds = {(part[PIXELS].dtype, part[PIXELS].shape[1:]) for part in parts if PIXELS in part}
        if len(kinds) > 1:
            return join_features([self.normalised(part) for part in parts])
        return join_features(parts) if raw else self.normalised(join_features(parts))

    def _look(self, ref: ImageRef, max_pixels: int) -> Features | None:
        """Note the size of an image; its features where they can be kept and are not yet.

        Pixels that are not cached and not the first of their size are only checked: an undecodable image drops its
        rows now, and does not stop the run later.
        """
        try:
            data = _read_bytes(ref)
            width, height = image_files.size(data, max_pixels=max_pixels)
            size = _size(ref, (width, height))
            is_cached = self._cache is not None and ref.sha256 in self._cache
            make_inputs = self._has_room() and not is_cached
            image = _decode(ref, data, max_pixels) if make_inputs else None
            with self._lock:
                if size not in self._expansions:
                    image = image or _decode(ref, data, max_pixels)
                    self._expansions[size] = self._expand(image)
            if image is None and not is_cached:
                image_files.check(data, max_pixels=max_pixels)
            self._sizes[ref.sha256], self._areas[ref.sha256] = size, width * height
            return self._make(image) if make_inputs else None
        except ImageError as error:
            self._errors[ref.sha256] = error
            return None

    def _has_room(self) -> bool:
        return not self.full or (self._cache is not None and not self._cache.full)

    def _open_cache(self) -> None:
        """Open the disk cache of this processor's images when memory is full; caches with other settings are
        deleted."""
        if self._cache is not None or self._folder is None or not self._disk_bytes:
            return
        dtype = str(self._dtype).removeprefix("torch.")
        path = self._folder / f"images-{processor_fingerprint(self.processor)[:16]}-{dtype}"
        for other in self._folder.glob("images-*"):
            if other != path:
                shutil.rmtree(other, ignore_errors=True)
        self._cache = DiskCache(path, max_bytes=self._disk_bytes)

    def _expand(self, image: Any) -> tuple[int, ...]:
        outputs, ids = _written(self.processor, image)
        # Image processors also return what only the processor itself needs (InternVL's num_patches).
        self._names = frozenset(outputs) - _TEXT_INPUTS
        begin, end = _without_space(self.processor, ids)
        return tuple(ids[begin:end])

    def _keep(self, name: str, features: Features | None) -> None:
        if features is None:
            return
        size = sum(value.numel() * value.element_size() for value in features.values())
        if not self.full and size <= self._room:
            self._room -= size
            self._kept[name] = features
            return
        # The order matters: other threads then always find a place for an image that has one.
        self._open_cache()
        self.full = True
        if self._cache is not None and not self._cache.full:
            self._cache.put(name, *pack(features))

    def _make(self, image: Any) -> Features:
        """Features with raw pixels where they can be normalised later, else as the processor makes them."""
        if not self._reproducible:
            return self._cast(self._processed(image))
        raw = self._processed(image, do_rescale=False, do_normalize=False)
        pixels = raw.get(PIXELS)
        masked = MASK in raw and not are_patches(raw)
        if pixels is None or masked or not torch.equal(pixels.to(torch.uint8).to(pixels.dtype), pixels):
            return self._cast(self._processed(image))
        compact = {**raw, PIXELS: pixels.to(torch.uint8)}
        shape = tuple(pixels.shape)
        # Others of this shape wait for the verdict.
        with self._lock:
            if shape not in self._compared and len(self._compared) < _COMPARED_SHAPES:
                self._compared.add(shape)
                direct, restored = self._cast(self._processed(image)), self.normalised(compact)
                self._reproducible = restored.keys() == direct.keys() and all(
                    torch.equal(restored[name], direct[name]) for name in direct
                )
        return compact if self._reproducible else self._cast(self._processed(image))

    def _processed(self, image: Any, **options: bool) -> dict[str, torch.Tensor]:
        # Not its image processor alone: a processor has settings of its own for it (InternVL's tiles).
        outputs = self.processor(
            text=image_token(self.processor), images=[image], return_tensors="pt", images_kwargs=options
        )
        # Idefics-like processors put an axis of conversations before the axis of tiles; one conversation a tile means
        # the same to the model and lets any number of images be joined.
        tiled = MASK in outputs and not are_patches(outputs)
        features = {}
        for name, value in outputs.items():
            if name not in self._names or not isinstance(value, torch.Tensor):
                continue
            value = value.transpose(0, 1) if tiled else value
            if name == MASK and tiled and bool(value.all()):
                continue
            features[name] = value
        return features

    def _cast(self, features: Features) -> dict[str, torch.Tensor]:
        return {
            name: value.to(self._dtype) if value.is_floating_point() else value for name, value in features.items()
        }

    def normalised(self, features: Features) -> dict[str, torch.Tensor]:
        """Features with raw pixels as the processor makes them, on the device where they are."""
        return pixel_levels.normalised(features, self._levels)


def processor_fingerprint(processor: ProcessorMixin) -> str:
    """Hex digest of everything that decides what becomes of an image."""
    images = processor.image_processor
    return fingerprint(
        {
            "classes": [type(processor).__name__, type(images).__name__],
            "settings": images.to_json_string(),
            **versions("pillow", "transformers"),
        }
    )


def pack(features: Features) -> tuple[list[Any], list[Any]]:
    """Tensors as bytes, and the names, dtypes and shapes by which `unpack` gives them back."""
    # The widest first: every tensor then begins at a multiple of its item size.
    ordered = sorted(features.items(), key=lambda item: -item[1].element_size())
    pieces = [value.contiguous().reshape(-1).view(torch.uint8).numpy() for _, value in ordered]
    return pieces, [[name, str(value.dtype).removeprefix("torch."), list(value.shape)] for name, value in ordered]


def unpack(data: bytearray, layout: Sequence[Any]) -> dict[str, torch.Tensor]:
    """The tensors of `pack`; they share memory with `data`."""
    features, start = {}, 0
    for name, dtype_name, shape in layout:
        dtype = getattr(torch, dtype_name)
        count = int(np.prod(shape, dtype=np.int64))
        features[name] = torch.frombuffer(data, dtype=dtype, count=count, offset=start).view(shape)
        start += count * dtype.itemsize
    return features


def join_features(parts: Sequence[Features]) -> dict[str, torch.Tensor]:
    """`ImageStore.join` without the normalising."""
    if not parts:
        return {}
    sides = {part[PIXELS].shape[1:] for part in parts if PIXELS in part}
    tiles_differ = len(sides) > 1 and all(len(side) == 4 and side[0] == 1 for side in sides)
    masked = any(MASK in part and not are_patches(part) for part in parts)
    if masked or (tiles_differ and "image_sizes" not in parts[0]):
        parts = [{MASK: _mask_of(part), **part} for part in parts]
    return {name: _concatenate([part[name] for part in parts]) for name in parts[0]}


def _mask_of(part: Features) -> torch.Tensor:
    """The mask of tiles that need none."""
    tiles, _, _, height, width = part[PIXELS].shape
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


def text_around(processor: ProcessorMixin) -> tuple[str, str]:
    """The blank text that a processor writes before and after an image; expansions are without it."""
    _, ids = _written(processor, Image.new("RGB", _PROBE))
    begin, end = _without_space(processor, ids)
    before, after = (str(processor.tokenizer.decode(part)) for part in (ids[:begin], ids[end:]))
    return before, after


def _written(processor: ProcessorMixin, image: Any) -> tuple[Any, list[int]]:
    """What a processor makes of one image alone, and the token ids among it."""
    outputs = processor(text=image_token(processor), images=[image], add_special_tokens=False, return_tensors="pt")
    return outputs, [int(value) for value in np.asarray(outputs["input_ids"]).reshape(-1)]


def _without_space(processor: ProcessorMixin, ids: Sequence[int]) -> tuple[int, int]:
    """Where the tokens of an image begin and end between blank text."""
    blank = [not str(processor.tokenizer.decode([token])).strip() for token in ids]
    return blank.index(False), len(ids) - blank[::-1].index(False)


def image_token(processor: ProcessorMixin) -> str:
    """The placeholder of one image in a rendered conversation."""
    token = getattr(processor, "image_token", None)
    if not token:
        raise ModelError(f"{type(processor).__name__} names no image_token; this student cannot be trained on images")
    return str(token)
