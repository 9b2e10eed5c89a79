"""The number of steps of a rationale, and how often it backtracks ("Wait, let me recheck").

Steps are what the text marks: numbered steps, else list items, else paragraphs, else sentences. The kind is recorded,
because counts of different kinds are not comparable. Backtracking is a phrase that doubts or redoes the text before
it; "wait" as a noun or "actually" inside a sentence does not count. Whether a step is correct, and whether
backtracking helped, is not measured.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final

import pyarrow as pa

from distill.types import Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, SignalOfEachTrace, family
from filters.text.backtracking_phrases import CLUES, NEEDED, OTHER_WRITING, PATTERNS
from filters.text.scripts import latin_alone
from filters.text.vocabulary import plain, vocabulary
from filters.text.words import has_east_asian

_NUMBERED: Final = re.compile(
    r"(?:[#*_]{1,6} ?)?"
    r"(?:(?:step|schritt|étape|etape|paso|passo|passaggio|stap|krok|шаг|bước|adım|langkah) ?#?(\d{1,3})\b"
    r"|第 ?(\d{1,2}|[一二三四五六七八九十]{1,3}) ?步"
    r"|步骤 ?(\d{1,2}|[一二三四五六七八九十]{1,3})"
    r"|(\d{1,2})[.)](?=\s|\*))",
    re.IGNORECASE,
)
_INLINE: Final = re.compile(r"step (\d{1,2})(?= ?[:.)—–-]|,)", re.IGNORECASE)
_NEAR: Final = 30
"""Characters between two phrases of one turn."""
_ITEM: Final = ("- ", "* ", "• ", "+ ", "– ", "· ")
_STOPS: Final = (".", "?", "!")
_STOPS_ALONE: Final = ("。", "？", "！", "।")
"""These end a sentence whatever follows; the others only before space."""

# Words that are allowed between the beginning of a sentence and the phrase.
_LEAD_WORDS: Final = "oh but no hmm hm ok okay so well and ah uh um yes wait nein aber mais pero ma но"
_LEADS: Final = frozenset(_LEAD_WORDS.split())
_SOFT: Final = " \"“”'*_(,"
_BREAKS: Final = ".!?:;…。\n—–"
_CLUES: Final = frozenset(CLUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(SignalOfEachTrace):
    name: ClassVar[str] = "steps"
    version: ClassVar[str] = "2"
    columns: ClassVar[pa.Schema] = family(
        "steps",
        steps=("count", "steps of the rationale, in the unit that steps_kind names"),
        steps_kind=("text", "the counted unit: numbered steps, list items, paragraphs or sentences"),
        backtracks=("count", "how often the rationale doubts or repeats an earlier part"),
        backtrack_phrase=("text", "the first words that do so, in lower case"),
    )

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        text = trace.reasoning
        if not text.strip():
            return {"steps_state": NOT_APPLICABLE}
        count, kind = count_steps(text)
        phrases = find_backtracks(text)
        return {
            "steps_state": OK,
            "steps": count,
            "steps_kind": kind,
            "backtracks": len(phrases),
            "backtrack_phrase": phrases[0] if phrases else None,
        }


def count_steps(text: str) -> tuple[int, str]:
    """How many steps a rationale has, and of which kind."""
    text = text.strip()
    lines = [line for line in map(str.lstrip, text.split("\n")) if line] if "\n" in text else []
    if lines:
        numbered = _count_consecutive(
            next(filter(None, match.groups())) for line in lines if (match := _NUMBERED.match(line)) is not None
        )
        if numbered:
            return numbered, "numbered"
        items = sum(line.startswith(_ITEM) for line in lines)
        if items > 1:
            return items, "items"
    if "tep 2" in text:
        numbered = _count_consecutive(dict.fromkeys(_INLINE.findall(text)))
        if numbered:
            return numbered, "numbered"
    if "\n\n" in text:
        paragraphs = sum(bool(part.strip()) for part in text.split("\n\n"))
        if paragraphs > 1:
            return paragraphs, "paragraphs"
    return max(1, _sentences(text)), "sentences"


def _sentences(text: str) -> int:
    before_space = sum(text.count(f"{stop} ") + text.count(f"{stop}\n") for stop in _STOPS if stop in text)
    return before_space + sum(map(text.count, _STOPS_ALONE)) + text.endswith(_STOPS)


def _count_consecutive(numbers: Iterable[str]) -> int:
    """How many numbers there are, if two that follow each other count up; else 0: "12." may be a value."""
    texts = list(numbers)
    if not any(_follows(number, next_number) for number, next_number in pairwise(texts)):
        return 0
    return len(texts)


def _follows(number: str, next_number: str) -> bool:
    if number.isascii() and next_number.isascii():
        return int(next_number) == int(number) + 1
    return number != next_number and not number.isascii() and not next_number.isascii()


def find_backtracks(text: str) -> list[str]:
    """The phrases that turn back, in their order."""
    clues = _CLUES & vocabulary(text)
    unspaced = tuple(OTHER_WRITING.finditer(text)) if not latin_alone(text) and has_east_asian(text) else ()
    if not clues and not unspaced:
        return []
    lowered = plain(text)
    spans = [(match.start(), match.end()) for match in unspaced]
    for word in {CLUES[clue] for clue in clues}:
        if word in NEEDED and not NEEDED[word].search(lowered):
            continue
        pattern, at_sentence_start = PATTERNS[word]
        for match in pattern.finditer(lowered):
            start = match.start()
            if at_sentence_start and not _begins_sentence(lowered[max(0, start - 40) : start]):
                continue
            if start and lowered[start].isalnum() and lowered[start - 1].isalnum():
                continue
            spans.append((start, match.end()))
    spans.sort()
    phrases: list[str] = []
    end = -_NEAR - 1
    # "Wait, no, let me recheck" is one turn: what follows within a few words belongs to it.
    for start, stop in spans:
        if start > end + _NEAR:
            phrases.append(lowered[start:stop].strip(" ,.!…—–-"))
        end = max(end, stop)
    return phrases


# A text in a loop asks the same thing thousands of times.
@lru_cache(maxsize=1 << 10)
def _begins_sentence(before: str) -> bool:
    """Whether a sentence begins after these characters, or a word or two before their end, as in "oh no, wait"."""
    if before.endswith("- "):
        return True
    for _ in range(3):
        stripped = before.rstrip(_SOFT)
        if not stripped.strip() or stripped[-1] in _BREAKS or before.endswith("("):
            return True
        word = stripped.split()[-1]
        if word not in _LEADS:
            return False
        before = stripped[: -len(word)]
    return False
