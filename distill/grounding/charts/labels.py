"""Labels of a chart's table in a text, and strange labels: names in a label's place that the table does not have.

There are three kinds of unknown labels: a colour (month, day, quarter) if the labels of the table are colours, "the X
bar" with an unknown X, and an unknown name with its own number. A name that shares a word with table or question is
not strange.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from distill.grounding.arithmetic.canonical_text import max_numbers_of
from distill.grounding.charts.chart_table import COLOURS, DAYS, MONTHS, QUARTERS, ChartTable
from distill.grounding.numbers_in_text import Item, count_separators, find_numbers, read_numbers
from distill.word_tables import read_table, word_set

_PARTS: Final = (" bar ", " column ", " slice ", " segment ", " wedge ", " sector ", " category ", " portion ")
_NAMED = re.compile(
    r"([A-Z](?<![a-z].)[A-Za-z&'.-]*(?: \(?[A-Za-z&'.-]+\)?){0,3}?)\**"
    r"(?:\**[ \t]*(?::|=|\(|\|| - | -> | → | is| was| at| has| with| stands at| comes to| accounts for|, which is)"
    r"[ \t]*"
    r"(?:at |about |a value of |around )?\**)[$€£]?-?\d"
)
_ABOUT: Final = ("about", "around", "a value of")
_TIES: Final = (*":=(|->→", " is", " was", " at", " has", " with", " comes to", " accounts for")
"""What _NAMED ends with before the number, but for spaces, signs and _ABOUT."""
_LAST_SIGNS: Final = frozenset(ending[-1] for ending in (*_ABOUT, *_TIES))
_BRACKETED = re.compile(r"\(([A-Z][A-Za-z&' .-]*)\)")
_GENERAL = re.compile(rf"\d.*|.|{'|'.join(sorted(COLOURS))}")
_LETTERS = re.compile(r"[a-zA-Z]+")
_TO_SPACES: Final = bytes(code if code < 128 and chr(code).isalpha() else 32 for code in range(256))
_WORD = re.compile(r"[^\W_]+")
_MANY: Final = 40
_NAME_CHARACTERS: Final = 200
"""Before a number, in which its name stands."""
_GENERIC: Final = word_set(read_table(__file__)["generic"])
"""Words with a capital that are no names of what a chart shows."""


def read_items(text: str, table: ChartTable, familiar: frozenset[str]) -> list[Item] | None:
    """The labels and numbers of a plain text in their order; None if it has too many.

    `familiar` are the words of question and title.
    """
    limit = max_numbers_of(text)
    spans = find_numbers(text, limit + 1)
    if len(spans) > limit or count_separators(text, spans) > 3 * limit:
        return None
    label_items = find_labels(text, lower_case(text), table, familiar, spans)
    if len(label_items) > 2 * limit:
        return None
    items = merge_items(text, label_items, read_numbers(text, spans))
    return items if len(items) <= 3 * limit else None


@lru_cache(maxsize=2)
def lower_case(text: str) -> str:
    """A text in lower case; unchanged if lower case would move positions."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text


def find_labels(
    text: str, lower: str, table: ChartTable, familiar: frozenset[str], spans: list[tuple[int, int]]
) -> list[Item]:
    """Every label and strange label in the order of the text.

    `familiar` are the words of question and title, `spans` the places of numbers.
    """
    matches: list[tuple[int, int, str, bool]] = []
    # For many labels, a set of the text's words is cheaper than a search for each label.
    words_of_text = _letters(lower) if len(table.under) > _MANY else None
    for label in table.under:
        if (
            words_of_text is not None
            and (initial := _LETTERS.match(label)) is not None
            and initial[0] not in words_of_text
        ):
            continue
        start = lower.find(label)
        plain_word = label.isalpha() and len(label) > 1
        while start >= 0:
            span_end = start + len(label)
            if plain_word:
                if not (lower[start - 1 : start].isalnum() or lower[span_end : span_end + 1].isalnum()):
                    matches.append((start, -span_end, label, True))
            elif _is_whole_word(text, lower, start, span_end, label):
                matches.append((start, -span_end, label, True))
            start = lower.find(label, span_end)
    for kind in table.kinds:
        for word in _strange_words(kind, table.words):
            if word in lower:
                for match in re.finditer(rf"\b{word}\b", lower):
                    if kind in (COLOURS, QUARTERS) or text[match.start()].isupper():
                        matches.append((match.start(), -match.end(), word, False))
    if len(table.under) > 1 and not table.years:
        for part in _PARTS:
            if (start := lower.find(part)) >= 0:
                matches += _strange_parts(lower, part, start, table.words, familiar)
        if not table.kinds:
            for match in _names_before_numbers(text, spans):
                if _is_strange(match[1].lower(), table.words, familiar):
                    matches.append((match.start(1), -match.end(1), match[1].lower(), False))
    matches.sort()
    items: list[Item] = []
    span_end = -1
    for span_start, minus_end, label, in_table in matches:
        if span_start >= span_end:
            span_end = -minus_end
            items.append(Item(span_start, span_end, None, False, label, in_table))
    return items


def _letters(text: str) -> set[str]:
    """The words of a text, of letters alone."""
    return set(text.encode("ascii", "replace").translate(_TO_SPACES).decode().split())


def _names_before_numbers(text: str, spans: list[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """Each name with a number of its own, the name in group 1: names hold no digits, so one at most before each."""
    end = 0
    for start, after in spans:
        # A look at the end spares most searches.
        gap = text[end:start].rstrip(" \t*$€£")
        if gap[-1:] in _LAST_SIGNS and gap.endswith(_ABOUT):
            gap = gap.removesuffix("about").removesuffix("around").removesuffix("a value of").rstrip(" \t")
        if gap[-1:] in _LAST_SIGNS and gap.endswith(_TIES):
            # A name has four words at most, a tie two.
            words = gap.rsplit(None, 6)
            first = max(end + len(words[0]) if len(words) > 6 else end, start - _NAME_CHARACTERS)
            near = text[first:start]
            if near != near.lower() and (match := _NAMED.search(text, first, start + 1)):
                yield match
        end = after
    for match in _BRACKETED.finditer(text):
        before = text[max(0, match.start() - 3) : match.start()].removesuffix(" ").removesuffix("%")
        if before[-1:].isdecimal():
            yield match


def _strange_parts(
    lower: str, part: str, part_start: int, words: frozenset[str], familiar: frozenset[str]
) -> Iterator[tuple[int, int, str, bool]]:
    """Each "the X bar" of which the table knows no X; the first bar is at `part_start`."""
    while part_start >= 0:
        start = lower.rfind("the ", max(0, part_start - 32), part_start)
        phrase = lower[start + 4 : part_start] if start >= 0 else ""
        if (
            phrase
            and phrase.replace(" ", "").isalpha()
            and phrase.count(" ") < 3
            and _is_strange(phrase, words, familiar)
        ):
            yield start + 4, -part_start, phrase, False
        part_start = lower.find(part, part_start + 1)


def _is_whole_word(text: str, lower: str, start: int, end: int, label: str) -> bool:
    """Whether a label found in the text is a whole word there, and a year is not inside a longer number."""
    before, after = lower[start - 1 : start], lower[end : end + 1]
    if before.isalnum() or after.isalnum():
        return False
    if label.isdigit():
        return before not in (".", "$") and not (after in (".", ",") and lower[end + 1 : end + 2].isdigit())
    return len(label) > 1 or text[start].isupper()


@lru_cache(maxsize=1 << 10)
def _strange_words(kind: frozenset[str], words: frozenset[str]) -> tuple[str, ...]:
    """The words of a kind that are not in the table, also not in a short form or another spelling."""
    known_words = words | ({"gray", "grey"} if words & {"gray", "grey"} else set())
    if kind in (MONTHS, DAYS):
        starts = {word[:3] for word in words & kind}
        return tuple(sorted(word for word in kind if word[:3] not in starts))
    return tuple(sorted(kind - known_words))


@lru_cache(maxsize=1 << 15)
def _is_strange(phrase: str, words: frozenset[str], familiar: frozenset[str]) -> bool:
    """Whether a phrase could be a label, and shares no word and no beginning of a word with the labels of the
    table."""
    parts = _WORD.findall(phrase)
    return bool(parts) and not any(
        part in _GENERIC
        or part in words
        or part in familiar
        or _GENERAL.fullmatch(part)
        or _shares_beginning(part, words)
        for part in parts
    )


@lru_cache(maxsize=1 << 12)
def _shares_beginning(part: str, words: frozenset[str]) -> bool:
    return len(part) > 2 and any(word.startswith(part) or (len(word) > 2 and part.startswith(word)) for word in words)


def merge_items(text: str, label_items: list[Item], number_items: list[Item]) -> list[Item]:
    """Labels and numbers in the order of the text, without the numbers inside labels and words ("GPT-4")."""
    items: list[Item] = []
    ahead = iter(label_items)
    label = next(ahead, None)
    for item in number_items:
        while label is not None and label.start <= item.start:
            items.append(label)
            label = next(ahead, None)
        end = items[-1].end if items else 0
        if end <= item.start and not (
            item.start > end + 1 and text[item.start - 1] == "-" and text[item.start - 2].isalpha()
        ):
            items.append(item)
    if label is not None:
        items += [label, *ahead]
    return items
