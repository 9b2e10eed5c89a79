"""Whether the teacher declines, or says that it sees no image, anywhere in its text.

A refusal as the whole answer is already an outcome of generate; this signal also finds one inside a rationale and in
other languages. A hedge ("it seems that I cannot see the image") is a refusal; quotes and conditions are not. An
answer that only says that the question has no answer ("cannot be determined") is a refusal, unless the gold answer
says the same or the answer is one of the options. Remarks about what cannot be seen in a picture are no refusal.
Whether a refusal is justified is not measured.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa

from distill.types import Outcome, Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, SignalOfEachTrace, family
from filters.text.refusal_phrases import ABSTENTION, BY_PART, BY_WORD, NOT_AFTER, PATTERNS
from filters.text.scripts import latin_alone
from filters.text.vocabulary import plain, vocabulary
from filters.text.words import has_east_asian

_WORDS: Final = frozenset(BY_WORD)
_ABSTENTION_CHARACTERS: Final = 400
"""A longer answer explains: its result is for the answer judge."""
_QUOTES: Final = "\"“”'‘’«» \n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(SignalOfEachTrace):
    name: ClassVar[str] = "refusal"
    version: ClassVar[str] = "2"
    columns: ClassVar[pa.Schema] = family(
        "refusal",
        refusal=("flag", "the teacher declines or says that it sees no image, in the rationale or in the answer"),
        refusal_phrase=("text", "the words that decline, in lower case"),
    )

    def row(self, sample: Sample, trace: Trace) -> dict[str, Any]:
        if not (trace.answer or trace.reasoning).strip() and trace.outcome != Outcome.REFUSAL:
            return {"refusal_state": NOT_APPLICABLE}
        phrase = refusal_phrase(trace.reasoning) or refusal_phrase(trace.answer) or abstention(sample, trace.answer)
        return {
            "refusal_state": OK,
            "refusal": phrase is not None or trace.outcome == Outcome.REFUSAL,
            "refusal_phrase": phrase,
        }


def refusal_phrase(text: str) -> str | None:
    """The words of a text that decline or say that there is no image; None without any."""
    known_words = vocabulary(text)
    pattern_numbers = {
        pattern_number
        for word in _WORDS & known_words
        for needed_words, pattern_number in BY_WORD[word]
        if needed_words <= known_words
    }
    if not latin_alone(text) and has_east_asian(text):
        pattern_numbers |= {pattern_number for part, pattern_number in BY_PART if part in text}
    if not pattern_numbers:
        return None
    lowered = plain(text).strip(_QUOTES)
    for pattern_number in sorted(pattern_numbers):
        for match in PATTERNS[pattern_number].finditer(lowered):
            before = lowered[lowered.rfind("\n", 0, match.start()) + 1 : match.start()]
            if not before.endswith(NOT_AFTER) and not _quoted(before):
                return match[0].strip()
    return None


def _quoted(before: str) -> bool:
    """Whether the text after this beginning of a line is in quotes that the beginning opened."""
    return before.count('"') % 2 == 1 or before.count("“") > before.count("”") or before.endswith((" '", "‘", "«"))


def abstention(sample: Sample, answer: str) -> str | None:
    """The words by which an answer says that nothing can be known, where the gold answer and the options do not."""
    if not sample.answers or len(answer) > _ABSTENTION_CHARACTERS:
        return None
    match = ABSTENTION.search(plain(answer).strip())
    if match is None or any(ABSTENTION.search(plain(text)) for text in (*sample.answers, *sample.options)):
        return None
    return match[0]
