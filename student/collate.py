"""Row numbers to one batch of model inputs.

Batches are padded on the right without an attention mask (causal attention never looks at what comes later), or
packed (student/packing.py).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from student import packing
from student.encode import Examples
from student.pictures import ImageStore, join_features

IGNORED = -100
"""Label of a token without loss."""


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
