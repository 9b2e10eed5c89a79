"""Years that pass between two years, ages, and pages that are counted with both ends."""

import re
from collections.abc import Iterator
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK, Number
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.results.number_roles import NumberedSentence
from distill.word_tables import word_set

_FIRST_YEAR, _LAST_YEAR = 1000, 2100
_OLD: Final = word_set("old age aged born lived turned died")
_OF_YEARS: Final = re.compile(
    r"^ years? (?:later|old|after|earlier|before|in all|long|ago|apart|between)\b|^ years?\.?$|^\.?$|^ years of age\b"
)
_STATES: Final = word_set(
    """so was were is lived lasted for aged age of at and after that took within exactly he she it thus hence , to be
    makes = about just only"""
)
_AGED: Final = word_set("aged age at of")
_BOTH_ENDS: Final = word_set("including inclusive both counting school calendar during first through")
_PAGES: Final = re.compile(
    r"\bpages? N(?: to |-| through | until )N\b[^N]{0,40}?\b(?:is|are|makes?|=|so|have) (?:a total of )?N pages\b"
)


def may_be_year(number: Number) -> bool:
    """Whether a number has the size and form of a year."""
    return _FIRST_YEAR <= number.value <= _LAST_YEAR and number.unit == 1 and not number.percent


def find_year_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """The years between two years, and ages."""
    years = [
        at
        for at, number in enumerate(sentence.numbers)
        if may_be_year(number) and sentence.behind(at).name not in ("years", "year")
    ]
    if len(years) != 2:
        return
    span = abs(sentence.numbers[years[0]].value - sentence.numbers[years[1]].value)
    of_age = not _OLD.isdisjoint(sentence.words)
    for index in range(1, len(sentence.numbers)):
        number = sentence.numbers[index]
        words = sentence.pieces[index].replace(",", " , ").split()
        if index in years or number.percent or number.unit != 1 or not _OF_YEARS.match(sentence.pieces[index + 1]):
            continue
        named = sentence.behind(index).name in ("year", "years")
        if not words or words[-1] not in _STATES or not (named or (of_age and words[-1] in _AGED)):
            continue
        spans = {span, span - 1} if of_age else {span}
        if not _BOTH_ENDS.isdisjoint(sentence.words):
            spans.add(span + 1)
        key = ("years", *(sentence.numbers[at].value for at in years))
        yield sentence.claim(years[0], index, number.value in spans, span, key)


def find_page_claims(sentence: NumberedSentence) -> Iterator[ArithmeticClaim]:
    """The number of pages from one to another."""
    text = MARK.join(sentence.pieces)
    for match in _PAGES.finditer(text):
        first = text.count(MARK, 0, match.start())
        start, end, stated = (sentence.numbers[first + at].value for at in range(3))
        expected = end - start + 1
        yield sentence.claim(first, first + 2, stated == expected, expected, ("pages", start, end))
