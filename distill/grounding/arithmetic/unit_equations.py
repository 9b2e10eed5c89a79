"""One quantity in two units ("4 km are 4000 m", "3 min 42 s equals 222 seconds"): whether both are equal."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK, Number, place_of
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.quick_patterns import compile_quick
from distill.word_tables import longest_first, read_table

UNITS: Final[dict[str, tuple[str, float]]] = {
    name: (kind, float(size))
    for kind, units in read_table(__file__).items()
    for *names, size in map(str.split, units.strip().splitlines())
    for name in names
}
"""The kind and the size of a unit by each of its names."""
UNIT: Final = longest_first(map(re.escape, UNITS))
_CENTS: Final = {"quarters": 25, "dimes": 10, "nickels": 5, "pennies": 1}
UNIT_WORDS: Final = frozenset(word for unit in (*UNITS, *_CENTS, "dozen") for word in re.findall(r"[a-z]+", unit)[:1])
"""The letters that each unit begins with, as words."""
_ONE: Final = rf"N ?(?:{UNIT})(?![a-z(/^])"
_SAME: Final = compile_quick(
    rf"(?<![-+*/^=] )(?<![-+*/^=\w(]){_ONE}(?:(?: and |, | \+ | ){_ONE}){{0,3}}(?P<tie>,? ?(?:which |that )?"
    rf"(?:is|are|equals?|=|same|corresponds to|makes?)) ?{_ONE}(?:(?: and | ){_ONE})?"
    r"(?! ?[-+*/^]| (?:more|less|longer|shorter|per|times)\b)"
)
_PRECEDED: Final = re.compile(rf"{_ONE}(?: and |, | \+ | )$")
_LOOKED_BACK: Final = 30
_DOZEN: Final = compile_quick(
    r"(?<![-+*/^=] )\bN dozen (?:[a-z]+ )?(?:is|are|=|equals?|makes?) ?N(?! ?[-+*/^]| dozen)"
)
_COINS: Final = compile_quick(
    r"\bN (quarters|dimes|nickels|pennies) (?:are|make|is) (?:worth )?N( cents)?(?! ?[-+*/^])"
)
_SCALED: Final = re.compile(r"\b(?:maps?|scales?|drawings?|blueprints?|plans?|models?)\b")
_READ: Final = re.compile(rf"N ?({UNIT})(?![a-z(/^])")


def find_unit_claims(
    sentence: str, words: frozenset[str], numbers: Sequence[Number], offset: int, text: str
) -> Iterator[ArithmeticClaim]:
    """Quantities that a sentence of these words states in two units; its first number has the index `offset`.

    `text` is the text of the sentence.
    """
    if words.isdisjoint(UNIT_WORDS):
        return
    for match in _SAME.finditer(sentence):
        units = [UNITS[unit] for unit in _READ.findall(match[0])]
        first = place_of(match, offset)
        own = numbers[first : first + len(units)]
        if units[0][0] in ("length", "feet") and _is_scaled(text):
            continue
        if _PRECEDED.search(sentence, max(0, match.start() - _LOOKED_BACK), match.start()):
            continue  # a sum of more parts than are read
        if len({kind for kind, _ in units}) == 1 and len({size for _, size in units}) > 1:
            sizes = [number.value * size for number, (_, size) in zip(own, units, strict=True)]
            cut = match[0].count(MARK, 0, match.start("tie") - match.start())
            size = units[-1][1]
            # What the last of the stated numbers comes to: "95 minutes are 1 hour and 35 minutes".
            expected = (sum(sizes[:cut]) - sum(sizes[cut:-1])) / size
            right = stands_for(own[-1].value, own[-1].unit, expected, False)
            yield ArithmeticClaim(first, first + len(units) - 1, right, expected, ("units", *sizes[:cut]))
    for match in _COINS.finditer(sentence):
        first = place_of(match, offset)
        coins, worth = numbers[first : first + 2]
        expected = coins.value * _CENTS[match[1]] / (1 if match[2] else 100)
        right = stands_for(worth.value, worth.unit, expected, False)
        yield ArithmeticClaim(first, first + 1, right, expected, ("coins", match[1], coins.value))
    if " dozen " in sentence:
        for match in _DOZEN.finditer(sentence):
            first = place_of(match, offset)
            dozens, pieces = numbers[first : first + 2]
            right = pieces.value == 12 * dozens.value
            yield ArithmeticClaim(first, first + 1, right, 12 * dozens.value, ("dozen", dozens.value))


@lru_cache(maxsize=1)
def _is_scaled(text: str) -> bool:
    """Whether a text is about a map or a drawing, where a length represents a real length: "2 cm are 1 km"."""
    return _SCALED.search(text) is not None
