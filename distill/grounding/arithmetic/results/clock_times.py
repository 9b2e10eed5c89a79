"""Times of the day and what lies between them: "starts at 7:45, lasts 2 h 20 min, so it ends at 10:05".

A claim has two times and a duration, of which the last is drawn from the others. A duration may have two parts.
"""

# ruff: noqa: E501
# A phrase broken over lines cannot be read as a phrase.

import re
from collections.abc import Iterator, Sequence
from typing import Final

from distill.grounding.arithmetic.canonical_text import MARK, UNREADABLE, Number
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.word_tables import word_set

_HALF_DAY: Final = 720
_PARTS: Final = re.compile(
    r"(?P<clock>(?<![N:])N:N(?!:N|:)(?: ?[ap]\.?m\b\.?)?)|(?P<hour>\bN(?: ?[ap]\.?m\b\.?| in the (?:morning|afternoon|evening)\b))"
    r"|(?P<hours>\bN (?:hours?|hrs?|h)\b)(?:,? (?:and )?(?P<minutes>N (?:minutes?|mins?|m)\b))?|(?P<only>\bN (?:minutes?|mins?)\b)"
    r"|(?P<an>\b(?:an|one) hour(?: and (?:a half|(?P<and>N (?:minutes?|mins?))))?\b)|(?P<half>\bhalf an hour\b)"
    r"|(?P<other>N(?::N)*)"
)
_LATE: Final = re.compile(r"p|noon|evening")
DAY_WORDS: Final = word_set("morning afternoon evening")
_LATER: Final = word_set(
    """so thus hence until till end ends ended ending finish finishes finished arrive arrives arrived arriving lands
    land is was returns back = gives later earlier over be"""
)
_LASTS: Final = word_set("""so thus hence takes took take lasts lasted last which that apart for is = means within""")
_OTHER_CLOCKS: Final = re.compile(
    r"\b(?:zone|gmt|utc|local|ahead|behind|delay|delayed|late|fast|slow|break|average|score|ratio|pace|est|cet)\b"
)
_LISTED: Final = re.compile(r"N:N(?: [ap]\.?m\.?)?(?:,| and| or|, and)(?: at)? N:N")
_MOST_DURATIONS: Final = 2


def find_clock_claims(sentence: str, numbers: Sequence[Number], offset: int) -> Iterator[ArithmeticClaim]:
    """The claims of a canonical sentence whose first number has the index `offset`."""
    if UNREADABLE in sentence or _OTHER_CLOCKS.search(sentence):
        return
    times: list[float] = []
    durations: list[float] = []
    order = ""
    place, end, before_last = offset, 0, ""
    for match in _PARTS.finditer(sentence):
        values = [number.value for number in numbers[place : place + match[0].count(MARK)]]
        before_last, end = sentence[end : match.start()], match.end()
        if match["clock"] or match["hour"]:
            hours, minutes = values if match["clock"] else (values[0], 0.0)
            if hours > 24 or minutes > 59 or any(number.percent for number in numbers[place : place + len(values)]):
                return
            half = _HALF_DAY if hours < 12 and _LATE.search(match[0]) else 0
            times.append(hours * 60 + minutes + half)
            order += "t"
        elif match["other"]:
            return  # a number of something else
        else:
            durations.append(_minutes(match, values))
            order += "d"
        place += len(values)
    if _LISTED.search(sentence):
        return  # "at 8:15 and at 8:45"
    if len(times) != 2 or not 1 <= len(durations) <= _MOST_DURATIONS:
        return
    words = set(re.findall(r"[a-z]+|=", before_last))
    if words.isdisjoint(_LATER if order.endswith("t") else _LASTS) and not re.match(
        r"[ a-z,]*\b(?:later|earlier|after|before|apart|long)\b", sentence[end:]
    ):
        return
    passed = times[1] - times[0]
    sums = [sum(durations), *durations, abs(durations[0] - durations[-1])] if len(durations) > 1 else durations
    right = any((passed - sign * minutes) % _HALF_DAY == 0 for minutes in sums for sign in (1, -1))
    yield ArithmeticClaim(offset, place - 1, right, None, ("clock", *times, *durations))


def _minutes(match: re.Match[str], values: list[float]) -> float:
    if match["half"]:
        return 30.0
    if match["an"]:
        return 60 + (values[0] if match["and"] else 30.0 if "half" in match[0] else 0.0)
    if match["only"]:
        return values[0]
    return 60 * values[0] + (values[1] if match["minutes"] else 0.0)
