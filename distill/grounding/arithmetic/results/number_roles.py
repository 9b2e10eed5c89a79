"""What the words beside a number of a canonical sentence say of it: a result, a label, an operand.

A sentence is cut at its numbers. The piece before a number may announce an operation ("so the total is"), and the
piece behind it too ("in all", "are left"). Pieces repeat often, so results are cached. Reads English.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from distill.grounding.arithmetic.canonical_text import MARK, Number, is_year
from distill.grounding.arithmetic.equations import ArithmeticClaim
from distill.grounding.arithmetic.expressions import stands_for
from distill.grounding.arithmetic.reading_effort import ReadingEffort
from distill.word_tables import read_table, word_set

_TABLE: Final = read_table(__file__)
_PHRASES: Final = (
    (re.compile(r"\b(?:all )?in all\b|\bin total\b|\ball told\b|\btaken together\b|\bbetween them\b"), "altogether"),
    (re.compile(r"\bon (?:the )?average\b"), "averaging"),
    (re.compile(r"(?:^|(?<=[,;:.] )|(?<=[,;:.] and ))(?:that|this|it|which|they|these|those) "
                r"(?=(?:is|are|was|were|makes?|gives?|leaves?|means|comes? to|brings?|adds? up to)\b)"), "so "),
    (re.compile(r"(?:^|(?<=[,;:.] ))(?:that|this|it)'s\b|\bie\b"), "so is"),
    (re.compile(r"\b(?:for|giving|making) a(?= total)|\bmaking it\b"), "so is"),
)  # fmt: skip
_TOKEN: Final = re.compile(r"[a-z][a-z'-]*|[^\sa-z]")
_WORD: Final = re.compile(r"[a-z]+")


def _cues(beside: str) -> dict[str, str]:
    """The operation that each word announces."""
    return {word: cue for cue, words in _TABLE[beside].items() for word in words.split()}


_CUE_BEFORE: Final = _cues("before")
_CUE_BEHIND: Final = _cues("behind")
CUE_LEADING: Final = _cues("leading")
"""Words before the first of the numbers that a sentence then computes with: "the sum of 4 and 5 is"."""
_FILLERS: Final = word_set(_TABLE["fillers"])
_HEDGES: Final = word_set(_TABLE["hedges"])
_LINKS: Final = word_set(_TABLE["links"])
_CONCLUDING: Final = word_set(_TABLE["concluding"])
_RESULTING: Final = word_set(_TABLE["resulting"])
_NAMES_ONLY: Final = word_set(_TABLE["names_only"])
_OF_CHART: Final = re.compile(r"^ (?:[a-z]+ )?(?:bars|values|slices|numbers|segments|points|columns|rows|lines)\b")
"""Parts of a chart: "the 2 blue bars" have values of their own."""
_OPERATORS: Final = {
    "+": "+", "-": "-", "*": "*", "/": "/", "x": "*", "plus": "+", "minus": "-", "times": "*", "^": "^", "√": "^",
}  # fmt: skip
_OF_GIVEN: Final = word_set(_TABLE["of_given"])
CUE_WORDS: Final = word_set("all told ie gets receives").union(
    _CUE_BEFORE, _CUE_BEHIND, CUE_LEADING, _CONCLUDING, _RESULTING
)
"""Words with one of which a sentence may draw a conclusion."""
_ANY_CUE: Final = CUE_WORDS | word_set(_TABLE["phrased"])
_PUNCTUATION: Final = str.maketrans(",.:;()!", "       ")


class Before(NamedTuple):
    """The text before a number."""

    cue: str
    """The operation that is announced; empty: none."""
    stated: bool
    """The words directly before the number state a result."""
    inferred: bool
    """The words draw a conclusion."""
    bare: bool
    """Nothing but a comma and fillers stands there."""
    appositive: bool
    """A noun behind a comma names it: ", an increase of"."""
    operator: str
    negative: bool
    hedged: bool
    link: str
    """The word that ties the number to those before it."""


class Behind(NamedTuple):
    """The text after a number."""

    cue: str
    operator: str
    """An operator that goes on: the number is an operand."""
    name: str
    """What is counted: the word behind the number."""


def _tokens(piece: str) -> list[str]:
    for pattern, word in _PHRASES:
        piece = pattern.sub(word, piece)
    return _TOKEN.findall(piece)


@lru_cache(maxsize=1 << 14)
def read_before(piece: str) -> Before:
    """What a piece says of the number behind it."""
    cut = max(piece.rfind(";"), piece.rfind(". "), piece.rfind("\n"))
    tokens = _tokens(piece[cut + 1 :])
    negative = piece.endswith("-") and piece[-2:-1] in ("", " ", "(")
    if negative:
        tokens.pop()
    operator = _OPERATORS.get(tokens[-1], "") if tokens else ""
    words, hedged = list(tokens), False
    while words and (words[-1] in _FILLERS or words[-1] in _HEDGES):
        hedged |= words.pop() in _HEDGES
    link = words[-1] if words else ""
    if link == "=":
        return Before("", False, False, False, False, "=", negative, hedged, link)
    cue = ""
    for at in range(len(words) - 1, max(-1, len(words) - 9), -1):
        if words[at] == "," and piece.startswith(" "):
            break  # "12 altogether, so 4": said of the number before
        if words[at] in _CUE_BEFORE:
            given = any(word in _OF_GIVEN for word in words[max(0, at - 2) : at])  # "out of a total of 12"
            cue = "" if given else _CUE_BEFORE[words[at]]
            break
    stated = link in _LINKS or (
        link in _CUE_BEFORE and tokens[-1] not in ("the", "a", "an", "his", "her", "their", "its")
    )
    inferred = not _CONCLUDING.isdisjoint(words[-8:]) or not _RESULTING.isdisjoint(words[-4:])
    bare = link == ","
    clause = piece[piece.rfind(",") + 1 :].split() if "," in piece else []
    appositive = clause[:1] in (["a"], ["an"]) and clause[-1:] == ["of"]
    return Before(cue, stated, inferred, bare, appositive, operator, negative, hedged, link)


@lru_cache(maxsize=1 << 14)
def read_behind(piece: str) -> Behind:
    """What a piece says of the number before it."""
    end = min((at for sign in ".,;:!?()\n" if (at := piece.find(sign)) >= 0), default=len(piece))
    tokens = _tokens(piece[:end])
    first = tokens[0] if tokens else ""
    operator = _OPERATORS.get(first, "") if end == len(piece) or first != "-" else ""
    near = tokens[: tokens.index("of")] if "of" in tokens else tokens
    cue = next((_CUE_BEHIND[token] for token in near[:5] if token in _CUE_BEHIND), "")
    if cue == "difference" and end == len(piece) and "than" in tokens[:6]:
        cue = "than"
    return Behind(cue, operator, first if first.isalpha() else "")


@lru_cache(maxsize=1 << 14)
def _holds_cue(piece: str) -> bool:
    return not _ANY_CUE.isdisjoint(piece.translate(_PUNCTUATION).split())


@dataclass(eq=False)
class NumberedSentence:
    """A canonical sentence, cut at its numbers."""

    pieces: list[str]
    """One more than there are numbers."""
    numbers: Sequence[Number]
    """Its own."""
    text_numbers: Sequence[Number]
    """Those of the whole text."""
    offset: int
    """Where its own begin among them."""
    effort: ReadingEffort
    """What is left of the work for the text."""
    before_it: Sequence[tuple[str, int]] = ()
    """The sentences just before it that hold numbers, each with the index of its first one."""

    @cached_property
    def earlier(self) -> list["NumberedSentence"]:
        """The sentences before it."""
        return [cut_at_numbers(text, self.text_numbers, first, self.effort) for text, first in self.before_it]

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(word for piece in self.pieces for word in _WORD.findall(piece))

    def before(self, index: int) -> Before:
        return read_before(self.pieces[index])

    def behind(self, index: int) -> Behind:
        return read_behind(self.pieces[index + 1])

    def has_cue(self, index: int) -> bool:
        """Whether the words beside a number may announce an operation: a quick look."""
        return _holds_cue(self.pieces[index]) or _holds_cue(self.pieces[index + 1])

    def claim(
        self, first: int, last: int, right: bool, expected: float | None, key: tuple[object, ...]
    ) -> ArithmeticClaim:
        """A claim whose first and last number have these places in the sentence."""
        return ArithmeticClaim(self.offset + first, self.offset + last, right, expected, key)

    def value(self, index: int) -> float:
        """A number with its sign."""
        return -self.numbers[index].value if self.before(index).negative else self.numbers[index].value

    def is_any_of(self, index: int, values: Iterable[float]) -> bool:
        """Whether a number, with its sign, can be one of these values."""
        stated, unit = self.value(index), self.numbers[index].unit
        return any(stands_for(stated, unit, value, False) for value in values)

    def value_at(self, index: int) -> float:
        """A number, or one of a sentence before it: its index is negative."""
        return self.value(index) if index >= 0 else self.text_numbers[self.offset + index].value

    def is_year(self, index: int) -> bool:
        return is_year(self.numbers[index])

    def is_label(self, index: int) -> bool:
        """Whether a number is a name: "row 3", "in 2019", "2019: 15"."""
        words = self.pieces[index].split()
        last = words[-1] if words else ""
        return (
            self.is_year(index)
            or last in _NAMES_ONLY
            or (last == "the" and _OF_CHART.match(self.pieces[index + 1]) is not None)
        )

    def operands(self, end: int) -> list[int]:
        """The numbers before one that may be computed with."""
        return [at for at in range(end) if not self.is_label(at)]


def cut_at_numbers(
    sentence: str,
    numbers: Sequence[Number],
    offset: int,
    effort: ReadingEffort,
    before_it: Sequence[tuple[str, int]] = (),
) -> NumberedSentence:
    """A canonical sentence whose first number has the index `offset`."""
    pieces = sentence.split(MARK)
    return NumberedSentence(pieces, numbers[offset : offset + len(pieces) - 1], numbers, offset, effort, before_it)
