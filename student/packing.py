"""Which rows share a step, and how the rows of a step share lines.

The samples of a step depend on seed and epoch only, never on their lengths, so packing changes the speed and not
the optimisation. A packed line holds several rows one after the other; positions restart at each, and attention
stays inside a row because there is neither an attention mask nor a cache (with a cache the models skip the
detection of packed lines and rows leak into each other).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

import numpy as np
from torch.utils.data import Sampler
from transformers import PretrainedConfig


class StepSampler(Sampler[int]):
    """Row numbers in the order of training. Every `batch_size` of them are one step, sorted by length inside it."""

    def __init__(self, lengths: Sequence[int], *, batch_size: int, seed: int, shuffle: bool = True) -> None:
        self._lengths = np.asarray(lengths)
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        order = np.arange(len(self._lengths))
        if self._shuffle:
            order = np.random.default_rng((self._seed, self._epoch)).permutation(order)
        for start in range(0, len(order), self._batch_size):
            step = order[start : start + self._batch_size]
            # Micro-batches are slices of a step: sorting puts rows of like length together.
            yield from (int(row) for row in step[np.argsort(self._lengths[step], kind="stable")])


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Places 0..n-1 put into bins of at most `capacity` tokens, longest first into the fullest bin with room.

    A length above the capacity gets a bin of its own. Bins come in the order of their first place.
    """
    bins: list[list[int]] = []
    free: list[tuple[int, int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        found = bisect_left(free, (lengths[place], -1))
        if found < len(free):
            room, number = free.pop(found)
        else:
            room, number = max(capacity, lengths[place]), len(bins)
            bins.append([])
        bins[number].append(place)
        insort(free, (room - lengths[place], number))
    return bins


def can_pack(config: PretrainedConfig, type_name: str | None) -> bool:
    """Whether rows may share a line: plain one-dimensional positions and purely causal attention."""
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    return type_name is None and "mrope_section" not in rope
