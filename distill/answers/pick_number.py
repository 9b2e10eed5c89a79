"""Which of several numbers in a prediction is its answer, where its words say so.

Cautious: no answer is better than a wrong one, since what is not found here stays open.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from typing import Final

from distill.answers.compare import CompareResult, undecided
from distill.answers.numbers import Quantity, single

_CONCLUDES = re.compile(
    r"(?:=|\bi\.e\.,?|\b(?:so|thus|hence|therefore|equals?|makes?|making|gives?|giving|totals?|totall?ing|gets?|altogether|but)\b"
    r"(?:\s[^\W\d]+){0,4}|\b(?:difference|sum|total|average|increase|decrease|rise|drop|gain|loss) of"
    r"(?:\s[^\W\d]+)?)\s*$",
    re.IGNORECASE,
)
_STATES = re.compile(r"\b(?:is|was)(?: (?:about|around|approximately|exactly|roughly))?\s*$", re.IGNORECASE)
_IS = re.compile(r"\b(?:is|was|are|were)(?: (?:about|around|approximately|exactly|roughly))?\s*$", re.IGNORECASE)
_COMPARES = re.compile(r"\b(?:than|times|more|less|fewer|of)\b", re.IGNORECASE)
_OF_ALL = re.compile(r"\bof (?:the|all|these|those)\s*$", re.IGNORECASE)
_BEFORE_REASON = re.compile(r"([^.;]{1,80}?),? (?:because|since|as there)\b", re.IGNORECASE)
_BEFORE_REMARK = re.compile(r"([^.;(]{1,80}?) \([^()]*\)\.?$")
_JOINTS: Final = ("and", "to", "-")
_LOOKED_BACK: Final = 60


def stated(text: str, found: Sequence[Quantity]) -> Quantity | None:
    """The quantity that the words around several name as the result; None when they leave it open."""
    # The right side of an equation, or the number before a remark in parentheses.
    for part in (text.rsplit("=", 1)[1] if "=" in text else "", text.split(" (", 1)[0] if text.endswith(")") else ""):
        quantity = single(part.strip(" .")) if part else None
        if quantity is not None:
            return quantity
    reasoned = _BEFORE_REASON.match(text) or _BEFORE_REMARK.match(text)
    if reasoned is not None:
        early = [quantity for quantity in found if quantity.start < reasoned.end(1)]
        if len(early) == 1 and not early[0].negated and not early[0].bound:
            return early[0]  # 9 remain, because 6 of the 15 are taken
    if len(found) < 2 or any(quantity.negated or quantity.bound for quantity in found):
        return None
    first, second, last = found[0], found[1], found[-1]
    if len(found) == 2 and _OF_ALL.search(_before(text, second)):
        return first  # 4 of the 10 bars
    if ":" in text[first.end : second.start] and first.value == sum(quantity.value for quantity in found[1:]):
        return first  # 9 birds: 4 here and 5 there
    if _COMPARES.search(text, last.end):
        return None
    results = [quantity for quantity in found if _CONCLUDES.search(_before(text, quantity))]
    if results and results[-1] is last and len({(item.value, item.percent) for item in results}) == 1:
        return last
    if _STATES.search(_before(text, last)) and not any(_IS.search(_before(text, item)) for item in found[:-1]):
        return last
    return None


def _before(text: str, quantity: Quantity) -> str:
    return text[max(0, quantity.start - _LOOKED_BACK) : quantity.start]


def left_open(text: str, found: Sequence[Quantity], gold: Decimal) -> CompareResult | None:
    """Why numbers that are all other than the gold may still answer: a range around it, a sum that gives it."""
    values = [quantity.value for quantity in found]
    if len(found) == 2 and min(values) < gold < max(abs(value) for value in values):
        between = text[found[0].end : found[1].start].strip()
        opened = text[: found[0].start].rstrip().lower().endswith(("between", "from"))
        if (between in _JOINTS and opened) or between in _JOINTS[1:] or (not between and found[1].value < 0):
            return undecided("within_a_range")
    if len(values) <= 4 and (
        sum(values) == gold or any(gold in (one + other, abs(one - other)) for one, other in combinations(values, 2))
    ):
        return undecided("may_follow")
    return None


def repeated(text: str, found: Sequence[Quantity]) -> bool:
    """Whether equal numbers stand for different things (7 apples and 7 pears) or next to each other (7 7)."""
    if len(found) < 2:
        return False
    units = {quantity.unit for quantity in found}
    return ("" not in units and len(units) > 1) or not text[found[0].end : found[1].start].strip()
