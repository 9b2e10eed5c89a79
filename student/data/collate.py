"""Row numbers to the inputs of one pass: token ids, positions, labelled places, images.

Rows that share a line are separated by positions that restart, and by their bounds for attention that takes these
(student/models/attention.py). Lines of different lengths are padded on the right without an attention mask: causal
attention never looks at what comes later. Does not choose which rows share a pass (student/data/batch_plan.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from distill.recipe.sections.stages import Stage
from student.data import packing
from student.data.encode import Encoder, Examples
from student.data.encoded_rows import Example
from student.data.images import ImageSource, join_features
from student.models import attention
from student.models.freeze import plain_model
from student.models.inputs import type_name

Positions = Callable[[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]], torch.Tensor]
"""Ids, token types and image inputs of one row to its positions, int64[axes, tokens]."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a pass has its rows: the model inputs, and what the loss needs to find its tokens again."""

    inputs: dict[str, torch.Tensor]
    at: np.ndarray
    """Flat positions that predict a labelled token, row by row in the order of `rows`."""
    labels: np.ndarray
    rows: list[int]


@dataclass(frozen=True, slots=True)
class InputForm:
    """The tokens and the input by which a student knows images and padding."""

    image_id: int
    pad_id: int
    type_name: str | None
    """The input that marks image tokens, for students that take one."""

    @classmethod
    def of(cls, model: PreTrainedModel, encoder: Encoder) -> "InputForm":
        return cls(encoder.image_id, encoder.pad_id, type_name(model))


class Collator:
    """Makes model inputs from row numbers."""

    def __init__(
        self,
        examples: Examples,
        store: ImageSource,
        form: InputForm,
        *,
        max_pixels: int,
        line_tokens: int | None = None,
        bounds: bool = False,
        positions: Positions | None = None,
        raw_pixels: bool = False,
    ) -> None:
        """`line_tokens`: pack rows into lines of that many tokens (a longer row has its own); None: a line a row.

        `bounds`: all rows share one line and attention gets their bounds. `positions`: for students with more than
        one axis of positions. `raw_pixels`: pixels stay in eight bits, for `store.normalised` on the device.
        """
        self.examples, self.store = examples, store
        self._raw_pixels = raw_pixels
        self._form = form
        self._max_pixels = max_pixels
        self._line_tokens = line_tokens
        self._bounds = bounds
        self._positions = positions

    def __call__(self, rows: Sequence[int]) -> Layout:
        result = [self.examples.rows[row] for row in rows]
        bins = self._lines([len(example.ids) for example in result])
        lines = [[result[index] for index in indexes] for indexes in bins]
        width = max(sum(len(example.ids) for example in line) for line in lines)
        ids = np.full((len(lines), width), self._form.pad_id, dtype=np.int64)
        at, labels, ends = [], [], []
        for number, line in enumerate(lines):
            end = 0
            for example in line:
                start, end = end, end + len(example.ids)
                ids[number, start:end] = example.ids
                labels.append(example.ids[example.begin :])
                at.append(np.arange(start + example.begin, end) + (number * width - 1))
                ends.append(end)
        inputs = {"input_ids": torch.from_numpy(ids)}
        if self._form.type_name is not None:
            inputs[self._form.type_name] = (inputs["input_ids"] == self._form.image_id).to(torch.int64)
        images = [self._features(example) for line in lines for example in line]
        if len(result) > len(lines):
            inputs["position_ids"] = self._place(lines, width, images)
        if self._bounds:
            bounds = torch.tensor([0, *ends], dtype=torch.int32)
            longest = int(bounds.diff().max())
            inputs |= {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
            inputs |= {"max_length_q": longest, "max_length_k": longest}  # type: ignore[dict-item]
        inputs |= self.store.join([features for row in images for features in row], raw=self._raw_pixels)
        order = [rows[index] for indexes in bins for index in indexes]
        return Layout(inputs, np.concatenate(at), np.concatenate(labels).astype(np.int64), order)

    def _lines(self, lengths: Sequence[int]) -> list[list[int]]:
        if self._bounds:
            return [list(range(len(lengths)))]
        if self._line_tokens is None:
            return [[index] for index in range(len(lengths))]
        return packing.best_fit(lengths, max(self._line_tokens, max(lengths)))

    def _features(self, example: Example) -> list[Any]:
        return [self.store.features(ref, self._max_pixels) for ref in example.row.images]

    def _place(self, lines: Sequence[Sequence[Example]], width: int, pictures: list[list[Any]]) -> torch.Tensor:
        """Positions that restart at every row; int64[lines, width], or with an axis of axes in front."""
        images = iter(pictures)
        placed = []
        for line in lines:
            parts = [self._of_row(example, next(images)) for example in line]
            rest = width - sum(part.shape[1] for part in parts)
            # What pads a line counts as one more row.
            placed.append(torch.cat([*parts, torch.arange(rest).expand(parts[0].shape[0], rest)], 1))
        stacked = torch.stack(placed, 1)
        return stacked[0] if self._positions is None else stacked

    def _of_row(self, example: Example, images: list[Any]) -> torch.Tensor:
        """int64[axes, tokens]; the first axis is the row's plain order, by which packed lines are recognised."""
        plain = torch.arange(len(example.ids))[None]
        if self._positions is None:
            return plain
        ids = torch.from_numpy(example.ids.astype(np.int64))
        types = (ids == self._form.image_id).long()
        return torch.cat([plain, self._positions(ids, types, join_features(images))])


def spatial_positions(model: PreTrainedModel) -> Positions | None:
    """How a student with positions in time, height and width (M-RoPE) places a row; None for any other student."""
    rope_index = getattr(model.base_model, "get_rope_index", None)
    if rope_index is None:
        return None

    def positions(ids: torch.Tensor, types: torch.Tensor, images: dict[str, torch.Tensor]) -> torch.Tensor:
        result: torch.Tensor = rope_index(ids[None], types[None], image_grid_thw=images.get("image_grid_thw"))[0]
        return result[:, 0]

    return positions


def row_bounds(layout: Layout, examples: Examples) -> list[tuple[int, int]]:
    """For each row of a pass, the start and the end of its labelled tokens among the labelled tokens of the pass."""
    ends = np.cumsum([0, *(len(examples.rows[row].kinds) for row in layout.rows)])
    return [(int(begin), int(end)) for begin, end in pairwise(ends)]


def collate(
    student: PreTrainedModel | PeftModel,
    examples: Examples,
    store: ImageSource,
    stage: Stage,
    encoder: Encoder,
    *,
    max_pixels: int,
    raw_pixels: bool = False,
) -> Collator:
    """The collator for the rows of a stage, as the stage packs them."""
    model = plain_model(student)
    name, form = attention.of(model), InputForm.of(model, encoder)
    packs = not attention.why_not_packed(model.config, form.type_name, name)
    bounds = packs and attention.takes_bounds(name)
    return Collator(
        examples,
        store,
        form,
        max_pixels=max_pixels,
        line_tokens=stage.line_tokens if packs and not bounds else None,
        bounds=bounds,
        positions=spatial_positions(model),
        raw_pixels=raw_pixels,
    )
