"""Rates and proportions: a price for each, a speed and a time, "3 pens cost 4, so 12 cost 16"."""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import re
from collections.abc import Iterator
from itertools import permutations
from typing import Final

from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.results.number_roles import NumberedSentence
from distill.word_tables import word_set

_RATE: Final = re.compile(
    r"\b(?:each|per|apiece|every)\b|km/h|\bmph\b|\bm/s\b|\bkph\b|\b(?:an?|one) (?:hour|minute|second|day|week|month|year"
    r"|kg|kilo|kilogram|pound|litre|liter|metre|meter|km|mile|person|piece|night|ticket)\b"
)
_ONE_OF: Final = re.compile(r"^(?:[^.;]*[,;:] )?(?:so )?(?:one|an?|each|every) ((?!total|sum)[a-z]+) (?:[a-z]+ )?$")
_VERBS: Final = word_set(
    """cost costs pay pays paid is are makes make give gives earn earns have has hold holds weigh weighs contain
    contains covers cover takes take need needs uses use fill fills cook cooks grows grow reads read yields = come
    comes lasts last saves produces"""
)
RATE_WORDS: Final = word_set(
    """each per apiece every km mph m kph one hour minute second day week month year kg kilo litre night piece"""
)
_COUNTS: Final = word_set("dozen dozens pair pairs score cents")
"""Words that hide a number, or the unit of a result that is stated in another one."""
STEPS: Final = (
    *(1.0, 60.0, 1 / 60, 3600.0, 1 / 3600, 3.6, 1 / 3.6, 12.0, 1 / 12, 7.0, 1 / 7, 100.0, 0.01, 1000.0, 0.001),
    *(24.0, 10.0, 0.1, 30.0, 52.0),
)
"""Ratios of units in which a rate and what it is applied to may be stated."""
_AND: Final = re.compile(r"\band\b(?! (?:pays?|earns?|gets?|makes?|costs?)\b)|\bwith\b|\bfrom\b|\bfor N\b")
_JOINED: Final = re.compile(r"[;,.]|\bso\b|\bhence\b|\bthus\b")


def find_rate_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """A result of a rate and one number, and the fourth number of a proportion."""
    count = len(sentence.numbers)
    if count not in (3, 4) or any(sentence.is_label(at) for at in range(count)):
        return
    if (
        any(sentence.before(at).operator or sentence.before(at).hedged for at in range(count))
        or sentence.behind(count - 1).operator
    ):
        return
    if any(number.percent for number in sentence.numbers) or not _COUNTS.isdisjoint(sentence.words):
        return
    values = [sentence.value(at) for at in range(count)]
    if min(values) <= 0:
        return
    if count == 3 and (_is_rate(sentence) or _is_of_one(sentence)):
        yield _claim(sentence, [(x * y, (x, y, z)) for x, y, z in permutations(values)])
    elif count == 4 and _is_proportion(sentence):
        yield _claim(sentence, [(x * y / z, (x, y, z, w)) for x, y, z, w in permutations(values)])


def _claim(sentence: NumberedSentence, results: list[tuple[float, tuple[float, ...]]]) -> ArithmeticClaim:
    """Right if one of the numbers is what the others give, in some order."""
    units = {number.value: number.unit for number in sentence.numbers}
    sentence.effort.results -= len(results) * len(STEPS)
    last = len(sentence.numbers) - 1
    right = any(
        stands_for(stated[-1], units[stated[-1]], result * step, False)
        for result, stated in results
        for step in STEPS
    )
    return sentence.claim(0, last, right, None, ("rate", *(number.value for number in sentence.numbers)))


def _is_rate(sentence: NumberedSentence) -> bool:
    """Whether three numbers are a rate, its base, and the result."""
    text = "N".join(sentence.pieces[:-1])
    if not _RATE.search("N".join(sentence.pieces)) or _AND.search(sentence.pieces[2]):
        return False
    words = sentence.pieces[2].split()
    before = sentence.pieces[1].split()
    ends = not sentence.pieces[3].strip(" .,!)").count(" ") > 3
    if words and words[-1].strip(":") in _VERBS and ends:
        return "and" not in before[-1:] and not re.search(r"\band (?:has|have|is|are)\b", text)
    # "he reads 40 pages in 5 days", "it takes 2 hours to cover 90 km"
    return (
        bool(before)
        and before[-1] in _VERBS
        and words[-1:] in (["in"], ["cover"], ["drive"], ["travel"], ["for"], ["at"])
    )


def _is_of_one(sentence: NumberedSentence) -> bool:
    """Whether the first number is the value of one thing, the second a count, and the third the value of this count
    of things."""
    one = _ONE_OF.match(sentence.pieces[0])
    if one is None:
        return False
    counted, stated = sentence.behind(1).name, sentence.pieces[2].split()
    return _is_same(one[1], counted) and stated[-1:] != [] and stated[-1] in _VERBS and len(stated) <= 4


def _is_same(one: str, many: str) -> bool:
    return bool(one) and one.removesuffix("s").removesuffix("e") == many.removesuffix("s").removesuffix("e")


def _is_proportion(sentence: NumberedSentence) -> bool:
    """Whether four numbers are two pairs of the same kinds, the second drawn from the first."""
    if not _JOINED.search(sentence.pieces[2]):
        return False
    names = [sentence.behind(at).name for at in range(4)]
    joins = sentence.pieces[1].split(), sentence.pieces[3].split()
    if len(joins[0]) > 4 or len(joins[1]) > 4 or "and" in (*joins[0], *joins[1]) or "," in sentence.pieces[1]:
        return False
    pairs = (
        _is_same(names[0], names[2]),
        _is_same(names[1], names[3]),
        _is_same(names[0], names[3]),
        _is_same(names[1], names[2]),
    )
    verbs = joins[0][-1:] == joins[1][-1:] and joins[0][-1:] != []
    return (
        (pairs[0] and (pairs[1] or verbs))
        or (pairs[2] and pairs[3])
        or (joins[0] == ["for"] and joins[1][-1:] == ["cost"])
    )
