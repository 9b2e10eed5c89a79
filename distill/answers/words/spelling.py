"""One spelling for words that English writes in several ways: British and American, abbreviations, countries.

The same word or name gets one spelling. `often_same_thing` covers words that often name the same thing
(phone and smartphone), `are_opposites` opposites.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from distill.word_tables import read_table

_TABLE: Final = read_table(__file__)


def without_accents(text: str) -> str:
    """Letters without the marks that Unicode combines with them."""
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


SPELLINGS: Final[dict[str, str]] = dict(pair.split("=") for pair in _TABLE["spellings"].split())
"""A word to the spelling that stands for all of its spellings."""
SPELLINGS["&"] = "and"
for _word, _standard in list(SPELLINGS.items()):
    SPELLINGS[_word] = SPELLINGS.get(_standard, _standard)

NAMES: Final = {
    **dict.fromkeys(("usa", "us", "united states of america"), "united states"),
    **dict.fromkeys(("uk", "united kingdom of great britain and northern ireland"), "united kingdom"),
    "eu": "european union",
    "un": "united nations",
    "uae": "united arab emirates",
    "nyc": "new york city",
}
"""Whole answers, in lower case and without articles, to the name that stands for them."""

_SIMILAR: Final = tuple(frozenset(group.split("/")) for group in _TABLE["similar"].split())


def often_same_thing(left: str, right: str) -> bool:
    """Whether two words often name the same thing."""
    return any(left in group and right in group for group in _SIMILAR)


OPPOSITES, OPPOSITES_ABROAD = (
    frozenset(frozenset(pair.split("/")) for pair in _TABLE[key].split()) for key in ("opposites", "opposites_abroad")
)
_DENYING: Final = ("un", "in", "im", "il", "ir", "dis", "non")


def are_opposites(left: str, right: str) -> bool:
    """Whether two words are opposites."""
    if frozenset((left, right)) in OPPOSITES:
        return True
    if not 2 <= abs(len(left) - len(right)) <= 3:
        return False
    short, long = sorted((left, right), key=len)
    return len(short) > 3 and long.removesuffix(short) in _DENYING


_PHRASES: Final = tuple(
    (re.compile(rf"\b{pattern}\b", re.IGNORECASE), phrase)
    for pattern, phrase in (
        (r"(?:beneath|underneath)", "under"),
        (r"upper[ -](?=(?:left|right)\b)", "top "),
        (r"lower[ -](?=(?:left|right)\b)", "bottom "),
        (r"(?:lots|a lot) of", "plenty of"),
        (r"(?:two times|2 times) (?=(?:an?|per|each|every)\b)", "twice "),
        (r"(?:per|each|every) (?=(?:hour|day|week|month|year)\b)", "a "),
        (r"per annum", "a year"),
        (r"twice (week|month|year)ly", r"twice a \1"),
        (r"twice daily", "twice a day"),
        (r"fiscal year(?= \d)", "FY"),
    )
)
"""Phrases that mean the same, to one of them."""


@lru_cache(maxsize=4096)
def in_one_phrase(text: str) -> str:
    """A text in which phrases that mean the same are written in one way."""
    for pattern, phrase in _PHRASES:
        text = pattern.sub(phrase, text)
    return text
