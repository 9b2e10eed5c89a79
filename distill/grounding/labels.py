"""Where a text names a label of a chart's table, and where it names something in a label's place that is none.

A strange label is a colour (month, day, quarter) beside a table whose labels are colours, "the X bar" of an unknown
X, or an unknown name with a number of its own. What shares a word with the table or the question is no stranger.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from distill.grounding.canonical_text import most_numbers
from distill.grounding.chart_table import COLOURS, DAYS, MONTHS, QUARTERS, ChartTable
from distill.grounding.numbers_in_text import Item, numbers, word_set, written_numbers

_PARTS: Final = ("bar", "column", "slice", "segment", "wedge", "sector", "category", "portion")
_NAMED = re.compile(
    r"(?<![a-z])([A-Z][A-Za-z&'.-]*(?: \(?[A-Za-z&'.-]+\)?){0,3}?)\**"
    r"(?:\**[ \t]*(?::|=|\(|\|| - | -> | → | is| was| at| has| with| stands at| comes to| accounts for|, which is)"
    r"[ \t]*"
    r"(?:at |about |a value of |around )?\**)[$€£]?-?\d"
)
_ABOUT: Final = ("about", "around", "a value of")
_TIES: Final = (*":=(|->→", " is", " was", " at", " has", " with", " comes to", " accounts for")
"""What _NAMED ends with before the number, but for spaces, signs and _ABOUT."""
_BRACKETED = re.compile(r"\(([A-Z][A-Za-z&' .-]*)\)")
_GENERAL = re.compile(rf"\d.*|.|{'|'.join(sorted(COLOURS))}")
_LETTERS = re.compile(r"[a-zA-Z]+")
_TO_SPACES: Final = bytes(code if code < 128 and chr(code).isalpha() else 32 for code in range(256))
_WORD = re.compile(r"[^\W_]+")
_MANY: Final = 40
_NAME_CHARACTERS: Final = 200
"""Before a number, in which its name stands."""
_GENERIC: Final = word_set(
    """sorted sorting ordered ranking ranked counting rounding rounded converting assuming checking starting ending
    calculated computed simplified simplifying altogether respectively hmm alternatively finding comparison
    threshold limit target cutoff cut-off baseline goal input output required entry entries estimate estimated
    result results remainder quotient product multiplying multiplied divided subtracted added lines bars columns
    a about above according add adding after all also altogether amount an analysis and another answer
    approach approximately around as at average averages axis bar based because before below big biggest
    blue both bottom but by calculate calculation category change chart check choice colored coloured column
    combine combined combining compare compared comparing compute computing conclusion correct corresponding
    count current dark data decrease denominator desired difference different divide dividing each end
    entire equal equals equation every exactly explanation fifth fig figure final finally find first for
    formula four fourth from gap given graph greatest grouped growth hence here high higher highest hmm
    horizontal how however i i'll identify if in increase initial is it its key label labels largest last
    left leftmost legend less let let's light likewise locate long longest looking low lower lowest main max
    maximum mean median middle min minimum minus month more multiply my new next no not note now number
    numerator observation of ok okay old on one only option or other others over overall page part parts
    peak people percent percentage plus population previous price question range rate ratio read reading
    recall relevant remaining remember required respective rest result revenue right rightmost row said
    sales same scale score second share short shortest similarly since single sixth small smallest so
    solution source stacked start step sub subtract subtracting sum summary summing survey table tall
    tallest target than that the their them then there therefore these they third this those three thus
    times title to together top total two under unit units using value values verified verify vertical wait
    we we'll what when where which while who whole why with x y year years yes
    """
)


def read_items(text: str, table: ChartTable, familiar: frozenset[str]) -> list[Item] | None:
    """The labels and numbers of a plain text in their order; None where it holds more than are judged.

    `familiar` are the words of question and title.
    """
    limit = most_numbers(text)
    spans = written_numbers(text, limit + 1)
    if len(spans) > limit:
        return None
    named = labels(text, lower_case(text), table, familiar, spans)
    if len(named) > 2 * limit:
        return None
    items = merged(text, named, numbers(text, spans))
    return items if len(items) <= 3 * limit else None


def lower_case(text: str) -> str:
    """A text in lower case, in which everything stands where it stood; as it is where that cannot be."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text


def labels(
    text: str, lower: str, table: ChartTable, familiar: frozenset[str], spans: list[tuple[int, int]]
) -> list[Item]:
    """Every label and strange label in the order of the text.

    `familiar` are the words of question and title, `spans` the places of numbers.
    """
    found: list[tuple[int, int, str, bool]] = []
    # In the long run, a set of the text's words is cheaper than looking for each label that is not there.
    said = _letters(lower) if len(table.under) > _MANY else None
    for label in table.under:
        if said is not None and (initial := _LETTERS.match(label)) is not None and initial[0] not in said:
            continue
        place = lower.find(label)
        plain_word = label.isalpha() and len(label) > 1
        while place >= 0:
            end = place + len(label)
            if plain_word:
                if not (lower[place - 1 : place].isalnum() or lower[end : end + 1].isalnum()):
                    found.append((place, -end, label, True))
            elif _whole(text, lower, place, end, label):
                found.append((place, -end, label, True))
            place = lower.find(label, end)
    for kind in table.kinds:
        for word in _strangers(kind, table.words):
            if word in lower:
                for match in re.finditer(rf"\b{word}\b", lower):
                    if kind in (COLOURS, QUARTERS) or text[match.start()].isupper():
                        found.append((match.start(), -match.end(), word, False))
    if len(table.under) > 1 and not table.years:
        for part in _PARTS:
            if (place := lower.find(f" {part} ")) >= 0:
                found += _strange_parts(lower, part, place, table.words, familiar)
        if not table.kinds:
            for match in _named(text, spans):
                if _strange(match[1].lower(), table.words, familiar):
                    found.append((match.start(1), -match.end(1), match[1].lower(), False))
    found.sort()
    kept: list[Item] = []
    end = -1
    for start, minus_end, label, known in found:
        if start >= end:
            end = -minus_end
            kept.append(Item(start, end, None, False, label, known))
    return kept


def _letters(text: str) -> set[str]:
    """The words of a text, of letters alone."""
    return set(text.encode("ascii", "replace").translate(_TO_SPACES).decode().split())


def _named(text: str, spans: list[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """Each name with a number of its own, the name in group 1: names hold no digits, so one at most before each."""
    end = 0
    for start, after in spans:
        # A look at the end spares most searches.
        gap = text[end:start].rstrip(" \t*$€£")
        if gap.endswith(_ABOUT):
            gap = gap.removesuffix("about").removesuffix("around").removesuffix("a value of").rstrip(" \t")
        if gap.endswith(_TIES):
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
    lower: str, part: str, place: int, words: frozenset[str], familiar: frozenset[str]
) -> Iterator[tuple[int, int, str, bool]]:
    """Each "the X bar" of which the table knows no X; the first bar is at `place`."""
    while place >= 0:
        start = lower.rfind("the ", max(0, place - 32), place)
        phrase = lower[start + 4 : place] if start >= 0 else ""
        if (
            phrase
            and phrase.replace(" ", "").isalpha()
            and phrase.count(" ") < 3
            and _strange(phrase, words, familiar)
        ):
            yield start + 4, -place, phrase, False
        place = lower.find(f" {part} ", place + 1)


def _whole(text: str, lower: str, place: int, end: int, label: str) -> bool:
    """Whether a label found in the text stands there as a word, and a year not inside a longer number."""
    before, after = lower[place - 1 : place], lower[end : end + 1]
    if before.isalnum() or after.isalnum():
        return False
    if label.isdigit():
        return before not in (".", "$") and not (after in (".", ",") and lower[end + 1 : end + 2].isdigit())
    return len(label) > 1 or text[place].isupper()


@lru_cache(maxsize=1 << 10)
def _strangers(kind: frozenset[str], words: frozenset[str]) -> tuple[str, ...]:
    """The words of a kind that are none of the table's, nor short for one or another spelling of it."""
    known = words | ({"gray", "grey"} if words & {"gray", "grey"} else set())
    if kind in (MONTHS, DAYS):
        starts = {word[:3] for word in words & kind}
        return tuple(sorted(word for word in kind if word[:3] not in starts))
    return tuple(sorted(kind - known))


@lru_cache(maxsize=1 << 15)
def _strange(phrase: str, words: frozenset[str], familiar: frozenset[str]) -> bool:
    """Whether a phrase could be a label and shares no word with any label, nor the beginning of one."""
    parts = _WORD.findall(phrase)
    return bool(parts) and not any(
        part in _GENERIC or part in words or part in familiar or _GENERAL.fullmatch(part) or _kin(part, words)
        for part in parts
    )


@lru_cache(maxsize=1 << 12)
def _kin(part: str, words: frozenset[str]) -> bool:
    return len(part) > 2 and any(word.startswith(part) or (len(word) > 2 and part.startswith(word)) for word in words)


def merged(text: str, named: list[Item], found: list[Item]) -> list[Item]:
    """Labels and numbers in the order of the text, without the numbers inside labels and words ("GPT-4")."""
    kept: list[Item] = []
    ahead = iter(named)
    label = next(ahead, None)
    for item in found:
        while label is not None and label.start <= item.start:
            kept.append(label)
            label = next(ahead, None)
        end = kept[-1].end if kept else 0
        if end <= item.start and not (
            item.start > end + 1 and text[item.start - 1] == "-" and text[item.start - 2].isalpha()
        ):
            kept.append(item)
    if label is not None:
        kept += [label, *ahead]
    return kept
