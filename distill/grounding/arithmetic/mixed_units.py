"""Sums of quantities in more than one unit: "2 h 50 min + 1 h 25 min = 3 h 75 min = 4 h 15 min"."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from distill.grounding.arithmetic.canonical_text import Number, place_of
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.unit_equations import UNIT, UNITS

_ONE: Final = rf"N ?(?:{UNIT})(?![a-z(/^])"
_AMOUNT: Final = rf"{_ONE}(?>(?: and | )?{_ONE})*+"
_SUM: Final = rf"{_AMOUNT}(?> ?(?:[-+]|plus|minus) {_AMOUNT})*+"
_TIE: Final = r",? ?(?:=|is|are|equals?|makes?|gives|or)"
_CHAIN: Final = re.compile(rf"(?<![-+*/^=] )(?<!plus )(?<!minus )(?<![\w(]){_SUM}(?>{_TIE} ?{_SUM})++"
                           r"(?! ?[-+*/^]| (?:more|less|longer|shorter|per|times|plus|minus)\b)")  # fmt: skip
_PART: Final = re.compile(rf"N ?({UNIT})(?![a-z(/^])|([-+]|\bplus\b|\bminus\b)|({_TIE})")
MIXED: Final = re.compile(rf"{_ONE}(?: and |, | ){_ONE}")
"""A quantity in two units."""


def find_mixed_claims(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """The claims of a canonical sentence whose first number has the index `offset`."""
    for match in _CHAIN.finditer(sentence):
        place = place_of(match, offset)
        sides = list(_sides(match[0], numbers[place:]))
        if len({kind for _, kind, _, _ in sides}) != 1:
            continue
        for (left, _, first, _), (right, _, _, last) in pairwise(sides):
            size = _last_size(match[0], last)
            unit = numbers[place + last].unit * size
            agrees = stands_for(right, unit, left, False)
            yield ArithmeticClaim(place + first, place + last, agrees, None, ("mixed", left))


def _last_size(text: str, place: int) -> float:
    """How large the unit of a number of a chain is."""
    units = [match[1] for match in _PART.finditer(text) if match[1]]
    return UNITS[units[place]][1]


def _sides(text: str, numbers: Sequence[Number]) -> Iterator[tuple[float, str, int, int]]:
    """What each side comes to, its kind, and the places of its first and last number."""
    total, sign, kind, first, place = 0.0, 1, "", 0, 0
    for match in _PART.finditer(text):
        if match[1]:
            unit = UNITS[match[1]]
            kind = unit[0] if kind in ("", unit[0]) else "?"
            total += sign * numbers[place].value * unit[1]
            place += 1
        elif match[2]:
            sign = -1 if match[2] in ("-", "minus") else 1
        else:
            yield total, kind, first, place - 1
            total, sign, kind, first = 0.0, 1, "", place
    yield total, kind, first, place - 1
