"""One step of arithmetic: the step that words announce, its possible results, and whether a written number is one."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from operator import ge, gt, le, lt
from typing import Final

from distill.grounding.numbers_in_text import ROUNDING_LIMIT, Item

_STEPS: Final = {
    "sum": re.compile(
        r"sums?|totals?|totall?ing|combined?|together|altogether|add(?:s|ed|ing)?|plus|cumulative|aggregate"
        r"|accumulat\w+|summ\w+"
    ),
    "difference": re.compile(
        r"differ\w*|gap|more|less|fewer|higher|lower|larger|smaller|greater|taller|shorter|bigger|longer"
        r"|exceed\w*|increas\w*|decreas\w*|ris\w+|rose|drop\w*|fall\w*|fell|grew|grow\w*|declin\w*|chang\w+|minus|subtract\w*"
        r"|range|spread|margin|lead\w*|ahead|behind|outpac\w+|gain\w*|lost|loss|surplus|deficit|remain\w*|leav\w+"
        r"|without|except|jump\w*|far"
    ),
    "mean": re.compile(r"averag\w*|mean|median|midpoint|half"),
    "ratio": re.compile(
        r"ratio|times|fold|twice|double\w*|triple\w*|half|per|quotient|divid\w+|percent\w*|share|proportion"
        r"|fraction|factor|\w*\dx|%"
    ),
    "product": re.compile(r"product|times|multipl\w+|twice|double\w*|triple\w*"),
}
_WORD = re.compile(r"\w+|%")
_IN_ALL = re.compile(r"\bin all\b")
_NONE: Final[frozenset[str]] = frozenset()
ANY: Final = frozenset(["sum", "difference", "mean", "ratio"])
"""The steps that are tried if no word announces one."""


@lru_cache(maxsize=1 << 14)
def announced_steps(words: str) -> frozenset[str]:
    steps = _NONE.union(*map(_announced_by, _WORD.findall(words)))
    return steps | {"sum"} if " all" in words and _IN_ALL.search(words) else steps


@lru_cache(maxsize=1 << 13)
def _announced_by(word: str) -> frozenset[str]:
    return frozenset(step for step, pattern in _STEPS.items() if pattern.fullmatch(word))


_STEP_FOR = re.compile(
    r"\b(?:sum|total|difference|gap|average|mean|ratio|share|percentage|increase|decrease|change)\b"
    r"(?: \w+)? (?:of|for|in|between|by) (?:the )?$"
)


def steps_for_label(before: str) -> frozenset[str]:
    """The step whose result belongs to the label after these words ("the average for", "the share of")."""
    match = _STEP_FOR.search(before)
    return announced_steps(match[0]) if match else frozenset()


COMPARED: Final = {"<": lt, ">": gt, "≤": le, "≥": ge}
_COMPARATIVE = re.compile(
    r"[\s-]*(?:(?P<ratio>(?:times|x|fold)\b|×(?! ?[\d(])|(?:%|percent)? ?of (?:the (?:total|whole|sum)|all)"
    r"|as (?:many|much|high))"
    r"|(?:%|percent(?:age)?|\w+)?[\s-]*(?:points? |units? )?\b(?P<difference>more|less|fewer|higher|lower"
    r"|greater|larger|smaller|taller|shorter|bigger|longer|above|below|apart|ahead|behind|difference|increase|decrease"
    r"|growth|drop|decline|gap|rise|percentage points?)\b)"
)
_WORD_FOLLOWS: Final = (" ", "-", "%", "x", "×")
_NEAR: Final = 32
"""Characters after a number that may say what it is."""


def comparison_holds(sign: str, left: Item, right: Item) -> bool:
    """Whether a written comparison of two numbers is true; anything else is none."""
    compare = COMPARED.get(sign)
    return compare is None or left.number is None or compare(left.value, right.value)


def read_comparison(lower: str, end: int) -> str:
    """The kind of a number by the words after its `end`: a difference ("5 more"), a ratio ("2 times"), or another."""
    match = _COMPARATIVE.match(lower, end, end + _NEAR) if lower[end : end + 1] in _WORD_FOLLOWS else None
    return "" if match is None else match.lastgroup or ""


_MOST_PAIRED: Final = 40


def step_results(steps: Iterable[str], operands: Sequence[float]) -> list[float]:
    """The results of each step on these operands; a difference or a ratio of any two of them.

    Of many operands no pairs are made: there would be one for almost every number.
    """
    results: list[float] = []
    total = sum(operands)
    if len(operands) > _MOST_PAIRED:
        steps = [step for step in steps if step not in ("product", "change", "ratio")]
        results += [first / total for first in operands if total]
    for step in steps:
        if step == "sum":
            results.append(total)
        elif step == "mean":
            ranked = sorted(operands)
            results += [total / len(operands), (ranked[len(ranked) // 2] + ranked[(len(ranked) - 1) // 2]) / 2]
        elif step == "difference":
            if len(operands) <= 3:
                results += [abs(first - second) for first, second in combinations(operands, 2)]
            results.append(max(operands) - min(operands))
        elif step == "product":
            results += [first * second for first, second in combinations(operands, 2)]
            results += [operands[-1] * factor for factor in (2, 3, 4, 0.5)]
        elif step == "ratio":
            results += [first / second for first in operands for second in (*operands, total) if second]
        elif step == "change":
            results += [(first - second) / second for first in operands for second in operands if second]
    return results


def is_close(item: Item, value: float, tolerance: float, hedged: bool) -> bool:
    """Whether a written number can be a value, by its rounding, its scale and its percent sign."""
    number = item.number
    assert number is not None
    slack = max(tolerance, ROUNDING_LIMIT if hedged else 0.0) * abs(value) + 1e-9
    for reading, half in number.readings:
        stated = -reading if item.negative else reading
        if _near(stated, value, half, slack, hedged):
            return True
        if value < 0 and not item.negative and _near(reading, -value, half, slack, hedged):
            return True
        if number.percent:
            if _near(stated / 100, abs(value), half / 100, slack, hedged):
                return True
        elif 0 < reading < 1 and half < 0.1 and _near(stated * 100, value, half * 100, slack, hedged):
            return True
    return False


def _near(stated: float, value: float, half: float, slack: float, hedged: bool) -> bool:
    distance = abs(stated - value)
    if distance <= slack:
        return True
    return distance <= half * 1.0001 and (half < 0.5 or hedged or distance <= ROUNDING_LIMIT * abs(value))


@lru_cache(maxsize=1 << 12)
def _bands(readings: tuple[tuple[float, float], ...], percent: bool, slack: float) -> tuple[tuple[float, float], ...]:
    """Sizes outside of which `is_close` is false for a number with these readings: a look spares most calls of it."""
    bands = []
    for reading, half in readings:
        for scale in (1.0, 0.01) if percent else (1.0, 100.0) if reading < 1 else (1.0,):
            size, most = scale * reading, 2 * scale * half + 1e-6
            high = (size + 1e-6) / (1 - slack) if slack < 1 else math.inf
            bands.append((min(size - most, (size - 1e-6) / (1 + slack)), max(size + most, high)))
    return tuple(bands)


def is_any_close(item: Item, values: Iterable[float], tolerance: float, hedged: bool) -> bool:
    number = item.number
    assert number is not None
    if tolerance or item.value < 1:
        ranges = _bands(number.readings, number.percent, max(tolerance, ROUNDING_LIMIT if hedged else 0.0))
        for value in values:
            size = abs(value)
            for low, high in ranges:
                if low <= size <= high and is_close(item, value, tolerance, hedged):
                    return True
        return False
    # The usual case, the same without a call for each value.
    ranges = number.hedged_ranges if hedged else number.ranges
    if len(ranges) == 1:
        ((low, high),) = ranges
        for value in values:  # noqa: SIM110 - a generator would take twice as long
            if low <= value <= high or low <= -value <= high:
                return True
        return False
    for value in values:
        size = abs(value)
        for low, high in ranges:
            if low <= size <= high:
                return True
    return False
