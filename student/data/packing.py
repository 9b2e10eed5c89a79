"""Rows into micro-batches: tokens and images are budgets, no row is ever cut.

A packed line holds several rows one after the other; positions restart at each, and attention stays inside a row
(student/models/attention.py). Knows lengths only: nothing is decoded here.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence

import numpy as np


def best_fit(
    lengths: Sequence[int], capacity: int, *, images: Sequence[int] | None = None, max_images: int | None = None
) -> list[list[int]]:
    """Places 0..n-1 put into bins of at most `capacity` tokens, longest first into the fullest bin with room.

    With `images` (a row's number of images) no bin holds more than `max_images` of them. A row above a budget gets
    a bin of its own. Bins come in the order of their first place; O(n log n).
    """
    counts = images if images is not None and max_images is not None else [0] * len(lengths)
    limit = max_images if max_images is not None else 0
    bins: list[list[int]] = []
    # Bins with room, ascending by it, and those that hold as many images as they may: for rows without any.
    open_bins: list[tuple[int, int]] = []
    full_bins: list[tuple[int, int]] = []
    held: list[int] = []
    for index in np.argsort(np.negative(lengths), kind="stable").tolist():
        length, more = lengths[index], counts[index]
        choices = (open_bins,) if more else (full_bins, open_bins)
        result = next((hit for free in choices if (hit := _roomy(free, length, more, held, limit)) is not None), None)
        if result is not None:
            free, position = result
            room, number = free.pop(position)
        else:
            room, number = max(capacity, length), len(bins)
            bins.append([])
            held.append(0)
        bins[number].append(index)
        held[number] += more
        room -= length
        if room > 0:
            insort(full_bins if limit and held[number] >= limit else open_bins, (room, number))
    return bins


def _roomy(
    free: list[tuple[int, int]], length: int, more: int, held: Sequence[int], limit: int
) -> tuple[list[tuple[int, int]], int] | None:
    """The fullest bin of a list that has room for a row with these numbers of tokens and images."""
    for position in range(bisect_left(free, (length, -1)), len(free)):
        if not more or held[free[position][1]] + more <= limit:
            return free, position
    return None


def balanced(
    lengths: Sequence[int], capacity: int, *, images: Sequence[int], max_images: int, multiple: int = 1
) -> list[list[int]]:
    """Places 0..n-1 in the least number of bins, a multiple of `multiple`, that keeps them within both budgets.

    Bins have about the same number of tokens: longest first into the emptiest. Used where the rows of a step are
    given, so that its micro-batches take equally long on every process. Bins may be empty when rows are few.
    """
    least = max(-(-sum(lengths) // capacity), -(-sum(images) // max_images), 1)
    # Rows above a budget have a bin each; more bins than rows would be passes over nothing.
    least = min(least, max(1, len(lengths)))
    number = -(-least // multiple) * multiple
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    while True:
        bins: list[list[int]] = [[] for _ in range(number)]
        heap = [(0, 0, which) for which in range(number)]
        fits = True
        for index in order:
            tokens, seen, which = heapq.heappop(heap)
            bins[which].append(index)
            tokens, seen = tokens + lengths[index], seen + images[index]
            fits = fits and (len(bins[which]) == 1 or (tokens <= capacity and seen <= max_images))
            heapq.heappush(heap, (tokens, seen, which))
        if fits or number >= len(lengths):
            return bins
        number += multiple
