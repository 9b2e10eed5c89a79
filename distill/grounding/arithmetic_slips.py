"""Slips in the arithmetic that a text writes out, in signs or in words; no table, question or image is needed.

A claim is a result that the text states for a calculation: "8 + 6 = 15", "half of 36 is 20", "from 140 to 154, a 12 %
increase". Only sure claims are checked: no questions, negations, unknowns or ranges. A claim that the text corrects
elsewhere is no slip. `distill.grounding.check` compares the numbers with the table of the image. Reads English words,
words of six other languages (`other_languages.toml`), and signs in any language.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from distill.grounding.arithmetic.canonical_text import MARK, Canonical, mark_numbers, max_numbers_of
from distill.grounding.arithmetic.equations import EQUATION_WORDS, ArithmeticClaim, find_equation_claims
from distill.grounding.arithmetic.mixed_units import MIXED, find_mixed_claims
from distill.grounding.arithmetic.multiples import find_multiple_claims
from distill.grounding.arithmetic.reading_effort import ReadingEffort
from distill.grounding.arithmetic.results.near_misses import LIST, NEAR_WORDS, find_near_misses
from distill.grounding.arithmetic.results.stated_results import RESULT_WORDS, find_stated_results
from distill.grounding.arithmetic.table_sums import find_table_claims
from distill.grounding.arithmetic.unit_equations import UNIT_WORDS, find_unit_claims
from distill.grounding.arithmetic.worded_equations import WORDED_WORDS, find_worded_claims

Arithmetic = Literal["right", "slip", "none_stated"]

# "She had 8 stamps. After getting 6 more, she owns 14." is read as one, and "Ana has 8, Ben 6. Ana thus has 2 more".
# The space comes first: a search for one finds its place many times faster than one for what stands before it.
_SENTENCE: Final = re.compile(
    r"\s(?:(?<=[.!?\"')\]]\s)(?:(?<=[.!?]\s)|(?<=[.!?][\"')\]]\s))\s*+(?!after |=|[a-z]+ (?:therefore|thus|hence) )"
    r"|(?<=\n)\s*+)"
)
_TO_SPACES: Final = bytes(code if ord("a") <= code <= ord("z") else 32 for code in range(256))
_WORDS: Final = EQUATION_WORDS | WORDED_WORDS | UNIT_WORDS | RESULT_WORDS | NEAR_WORDS
"""All words that the patterns of claims search for."""
_POINT_GROUP: Final = re.compile(r"(?<![\w.,])([1-9]\d{0,2})\.(\d{3})(?![.,]?\d)")
"""A number that has three decimals or, as much of Europe writes it, is a thousand times as large."""
_TAKEN_BACK: Final = re.compile(
    r"[ .]{0,2}(?:[^\W\d]{1,12}[²³]?)?[ ]?(?:\.{3}|[…,;(–—]|- )\s*"
    r"(?:no|sorry|wait|oops|hmm|rather|i mean|actually|correction)\b(?! (?:more|less|fewer|other|one|need|doubt))"
)
"""What stands behind a result that its author corrects: "17 + 26 = 33... no, 43"."""
_AROUND: Final = 20
_SENTENCE_CHARACTERS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    written: str
    """The claim as it is read: in lower case, its words of calculation in English."""
    expected: float | None
    """The correct result, if it is one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slips:
    checked: int
    """Claims that were judged."""
    slips: tuple[Slip, ...] = ()
    complete: bool = True
    """Whether the whole text was read: it may hold too many numbers, or need too much work."""

    @property
    def verdict(self) -> Arithmetic:
        return "slip" if self.slips else "right" if self.checked else "none_stated"


def find_slips(text: str) -> Slips:
    """Every arithmetic claim of a text that is wrong."""
    marked, arithmetic_claims, complete = _read_claims(text)
    right = {claim.key for claim in arithmetic_claims if claim.right}
    given = {claim.last for claim in arithmetic_claims if claim.right and claim.key[0] == LIST}
    """Results of whole lists: another reading of them has missed a number."""
    wrong = {
        (claim.first, claim.last): claim
        for claim in arithmetic_claims
        if not claim.right and claim.key not in right and claim.last not in given
    }
    if wrong and _POINT_GROUP.search(text):
        # "1.200 + 300 = 1.500" comes out where the point separates thousands, so that it is no sure slip.
        _, other_claims, _ = _read_claims(_POINT_GROUP.sub(r"\1\2", text))
        for claim in other_claims:
            if claim.right:
                wrong.pop((claim.first, claim.last), None)
    spans = marked.number_spans(1 + max(last for _, last in wrong)) if wrong else []
    slips = tuple(
        Slip(written=_as_written(marked.plain, spans[claim.first][0], spans[claim.last][1]), expected=claim.expected)
        for claim in wrong.values()
        if not _TAKEN_BACK.match(marked.plain, spans[claim.last][1])
    )
    return Slips(checked=len(arithmetic_claims), slips=slips, complete=complete)


def _read_claims(text: str) -> tuple[Canonical, list[ArithmeticClaim], bool]:
    """The canonical text, its claims, and whether the whole text was read."""
    max_numbers = max_numbers_of(text)
    marked = mark_numbers(text, max_numbers)
    effort = ReadingEffort.for_numbers(max_numbers)
    arithmetic_claims: list[ArithmeticClaim] = []
    offset = 0
    before: list[tuple[str, int]] = []
    """Sentences directly before this one that hold numbers."""
    kept: list[tuple[str, int]] = []
    """All sentences before it that do."""
    # Each pattern has words without which it cannot match: most sentences spare most searches.
    letters = marked.text.encode("ascii", "replace").translate(_TO_SPACES).decode()
    for start, end in _sentences(marked.text):
        sentence = marked.text[start:end]
        count = sentence.count(MARK)
        if count > 1 or (count and kept):
            words = _WORDS.intersection(letters[start:end].split())
            if count > 1:
                mixed = (
                    list(find_mixed_claims(sentence, marked.numbers, offset))
                    if not words.isdisjoint(UNIT_WORDS) and MIXED.search(sentence)
                    else []
                )
                arithmetic_claims += mixed
                if not mixed:
                    arithmetic_claims += find_equation_claims(sentence, words, marked.numbers, offset, effort)
                    arithmetic_claims += find_unit_claims(sentence, words, marked.numbers, offset, marked.text)
                if count > 2 and " times " in sentence:
                    arithmetic_claims += find_multiple_claims(sentence, marked.numbers, offset)
                arithmetic_claims += find_worded_claims(sentence, words, marked.numbers, offset, effort)
            if count > 1 or before:
                arithmetic_claims += find_stated_results(sentence, words, marked.numbers, offset, before, effort)
            last = arithmetic_claims[-1] if arithmetic_claims else None
            is_given = last is not None and last.right and last.last == offset + count - 1
            if (kept or count > 2) and not is_given:
                arithmetic_claims += find_near_misses(sentence, words, marked.numbers, offset, kept, effort)
            if effort.is_used_up:
                break
        before = [*before[-1:], (sentence, offset)] if count else []
        kept += before[-1:]
        offset += count
    if "|\n" in marked.text:
        arithmetic_claims += find_table_claims(marked.text, marked.numbers)
    return marked, arithmetic_claims, marked.complete and not effort.is_used_up


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence begins and ends; a long one is cut."""
    start = 0
    for end, after in (*(match.span() for match in _SENTENCE.finditer(text)), (len(text), 0)):
        while end - start > _SENTENCE_CHARACTERS:
            yield start, start + _SENTENCE_CHARACTERS
            start += _SENTENCE_CHARACTERS
        yield start, end
        start = after


def _as_written(plain: str, start: int, end: int) -> str:
    return " ".join(plain[max(0, start - _AROUND) : end].split())
