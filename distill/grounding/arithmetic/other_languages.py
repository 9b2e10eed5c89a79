"""Puts the words of calculations in other languages into English, so that one set of readings reads them all.

Only words of quantities, operations and results are translated: "quedan 97 de 152" becomes "leaves 97 of 152".
Works on a text in lower case. The names of things stay, since no reading needs them.
"""

import re
from functools import partial
from typing import Final, NamedTuple

from distill.grounding.arithmetic.quick_patterns import longest_literal
from distill.word_tables import read_table, word_set


class _Language(NamedTuple):
    marks: frozenset[str]
    """Words, or signs of another script, of which a text in this language has at least `fewest`."""
    fewest: int
    phrases: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...]
    """A quick look, parts of sentences with the numbers in them, and their English."""
    word: re.Pattern[str]
    english: dict[str, str]


def _language(table: dict[str, str]) -> _Language:
    pairs = [[part.strip() for part in line.split("->")] for line in table["words"].strip().splitlines()]
    english = {word: said for words, said in pairs for word in words.split("|")}
    listed = "|".join(re.escape(word) for word in sorted(english, key=len, reverse=True))
    phrases = [[part.strip() for part in line.split("->")] for line in table["phrases"].strip().splitlines()]
    return _Language(
        marks=word_set(table["marks"]),
        fewest=int(table.get("fewest", "2")),
        phrases=tuple((_look(pattern), re.compile(pattern.replace("#", _NUMBER)), said) for pattern, said in phrases),
        word=re.compile(rf"\b(?:{listed})\b" if table.get("spaced", "yes") == "yes" else listed),
        english=english,
    )


def _look(pattern: str) -> re.Pattern[str]:
    """A fast search for a text that each match of a pattern holds; after a digit, if it follows the first number."""
    literal = longest_literal(pattern.replace("#", "[0]"))
    look = re.escape(literal)
    return re.compile(rf"{look}(?<=\d{look})" if literal and pattern.startswith(f"#{literal}") else look)


_NUMBER: Final = r"([\d.,](?<![\d.,].)[\d.,]*(?<=\d))"
"""A search for its first sign finds its place many times faster than one for `[\\d.,]*\\d`."""
_LANGUAGES: Final = tuple(map(_language, read_table(__file__).values()))
_LATIN: Final = tuple(language for language in _LANGUAGES if "".join(language.marks).isascii())
_OTHERS: Final = tuple(language for language in _LANGUAGES if language not in _LATIN)
MARK_WORDS: Final = frozenset[str]().union(*(language.marks for language in _LATIN))
_GROUPED: Final = re.compile(r"[1-9](?<![\d.,].)\d{0,2}(?: \d{3})+(?!\d|[.,]\d{3})")
"""A number whose thousands stand apart, as French and Spanish write it: 86 200."""
_DECIMAL: Final = re.compile(r"(\d(?<![\w.,].)\d{0,5}),(\d\d?)(?![\d,]|\.\d)")
_THOUSANDS: Final = re.compile(r"\d,\d{3}(?!\d)")
_OTHER_SCRIPT: Final = re.compile("[\u0900-\u097f\u3040-\u30ff\u3400-\u9fff]")
_LONGEST: Final = 20_000
"""A longer text stays as it is, so that a text takes bounded time."""


def in_english(text: str, words: frozenset[str]) -> str:
    """A text in lower case with the words of its calculations in English; `words` are those of MARK_WORDS in it."""
    if len(text) > _LONGEST:
        return text
    latin = max(_LATIN, key=lambda language: len(language.marks & words) / language.fewest)
    if len(latin.marks & words) >= latin.fewest:
        if latin.fewest > 1 and not _THOUSANDS.search(text):  # not English
            text = _DECIMAL.sub(r"\1.\2", text)
        return _translated(_GROUPED.sub(_ungrouped, text), latin)
    for language in _OTHERS if _OTHER_SCRIPT.search(text) else ():
        if sum(mark in text for mark in language.marks) >= language.fewest:
            return _translated(text, language)
    return text


def _translated(text: str, language: _Language) -> str:
    for look, pattern, said in language.phrases:
        if look.search(text):
            text = pattern.sub(said, text)
    if any(map(text.__contains__, language.english)):
        text = language.word.sub(partial(_english, language.english), text)
    return text


def _ungrouped(match: re.Match[str]) -> str:
    return match[0].replace(" ", "")


def _english(english: dict[str, str], match: re.Match[str]) -> str:
    return english[match[0]]
