"""Claims of a canonical sentence that are read from the roles of its numbers, and not from one phrase.

Each reading needs certain words, or a number of numbers; most sentences do not have them, so the reading is skipped.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK, UNREADABLE, Number
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.reading_effort import ReadingEffort
from distill.grounding.arithmetic.results.clock_times import DAY_WORDS, find_clock_claims
from distill.grounding.arithmetic.results.conclusions import CONCLUSION_WORDS, LINKING_BACK, find_conclusions
from distill.grounding.arithmetic.results.listed_values import FACT_WORDS, find_list_claims
from distill.grounding.arithmetic.results.number_roles import NumberedSentence, cut_at_numbers
from distill.grounding.arithmetic.results.percentages import find_percentage_claims
from distill.grounding.arithmetic.results.rates import RATE_WORDS, find_rate_claims
from distill.grounding.arithmetic.results.running_results import STEP_WORDS, find_running_claims
from distill.grounding.arithmetic.results.shapes import MEASURE_WORDS, find_shape_claims
from distill.grounding.arithmetic.results.time_spans import find_page_claims, find_year_claims, may_be_year
from distill.word_tables import word_set

OVERRULED: Final = word_set(
    """wrong mistake mistaken mistakenly incorrect misread miscounted false slip error not cannot t instead rather
    oops would suppose whether unless estimate estimated guess should could must might wants goal"""
)
_JOINING: Final = word_set("so hence thus therefore")
_PAGES: Final = word_set("page pages")
RESULT_WORDS: Final = (
    CONCLUSION_WORDS
    | RATE_WORDS
    | FACT_WORDS
    | MEASURE_WORDS
    | STEP_WORDS
    | OVERRULED
    | _JOINING
    | _PAGES
    | DAY_WORDS
)
"""All words that are asked for."""
_MOST_NUMBERS: Final = 16
_FEWEST, _OF_RATE, _OF_PROPORTION, _TWO_YEARS = 2, 3, 4, 2
_SIGN_AFTER_WORD: Final = re.compile(r"[a-z] [-+*] N")
_LONGEST_PIECE: Final = 120
"""Characters between two numbers of one statement, at most."""
_UNREAD_SIGN: Final = re.compile(rf'[?|"_\[{UNREADABLE}]')
_GOES_ON: Final = re.compile(r"N and [aN] (?:half|third|quarter|fifth)")
WITH_ANOTHER: Final = "together with"
"""A number that is not said belongs to the result."""

Reading = Callable[[NumberedSentence], Iterator[ArithmeticClaim]]
"""Reads the claims of a sentence."""


def is_unread(sentence: str) -> bool:
    """Whether it has signs of questions, tables, programs or dates, or a number that goes on: "two and a half"."""
    return _UNREAD_SIGN.search(sentence) is not None or _GOES_ON.search(sentence) is not None


def find_stated_results(
    sentence: str,
    words: frozenset[str],
    numbers: Sequence[Number],
    offset: int,
    before: Sequence[tuple[str, int]],
    effort: ReadingEffort,
) -> Iterator[ArithmeticClaim]:
    """The claims of a sentence of these words; its first number has the index `offset`.

    `before` are the sentences just before it that hold numbers, each with the index of its first one.
    """
    if not words.isdisjoint(OVERRULED) or WITH_ANOTHER in sentence or is_unread(sentence):
        return
    count = sentence.count(MARK)
    if count > _MOST_NUMBERS:
        return
    own = numbers[offset : offset + count]
    if "N:N" in sentence or " am" in sentence or " pm" in sentence or not words.isdisjoint(DAY_WORDS):
        if count > _FEWEST:
            yield from find_clock_claims(sentence, numbers, offset)
        if "N:N" in sentence:
            return
    readings = _readings(sentence, words, own) if count > _FEWEST else _readings_of_few(words, bool(before))
    if not readings:
        return
    numbered = cut_at_numbers(sentence, numbers, offset, effort, before)
    if max(map(len, numbered.pieces)) > _LONGEST_PIECE:
        return
    for reading in readings:
        yield from reading(numbered)


def _readings(sentence: str, words: frozenset[str], own: Sequence[Number]) -> list[Reading]:
    """The readings that may find a claim in a sentence of these words and numbers."""
    count = len(own)
    readings: list[Reading] = []
    if not words.isdisjoint(MEASURE_WORDS):
        readings.append(find_shape_claims)
    elif not words.isdisjoint(CONCLUSION_WORDS):
        readings.append(find_conclusions)
    if not words.isdisjoint(FACT_WORDS):
        readings.append(find_list_claims)
    if (count == _OF_RATE and not words.isdisjoint(RATE_WORDS)) or (
        count == _OF_PROPORTION and (";" in sentence or not words.isdisjoint(_JOINING))
    ):
        readings.append(find_rate_claims)
    percents, years = 0, 0
    for number in own:
        percents += number.percent
        years += may_be_year(number)
    if percents:
        readings.append(find_percentage_claims)
    if years == _TWO_YEARS:
        readings.append(find_year_claims)
    if not words.isdisjoint(_PAGES):
        readings.append(find_page_claims)
    if not words.isdisjoint(STEP_WORDS) or (" = " in sentence and _SIGN_AFTER_WORD.search(sentence)):
        readings.append(find_running_claims)
    return readings


def _readings_of_few(words: frozenset[str], has_earlier: bool) -> list[Reading]:
    """The readings that may find a claim in a sentence of one or two numbers."""
    readings: list[Reading] = []
    if not words.isdisjoint(MEASURE_WORDS):
        readings.append(find_shape_claims)
    elif has_earlier and not words.isdisjoint(LINKING_BACK):
        readings.append(find_conclusions)
    if has_earlier:
        if not words.isdisjoint(FACT_WORDS):
            readings.append(find_list_claims)
        if not words.isdisjoint(STEP_WORDS):
            readings.append(find_running_claims)
    return readings
