"""Which results a few numbers can give by the operations that a sentence names.

A stated result that no reading gives is a slip.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Final

_MOST_VALUES: Final = 7
"""Of more operands only sums are computed, of neighbours."""
_MOST_IN_ANY_ORDER: Final = 4
_MOST_PERCENT_STEPS: Final = 2
"""Steps one after another where percentages are among the operations: more would give nearly any number."""


@lru_cache(maxsize=1 << 10)
def results_of(values: tuple[float, ...], operations: str) -> frozenset[float]:
    """What these numbers, or some of them, give by some of the operations + - * / and %, each number used once.

    The operation m is the mean of a run of neighbours, p what percentage one number or a change is of another. Up to
    four numbers are combined in any order. More are summed and subtracted, with products and quotients of neighbours;
    beyond seven, only runs of neighbours are summed.
    """
    results: set[float] = set()
    if "m" in operations or len(values) > _MOST_VALUES:
        for first, last in combinations(range(len(values) + 1), 2):
            total = sum(values[first:last])
            results |= {total, total / (last - first)} if "m" in operations else {total}
    if "*" in operations:
        results |= {math.prod(values), math.prod(values[:-1])}
    if len(values) > _MOST_VALUES:
        return frozenset(results)
    if len(values) <= _MOST_IN_ANY_ORDER:
        return frozenset(results.union(_in_any_order(values, operations)))
    for terms in _grouped(values, operations):
        sums = {0.0}
        for term in terms:
            sums |= {value + term for value in sums} | (
                {value - term for value in sums} if "-" in operations else set()
            )
        results |= sums
        if "/" in operations:
            results |= {total / value for total in (sum(terms),) for value in values if value}
    return frozenset(results)


def _in_any_order(values: tuple[float, ...], operations: str) -> Iterator[float]:
    seen: set[tuple[float, ...]] = set()
    left = [tuple(sorted(values))]
    fewest = len(values) - _MOST_PERCENT_STEPS if "%" in operations else 1
    while left:
        numbers = left.pop()
        if numbers in seen:
            continue
        seen.add(numbers)
        yield from numbers
        if len(numbers) <= fewest:
            continue
        for one, two in combinations(range(len(numbers)), 2):
            others = [number for at, number in enumerate(numbers) if at not in (one, two)]
            left += [tuple(sorted((*others, result))) for result in _combined(numbers[one], numbers[two], operations)]


def _combined(a: float, b: float, operations: str) -> Iterator[float]:
    if "+" in operations:
        yield a + b
    if "-" in operations:
        yield a - b
        yield b - a
    if "*" in operations:
        yield a * b
    if "/" in operations:
        if b:
            yield a / b
        if a:
            yield b / a
    if "%" in operations:
        for share, whole in ((a, b), (b, a)):
            yield share * whole / 100
            yield whole * (1 - share / 100)
            yield whole * (1 + share / 100)
            yield from (whole / part for part in (share / 100, 1 - share / 100, 1 + share / 100) if part)
    if "p" in operations:
        for share, whole in ((a, b), (b, a)):
            if whole:
                yield 100 * share / whole
                yield 100 * abs(share - whole) / abs(whole)


def _grouped(values: Sequence[float], operations: str) -> Iterator[tuple[float, ...]]:
    """The numbers with none or some pairs of neighbours multiplied or divided."""
    if not values:
        yield ()
        return
    for rest in _grouped(values[1:], operations):
        yield (values[0], *rest)
    if len(values) > 1:
        pairs = [values[0] * values[1]] if "*" in operations else []
        if "/" in operations and values[1]:
            pairs.append(values[0] / values[1])
        for rest in _grouped(values[2:], operations) if pairs else ():
            for pair in pairs:
                yield (pair, *rest)
