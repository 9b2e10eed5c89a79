"""Text as the signals see it: the words a teacher wrote, and the form in which two texts count as equal."""

import re
import unicodedata
from itertools import chain
from typing import Final

from distill.types import Trace
from filters.text.shared_texts import shared

# Scripts written without spaces: each character is a word, because otherwise a whole paragraph would be one word.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


_MARKS: Final = "".join(
    mark
    for mark in map(
        chr, chain(range(0x300, 0x1E00), range(0x20D0, 0x2100), range(0xA66F, 0xAC00), range(0xFE20, 0xFE30))
    )
    if unicodedata.category(mark) in ("Mn", "Mc")
)


def with_marks(letters: str) -> str:
    """A pattern of a run of these letters (a class of characters) with their combining marks.

    For `re` no mark is a letter. In Hindi, Tamil or Thai, marks are vowels, so words differ by them.
    """
    return f"(?:{letters}+(?:[{_MARKS}]+{letters}*)*|[{_MARKS}]+)"


def words(text: str) -> list[str]:
    """Whitespace words; characters of scripts without spaces are words of their own."""
    return spaced(text).split()


def spaced(text: str) -> str:
    """A text with space around every character of a script that is written without."""
    return _spaced(text) if has_east_asian(text) else text


@shared
def _spaced(text: str) -> str:
    # Split and join give the same as a substitution, and are faster.
    return " ".join(_UNSPACED.split(text))


# The first bytes in UTF-8 of all characters from U+0E00 on but U+2000 to U+2FFF, where dashes, quotes and signs are.
_EAST_ASIAN = bytes([0xE0, 0xE1, *range(0xE3, 0xF5)])
_OTHERS = bytes(byte for byte in range(256) if byte not in _EAST_ASIAN)


def has_east_asian(text: str) -> bool:
    """Whether a text may hold a character of Thai, Khmer, Chinese, Japanese, Korean or a similar script; a fast
    test."""
    return not text.isascii() and bool(text.encode("utf-8", "surrogatepass").translate(None, _OTHERS))


def readable(text: str) -> str:
    """A text in which half of a surrogate pair, which no file can hold, is a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def composed(text: str) -> str:
    """A text in Unicode's canonical composition, in which equal characters are equal code points."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def visible_text(trace: Trace) -> str:
    """The whole text of the teacher: reasoning and answer, or the raw text if both could not be parsed."""
    return "\n".join(part for part in (trace.reasoning, trace.answer) if part) or trace.text


_SHORT_ANSWER = 60
# Arrows, shapes, marks and emoji; not the circled numbers among them, which are numbers anyway.
_PICTOGRAPH = re.compile("[\u2190-\u21ff\u25a0-\u2775\u2794-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]")


def comparable_text(trace: Trace) -> str:
    """The text that the search for near duplicates compares: reasoning and answer.

    A short answer is put in quotes, so that its words count as names: "red" and "blue" after the same reasoning are
    two answers. Its signs count by their names ("check mark"): in a rationale they are layout.
    """
    reasoning, answer = trace.reasoning, trace.answer.strip()
    if answer and len(answer) <= _SHORT_ANSWER and '"' not in answer:
        if not answer.isascii():
            answer = _PICTOGRAPH.sub(lambda sign: f" {unicodedata.name(sign[0], hex(ord(sign[0]))).lower()} ", answer)
        answer = f'"{answer.strip()}"'
        # Unpaired quotes (5" are five inches) have no meaning and would hide the quotes of the answer.
        reasoning = reasoning.replace('"', " ") if reasoning.count('"') % 2 else reasoning
    return "\n".join(part for part in (reasoning, answer) if part)
