"""The words of a text: lower case, one spelling, without articles; letters with marks of their own stay whole."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from distill.answers.words.spelling import SPELLINGS

WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS_TEXT: Final = "january february march april may june july august september october november december"
MONTHS: Final = tuple(_MONTHS_TEXT.split())
ABBREVIATIONS: Final = {name[:3]: name for name in (*WEEKDAYS, *MONTHS) if name != "may"} | {
    "tues": "tuesday",
    "thurs": "thursday",
}
_ARTICLE = re.compile(r"\b(?:the|an|The|An|THE|AN|a)\s|^A\s|\b[lL]'(?=[^\W\d_]{2})")
"""A capital A inside a text, or one that ends it, is a name: Group A."""
_INITIALS = re.compile(r"\b(?:[A-Z]\. ){1,3}(?=[A-Z]\.)|\b(?:[A-Za-z]\.){2,}|\b(?:[A-Za-z]\.)+[A-Za-z]\b")
_MARK: Final = "[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0955-\u0957\u0962\u0963]"
"""Combining marks, such as vowel signs and accents: they belong to the letter before them."""
_TOKEN = re.compile(
    r"(?<!\S)-(?=[a-z|√π∞])|\b[a-z](?:\+\+|#)|[-+]?\d+(?:[.,:/]\d+)*"
    rf"|(?:[^\W\d_]{_MARK}*)+(?:'[^\W\d_]+)?|[%$€£¥₹+#&@=<>≤≥≠±°^*/|√∞]"
)


@lru_cache(maxsize=4096)
def tokens(text: str) -> tuple[str, ...]:
    """Lower-case words, numbers and meaningful symbols, without articles."""
    if "." in text:
        text = _INITIALS.sub(lambda initials: initials[0].replace(".", "").replace(" ", ""), text)
    return tuple(SPELLINGS.get(token, token) for token in _TOKEN.findall(_ARTICLE.sub("", text).casefold()))


def only_place(sought: Sequence[str], words: Sequence[str]) -> int | None:
    """The position of the words of `sought` in `words`, if they occur there once."""
    sought, words = tuple(sought), tuple(words)
    places = [start for start in range(len(words)) if sought and words[start : start + len(sought)] == sought]
    return places[0] if len(places) == 1 else None


def unabbreviated(words: tuple[str, ...]) -> tuple[str, ...]:
    """A weekday or month in full."""
    return (ABBREVIATIONS.get(words[0], words[0]),)
