"""Slips in the arithmetic that a text writes out, in signs or in words; no table, question or picture is needed.

A claim is what the text itself says that arithmetic gives: "8 + 6 = 15", "half of 36 is 20", "from 140 to 154, a
12 % increase". Only what is surely a claim is judged: questions, negations, unknowns and ranges are none. A claim
that the text puts right elsewhere is no slip. Whether the numbers are those of the picture is the question of
`distill.grounding.check`. Reads English words, and signs in any language.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from distill.grounding.canonical_text import MARK, Canonical, canonical, most_numbers
from distill.grounding.equations import ArithmeticClaim, claims
from distill.grounding.unit_equations import quantity_claims
from distill.grounding.worded_equations import worded_claims

Arithmetic = Literal["right", "slip", "none_stated"]

# "She had 8 stamps. After getting 6 more, she owns 14." is read as one.
_SENTENCE: Final = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')\]]))\s++(?!after )|\n\s*+")
# There a length of the picture stands for another one of the world: "2 cm are 1 km".
_SCALED: Final = re.compile(r"\b(?:maps?|scales?|drawings?|blueprints?|plans?|models?)\b")
_AROUND: Final = 20
_SENTENCE_CHARACTERS: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    written: str
    """The claim as it stands in the text."""
    expected: float | None
    """What comes out, where that is one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slips:
    checked: int
    """Claims that were judged."""
    slips: tuple[Slip, ...] = ()
    complete: bool = True
    """Whether the whole text was read: it may hold too many numbers."""

    @property
    def verdict(self) -> Arithmetic:
        return "slip" if self.slips else "right" if self.checked else "none_stated"


def find_slips(text: str) -> Slips:
    """Every claim of a text that does not come out."""
    known = canonical(text, most_numbers(text))
    scaled = _SCALED.search(known.text) is not None
    found: list[ArithmeticClaim] = []
    offset = 0
    for sentence in _sentences(known.text):
        count = sentence.count(MARK)
        if count > 1:
            found += claims(sentence, known.numbers, offset)
            found += worded_claims(sentence, known.numbers, offset)
            if not scaled:
                found += quantity_claims(sentence, known.numbers, offset)
        offset += count
    right = {claim.key for claim in found if claim.right}
    wrong = {(claim.first, claim.last): claim for claim in found if not claim.right and claim.key not in right}
    slips = tuple(Slip(written=_written(known, claim), expected=claim.expected) for claim in wrong.values())
    return Slips(checked=len(found), slips=slips, complete=known.complete)


def _sentences(text: str) -> Iterator[str]:
    for piece in _SENTENCE.split(text):
        if len(piece) <= _SENTENCE_CHARACTERS:
            yield piece
        else:
            yield from (piece[at : at + _SENTENCE_CHARACTERS] for at in range(0, len(piece), _SENTENCE_CHARACTERS))


def _written(known: Canonical, claim: ArithmeticClaim) -> str:
    start = max(0, known.numbers[claim.first].start - _AROUND)
    end = known.numbers[claim.last].end
    return " ".join(known.plain[start:end].split())
