"""Rows to token ids once, and token ids to batches every step.

A row's text is rendered by the chat template and tokenised once; every image placeholder is then replaced by the
ids that the processor writes for an image of that size. The loss covers the assistant's turn including its
end-of-turn token. Batches are padded on the right without an attention mask (causal attention never looks at what
comes later), or packed (student/packing.py). Rows that are too long are left out and counted, never cut.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers import ProcessorMixin
from transformers.utils.chat_template_utils import render_jinja_template

from distill import images as image_files
from distill.errors import DataError, ImageError, ModelError
from distill.types import ImageRef
from student import packing
from student.rows import Row

IGNORED = -100
"""Label of a token without loss."""
TOO_LONG = "too_long"
IMAGE_TOKEN_IN_TEXT = "image_token_in_text"
_BATCH_ROWS = 512
_VERIFIED_ROWS = 4
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")

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


class Encoder:
    """Renders and tokenises conversations for one student."""

    def __init__(self, processor: ProcessorMixin, end_ids: Iterable[int]) -> None:
        self._processor = processor
        self._tokenizer = processor.tokenizer
        self.image_id = int(self._tokenizer.convert_tokens_to_ids(image_token(processor)))
        if self._tokenizer.eos_token_id is None:
            raise ModelError("the student's tokenizer has no end-of-turn token (eos_token)")
        self.end_ids = frozenset((*end_ids, int(self._tokenizer.eos_token_id)))
        template = getattr(processor, "chat_template", None) or getattr(self._tokenizer, "chat_template", None)
        if not isinstance(template, str):
            raise ModelError("the student's processor has no chat template; use an instruction-tuned checkpoint")
        self._template = template
        self._marks_assistant = _GENERATION.search(template) is not None

    def prompts(self, asked: Sequence[tuple[str, int]]) -> list[list[int]]:
        """Token ids of (question, number of images) up to where the assistant begins; placeholders not expanded."""
        texts, _ = self._render([_turns(question, images) for question, images in asked], ask=True)
        ids: list[list[int]] = self._tokenize(texts)["input_ids"]
        return ids

    def opening(self) -> int:
        """How many tokens at the end of a prompt open the assistant's turn; at least one."""
        turns = [_turns("?", 0)]
        (asked,), _ = self._render(turns, ask=True)
        (told,), _ = self._render(turns, ask=False)
        added = asked[len(told) :] if asked.startswith(told) else ""
        return max(1, len(self._tokenizer(added, add_special_tokens=False)["input_ids"]))

    def conversations(self, rows: Sequence[Row]) -> list[tuple[list[int], int]]:
        """Token ids of each row, placeholders not expanded, and the position at which its response begins."""
        turns = [_turns(row.question, len(row.images), row.response) for row in rows]
        if self._marks_assistant:
            texts, marked = self._render(turns, ask=False, mark=True)
            spans = [found[-1] if found else (0, 0) for found in marked]
        else:
            texts, _ = self._render(turns, ask=False)
            heads, _ = self._render([turn[:-1] for turn in turns], ask=True)
            spans = [_after(head, text) for head, text in zip(heads, texts, strict=True)]
        made = self._tokenize(texts, return_offsets_mapping=True)
        return [
            self._cut(ids, offsets, span, row)
            for ids, offsets, span, row in zip(made["input_ids"], made["offset_mapping"], spans, rows, strict=True)
        ]

    def _cut(
        self, ids: list[int], offsets: list[tuple[int, int]], span: tuple[int, int], row: Row
    ) -> tuple[list[int], int]:
        """The row up to its end-of-turn token, which is added where the template writes none."""
        inside = [place for place, (start, end) in enumerate(offsets) if span[0] <= start < end <= span[1]]
        if not inside:
            raise DataError(f"row {row.id}: no token of its response carries loss; the chat template marks none")
        first, end = inside[0], inside[-1] + 1
        closing = next((place for place in inside if ids[place] in self.end_ids), None)
        if closing is not None:
            end = closing + 1
        elif end < len(ids) and ids[end] in self.end_ids:
            end += 1
        else:
            return [*ids[:end], int(self._tokenizer.eos_token_id)], first
        return ids[:end], first

    def verify(self, row: Row, ids: Sequence[int], max_pixels: int) -> None:
        """Check that a row's ids are what the processor itself makes of its text and images."""
        texts, _ = self._render([_turns(row.question, len(row.images), row.response)], ask=False)
        begin = self._tokenizer.bos_token
        loaded = [image_files.load(ref, max_pixels=max_pixels) for ref in row.images]
        doubled = begin is not None and texts[0].startswith(begin)
        made = self._processor(text=texts, images=loaded, add_special_tokens=not doubled)["input_ids"][0]
        expected = [int(value) for value in made]
        known = len(ids) - (ids[-1] not in expected[len(ids) - 1 :])
        if list(ids[:known]) != expected[:known]:
            raise ModelError(
                f"row {row.id}: {type(self._processor).__name__} tokenises its images in a way that depends on the "
                "text around them, which is not supported"
            )

    def _render(
        self, turns: list[list[dict[str, Any]]], *, ask: bool, mark: bool = False
    ) -> tuple[list[str], list[list[tuple[int, int]]]]:
        texts, spans = render_jinja_template(
            turns,
            chat_template=self._template,
            add_generation_prompt=ask,
            return_assistant_tokens_mask=mark,
            **self._tokenizer.special_tokens_map,
        )
        return texts, spans

    def _tokenize(self, texts: list[str], **options: Any) -> Any:
        begin = self._tokenizer.bos_token
        doubled = begin is not None and bool(texts) and texts[0].startswith(begin)
        return self._tokenizer(texts, add_special_tokens=not doubled, **options)


def _turns(question: str, images: int, response: str | None = None) -> list[dict[str, Any]]:
    asked = [*({"type": "image"} for _ in range(images)), {"type": "text", "text": question}]
    turns: list[dict[str, Any]] = [{"role": "user", "content": asked}]
    if response is not None:
        turns.append({"role": "assistant", "content": [{"type": "text", "text": response}]})
    return turns


def _after(head: str, text: str) -> tuple[int, int]:
    if not text.startswith(head):
        raise ModelError(
            "the student's chat template writes a question differently once it is answered, and it marks no "
            "{% generation %} block; add one so that the loss can be limited to the response"
        )
    return len(head), len(text)


def expand(ids: Sequence[int], image_id: int, expansions: Sequence[Sequence[int]]) -> list[int] | None:
    """Token ids with the n-th placeholder replaced by the n-th expansion; None when their numbers differ."""
    pieces: list[int] = []
    waiting = iter(expansions)
    used = 0
    for token in ids:
        if token != image_id:
            pieces.append(token)
            continue
        expansion = next(waiting, None)
        if expansion is None:
            return None
        pieces.extend(expansion)
        used += 1
    return pieces if used == len(expansions) else None


@dataclass(slots=True)
class Examples:
    """Token ids of all rows of a stage. `begin[i]` is the first position of row i that carries loss."""

    ids: list[np.ndarray] = field(default_factory=list)
    begin: list[int] = field(default_factory=list)
    images: list[tuple[ImageRef, ...]] = field(default_factory=list)
    row_ids: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.ids]

    @property
    def response_tokens(self) -> int:
        return sum(len(ids) - begin for ids, begin in zip(self.ids, self.begin, strict=True))


def encode(
    rows: Iterable[Row],
    encoder: Encoder,
    store: ImageStore,
    *,
    max_length: int,
    max_pixels: int,
    dropped: Counter[str] | None = None,
) -> Examples:
    """Rows as token ids. Over-long rows and rows with an unreadable image are left out and counted."""
    examples = Examples(dropped=dropped if dropped is not None else Counter())
    waiting = iter(rows)
    verified = 0
    while batch := list(islice(waiting, _BATCH_ROWS)):
        for row, (ids, begin) in zip(batch, encoder.conversations(batch), strict=True):
            try:
                expansions = [store.expansion(ref, max_pixels) for ref in row.images]
            except ImageError as error:
                examples.dropped[error.reason] += 1
                continue
            full = expand(ids, encoder.image_id, expansions)
            if full is None:
                examples.dropped[IMAGE_TOKEN_IN_TEXT] += 1
                continue
            if len(full) > max_length:
                examples.dropped[TOO_LONG] += 1
                continue
            if row.images and verified < _VERIFIED_ROWS:
                verified += 1
                encoder.verify(row, full, max_pixels)
            examples.ids.append(np.asarray(full, dtype=np.int32))
            examples.begin.append(begin + len(full) - len(ids))
            examples.images.append(row.images)
            examples.row_ids.append(row.id)
    return examples


class Collator:
    """Makes one batch of model inputs from row numbers: `labels` and `lengths` (tokens of each row) included."""

    def __init__(
        self,
        examples: Examples,
        store: ImageStore,
        *,
        image_id: int,
        pad_id: int,
        max_pixels: int,
        line_tokens: int | None = None,
        type_name: str | None = None,
    ) -> None:
        """`line_tokens`: pack rows into lines of that many tokens (a longer row has its own); None: a line a row."""
        self._examples = examples
        self._store = store
        self._image_id = image_id
        self._pad_id = pad_id
        self._max_pixels = max_pixels
        self._line_tokens = line_tokens
        self._type_name = type_name

    def __call__(self, items: Sequence[Mapping[str, int]]) -> dict[str, torch.Tensor]:
        rows = [item["row"] for item in items]
        lengths = [len(self._examples.ids[row]) for row in rows]
        packed = self._line_tokens is not None
        bins = (
            packing.best_fit(lengths, max(self._line_tokens, max(lengths)))
            if self._line_tokens is not None
            else [[place] for place in range(len(rows))]
        )
        width = max(sum(lengths[place] for place in places) for places in bins)
        ids = np.full((len(bins), width), self._pad_id, dtype=np.int64)
        labels = np.full((len(bins), width), IGNORED, dtype=np.int64)
        positions = np.zeros((len(bins), width), dtype=np.int64)
        for line, places in enumerate(bins):
            end = 0
            for place in places:
                start, end = end, end + lengths[place]
                row = rows[place]
                ids[line, start:end] = self._examples.ids[row]
                begin = start + self._examples.begin[row]
                labels[line, begin:end] = ids[line, begin:end]
                positions[line, start:end] = np.arange(end - start)
            positions[line, end:] = np.arange(width - end)
        batch = {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}
        if packed:
            batch["position_ids"] = torch.from_numpy(positions)
        if self._type_name is not None:
            batch[self._type_name] = (batch["input_ids"] == self._image_id).to(torch.int64)
        order = [rows[place] for places in bins for place in places]
        batch |= join_features(
            [self._store.features(ref, self._max_pixels) for row in order for ref in self._examples.images[row]]
        )
        batch["lengths"] = torch.tensor(lengths)
        return batch
