"""How two neighbours in a rationale are tied: labels in one row, a label behind its number, words that point back.

Works on the stretches of text between them, as `distill.grounding.numbers_in_text` does. Knows English.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from distill.grounding.numbers_in_text import PLAIN, TOKEN, WORD_CLASS
from distill.word_tables import word_set

Result = TypeVar("Result")
_LONG: Final = 200
"""No longer stretch of text ties two things together."""


def _cache_short(default: Result) -> Callable[[Callable[[str], Result]], Callable[[str], Result]]:
    """Cache a function of short texts; for a long text return `default`."""

    def decorated(function: Callable[[str], Result]) -> Callable[[str], Result]:
        cached = lru_cache(maxsize=1 << 15)(function)
        return lambda gap: cached(gap) if len(gap) <= _LONG else default

    return decorated


_JOINERS: Final = word_set("→ and & plus minus to through or versus vs over + - / * × ÷ , than from")
_JOIN_FILLERS: Final = word_set(
    """the a of bar bars column columns slice slices segment line lines value values 's in for both year category
    ( ) " ' ** |"""
)


@_cache_short("")
def find_joiner(gap: str) -> str:
    """The word or sign that joins two labels in one row ("A and B", "A + B"); empty if they are not joined."""
    joiner = ""
    for token in TOKEN.findall(gap.lower()):
        if token in _JOINERS:
            joiner = token if not joiner or joiner == "," else joiner
        elif token not in _JOIN_FILLERS:
            return ""
    return joiner


_REVERSE = re.compile(
    r"\s*(?P<word>[a-z]+)?%?(?:,? (?:which (?:is|was) )?(?:reached|seen|recorded|found))?\s*"
    r"(?:\(|\b(?:for|in|during|of)\s)\s*(?:the |year |in |for )*(?:\*\*)?"
)


@_cache_short(False)
def label_follows(gap: str) -> bool:
    """Whether the label after this stretch says what the number before it is ("45 in 2015", "45 (Apple)")."""
    match = _REVERSE.fullmatch(gap.lower())
    return match is not None and WORD_CLASS.get(match["word"] or "of") in (None, PLAIN)


_POINTS_BACK = re.compile(
    r"\b(?:its (?:\w+ )?(?:value|height|top|level|bar|edge|end|reading|label)|it (?:is|was|reads|reaches|shows|stands"
    r"|has|sits|ends|goes|measures|comes)|th(?:is|at) (?:bar|one)|(?:so |and |with )the value|touch\w+|gridline|mark"
    r"|line for)\b"
)
_OF_THESE = re.compile(r"\**[.;:,]? (?:with )?(?:their|the|these) (?:respective )?\w+ (?:are|is|of|being|read)?:? ?$")


@lru_cache(maxsize=1 << 12)
def points_back(gap: str) -> bool:
    """Whether these words refer to the item named last ("its value is", "that one is")."""
    return _POINTS_BACK.search(gap.lower()) is not None


@_cache_short(False)
def announces_row(gap: str) -> bool:
    """Whether these words announce the values of all labels that were just named ("their heights are")."""
    return _OF_THESE.match(gap.lower()) is not None


def points_ahead(gap: str) -> bool:
    """Whether a number is relative to the label after these words ("3.7 points from", "5 more than")."""
    return gap[-20:].lower().removesuffix("the ").endswith((" than ", " from ", " over ", " above ", " below "))
