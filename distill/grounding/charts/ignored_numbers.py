"""Numbers of a rationale that are not values of its chart: enumerations, axis marks, years, counts of bars.

Only the form of a count is checked; bars are not counted again.
"""

import re
from bisect import bisect_left
from functools import lru_cache
from typing import Final

from distill.grounding.charts.chart_table import ChartTable
from distill.grounding.numbers_in_text import Item
from distill.word_tables import word_set

_ENUMERATED = re.compile(
    r"(?:\b(?:row|steps?|column|figure|fig\.?|chart|table|option|question|part|line|number|no\.|p\.|point|item|page|"
    r"section|phase|example|case|stage|bar|group|series|panel|plot|image|quarter|week|day|month|q|top|bottom|first|"
    r"last|next|all|choice|rank|level) (?:\(|#)?|#)$"
)
_BEFORE_ORDINAL: Final = (" ", "(", "#")
_RANGE_END = re.compile(r"\d%?\s?to\s?\$?$")
_OF_OTHERS = re.compile(r"\s(?:people|persons|respondents|adults|participants|students|minutes|seconds|times)\b")
_AXIS = re.compile(r"\b(?:axis|axes|gridlines|ticks?|intervals?|increments?|legend)\b")
_AXIS_WORDS: Final = ("axis", "axes", "gridlines", "tick", "interval", "increment", "legend")
_OF_COUNT = re.compile(
    r" (?:\w+ )?of (?:the |all )?\d+ (?:bars|values|categories|entries|items|countries|years)\b| of \d+[.,]"
)
_COUNTED_BEFORE = re.compile(
    r"(?:\b(?:all|these|those|of the|divided? by|dividing by|count(?: is| of|:)?)|\d of)\s*$"
)
_NEXT_WORD = re.compile(
    r"[\s-]*(?:of the |of these |different |separate |distinct |main |other |colou?red |\w+ed )?\**([a-z]+)"
)
_COUNTED: Final = word_set(
    """bar bars columns rows values numbers slices segments lines categories items labels entries groups series steps
    parts sections countries companies options cases digits colours colors shapes readings"""
)

_MEASURES: Final = word_set(
    """units points dollars euros pounds hours minutes seconds days degrees tons tonnes kilometers kilometres meters
    metres miles thousands millions billions gridlines squares ticks marks cents persons users sales votes"""
)


def is_enumerated(lower: str, item: Item) -> bool:
    """Whether a number is the ordinal of a bar, a step or a figure."""
    before = lower[max(0, item.start - 12) : item.start]
    return before[-1:] in _BEFORE_ORDINAL and _enumerated(before)


@lru_cache(maxsize=1 << 14)
def _enumerated(before: str) -> bool:
    return _ENUMERATED.search(before) is not None


def find_axis_words(lower: str) -> list[tuple[int, int]]:
    """Start and end of each word about axes and their marks, in order."""
    spans = []
    for word in _AXIS_WORDS:
        start = lower.find(word)
        while start >= 0:
            end = start + len(word)
            if _AXIS.match(lower, start):
                spans.append((start, end))
            start = lower.find(word, end)
    spans.sort()
    return spans


def counts_people_or_time(lower: str, end: int) -> bool:
    """Whether a number counts people or time, which the chart may not show."""
    return lower[end : end + 1] == " " and _OF_OTHERS.match(lower, end) is not None


def is_ignored(lower: str, item: Item, sentence_start: int, axes: list[tuple[int, int]], table: ChartTable) -> bool:
    """Whether the table cannot contain a number: a year, an axis mark, the end of a range."""
    number = item.number
    assert number is not None
    start, end, value = item.start, item.end, number.value
    if number.integer and 1500 <= value < 2100 and "," not in lower[start:end]:
        return value not in table.values or is_enumerated(lower, item)
    first = bisect_left(axes, (sentence_start, 0))
    if first < len(axes) and axes[first][1] <= end + 40:
        return True
    if number.integer:
        if is_enumerated(lower, item):
            return True
        if lower[end : end + 1] in (".", ")", ":"):
            line = lower.rfind("\n", max(0, start - 8), start) + 1
            if start - line < 8 and not lower[line:start].strip(" *#-("):
                return True
        if counts_people_or_time(lower, end) and value not in table.values:
            return True
    if number.percent and value == 100:
        return True
    before = max(sentence_start, start - 6)
    return "to" in lower[before:start] and _RANGE_END.search(lower, before, start) is not None


def is_count(lower: str, item: Item, table: ChartTable) -> bool:
    """Whether a small number counts bars, rows, values or labels, or is how often something was done."""
    number = item.number
    assert number is not None
    if not number.integer or item.negative or (number.value > 12 and number.value > max(table.counts)):
        return False
    after = lower[item.end : item.end + 40]
    if after[:1] == " " and _OF_COUNT.match(after):
        return True
    listed = number.value in table.counts
    if listed and _COUNTED_BEFORE.search(lower, max(0, item.start - 12), item.start):
        return True
    word = _NEXT_WORD.match(after) if after[:1] in (" ", "-") else None
    if word is None:
        return False
    return word[1] in _COUNTED or (listed and word[1].endswith("s") and word[1] not in _MEASURES)
