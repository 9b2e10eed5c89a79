"""Packs rows into micro-batches within budgets of tokens and images; no row is ever cut.

A packed line holds several rows one after the other; positions restart at each, and attention stays inside a row
(student/models/attention.py). Knows lengths only: nothing is decoded here.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

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
    # Bins with room, ascending by it, by the number of images that they hold.
    free: dict[int, list[tuple[int, int]]] = {}
    for index in np.argsort(np.negative(lengths), kind="stable").tolist():
        length, more = lengths[index], counts[index]
        choice = _roomy(free, length, more, limit)
        if choice is not None:
            held, position = choice
            room, number = free[held].pop(position)
            if not free[held]:
                del free[held]
        else:
            held, room, number = 0, max(capacity, length), len(bins)
            bins.append([])
        bins[number].append(index)
        room -= length
        if room > 0:
            insort(free.setdefault(held + more, []), (room, number))
    return bins


def _roomy(free: Mapping[int, list[tuple[int, int]]], length: int, more: int, limit: int) -> tuple[int, int] | None:
    """The fullest bin with room for a row of so many tokens and images: images it holds, and its place among those.

    A row without images comes first if no further image may follow.
    """
    found = [
        (not more and held < limit, rooms[position], held, position)
        for held, rooms in free.items()
        if (not more or held + more <= limit) and (position := bisect_left(rooms, (length, -1))) < len(rooms)
    ]
    return min(found)[2:] if found else None


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
