"""Text as the signals see it: the words a teacher wrote, and the form in which two texts count as equal."""

import re
import unicodedata

from distill.types import Trace

# Scripts written without spaces: each character stands for itself, or a whole paragraph would be one word.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])"
)


def words(text: str) -> list[str]:
    """Whitespace words; characters of scripts without spaces are words of their own."""
    return spaced(text).split()


def spaced(text: str) -> str:
    """A text with space around every character of a script that is written without."""
    return text if text.isascii() else _UNSPACED.sub(r" \1 ", text)


def normalised(text: str) -> str:
    """Canonical composition and single spaces: what is left when only the layout differs."""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


def written(trace: Trace) -> str:
    """Everything the teacher wrote: reasoning and answer, or the raw text when neither could be parsed."""
    return "\n".join(part for part in (trace.reasoning, trace.answer) if part) or trace.text
