"""Where a text names a label of a chart's table, and where it names something in a label's place that is none.

A strange label is a colour (month, day, quarter) beside a table whose labels are colours, "the X bar" of an unknown
X, or an unknown name with a number of its own. What shares a word with the table or the question is no stranger.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from distill.charts import COLOURS, DAYS, MONTHS, QUARTERS, Table
from distill.statements import Item, word_set

_CLASS_WORDS: Final = {
    kind: re.compile(rf"\b(?:{'|'.join(sorted(kind, key=len, reverse=True))})\b")
    for kind in (COLOURS, MONTHS, DAYS, QUARTERS)
}
_THE_BAR = re.compile(r"\bthe ((?:[a-z][\w'&.-]* ){1,3})(?:bar|column|slice|segment|wedge|sector|category|portion)\b")
_NAMED = re.compile(
    r"([A-Z][A-Za-z&'.-]*(?: \(?[A-Za-z&'.-]+\)?){0,3}?)\**"
    r"(?:\**[ \t]*(?::|=|\(|\|| - | -> | → | is| was| at| has| with| stands at| comes to| accounts for|, which is)"
    r"[ \t]*"
    r"(?:at |about |a value of |around )?\**)[$€£]?-?\d"
)
_IN_BRACKETS = re.compile(r"\d%? ?\(([A-Z][A-Za-z&' .-]*)\)")
_GENERAL = re.compile(rf"\d.*|.|{'|'.join(sorted(COLOURS))}")
_WORD = re.compile(r"[^\W_]+")
_GENERIC: Final = word_set(
    """a about above according add adding after all also altogether amount an analysis and another answer
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


def labels(text: str, lower: str, table: Table, familiar: Collection[str]) -> list[Item]:
    """Every label and strange label in the order of the text; `familiar` are the words of question and title."""
    found: list[tuple[int, int, str, bool]] = []
    for label in table.under:
        place = lower.find(label)
        while place >= 0:
            end = place + len(label)
            if _whole(text, lower, place, end, label):
                found.append((place, -end, label, True))
            place = lower.find(label, end)
    for kind in table.kinds:
        for match in _CLASS_WORDS[kind].finditer(lower):
            if not _known_word(match[0], kind, table.words) and (
                kind in (COLOURS, QUARTERS) or text[match.start()].isupper()
            ):
                found.append((match.start(), -match.end(), match[0], False))
    if len(table.under) > 1 and not table.years:
        if " bar" in lower or " slice" in lower or "segment" in lower:
            for match in _THE_BAR.finditer(lower):
                if _strange(match[1], table.words, familiar):
                    found.append((match.start(1), 1 - match.end(1), match[1].strip(), False))
        if not table.kinds:
            for match in (*_NAMED.finditer(text), *_IN_BRACKETS.finditer(text)):
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


def _whole(text: str, lower: str, place: int, end: int, label: str) -> bool:
    """Whether a label found in the text stands there as a word, and a year not inside a longer number."""
    before, after = lower[place - 1 : place], lower[end : end + 1]
    if before.isalnum() or after.isalnum():
        return False
    if label.isdigit():
        return before not in (".", "$") and not (after in (".", ",") and lower[end + 1 : end + 2].isdigit())
    return len(label) > 1 or text[place].isupper()


def _known_word(word: str, kind: frozenset[str], words: frozenset[str]) -> bool:
    if word in words or (word == "grey" and "gray" in words) or (word == "gray" and "grey" in words):
        return True
    return kind in (MONTHS, DAYS) and any(other[:3] == word[:3] for other in words & kind)


def _strange(phrase: str, words: frozenset[str], familiar: Collection[str]) -> bool:
    """Whether a phrase could be a label and shares no word with any label, nor the beginning of one."""
    parts = _WORD.findall(phrase)
    return bool(parts) and not any(
        part in _GENERIC or part in words or part in familiar or _GENERAL.fullmatch(part) or _kin(part, words)
        for part in parts
    )


@lru_cache(maxsize=1 << 12)
def _kin(part: str, words: frozenset[str]) -> bool:
    return len(part) > 2 and any(word.startswith(part) or (len(word) > 2 and part.startswith(word)) for word in words)


def merged(named: list[Item], found: list[Item]) -> list[Item]:
    """Labels and numbers in the order of the text, without the numbers inside labels."""
    if not named:
        return found
    kept: list[Item] = []
    ahead = iter(named)
    label = next(ahead, None)
    for item in found:
        while label is not None and label.start <= item.start:
            kept.append(label)
            label = next(ahead, None)
        if not kept or kept[-1].end <= item.start:
            kept.append(item)
    if label is not None:
        kept += [label, *ahead]
    return kept
