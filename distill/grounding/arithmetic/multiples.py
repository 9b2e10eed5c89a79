"""Numbers that are said to be a multiple of another one: "44 votes, three times as many as the 21 of last year"."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from distill.grounding.arithmetic.canonical_text import Number, place_of
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for

_MULTIPLE: Final = re.compile(
    r"N(?: [a-z]+){0,4}(?:,| is| are| was| were)(?: that is| which is| exactly)? N times "
    r"(?:as [a-z]+(?: [a-z]+)? as )?(?:(?:the|those|these|that|of) ){0,3}N(?! ?[-+*/=%]| times)"
)
_FEWEST: Final = 3


def find_multiple_claims(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """The claims of a canonical sentence whose first number has the index `offset`."""
    for match in _MULTIPLE.finditer(sentence):
        first = place_of(match, offset)
        stated, times, one = numbers[first : first + _FEWEST]
        expected = times.value * one.value
        if stated.percent == one.percent and not times.percent:
            right = stands_for(stated.value, stated.unit, expected, False)
            yield ArithmeticClaim(first, first + 2, right, expected, ("multiple", times.value, one.value))
