"""Compares what a rationale says of the text in its image with the text that OCR reads there.

Numbers are checked as against a chart's table (`distill.grounding`): numbers that the rationale computes, counts or
takes from the question are no readings. Quoted words that the rationale reads in the image, and names with a number
of their own, are searched for in all of its text. A claim is unsupported where OCR read something else in its place,
or nothing like it in an image that prints its values. It is not checkable if OCR cannot decide: an image without
text, values that are not printed, a label whose number was not found, words that are nearly the same. Knows English.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from rapidfuzz import fuzz

from distill.grounding.charts.derivation import QuestionFacts, read_question
from distill.grounding.charts.ignored_numbers import counts_people_or_time
from distill.grounding.charts.labels import read_items
from distill.grounding.charts.operations import ANY, announced_steps, step_results
from distill.grounding.check import RationaleCheck
from distill.grounding.findings import Reason
from distill.grounding.numbers_in_text import Item, find_last_break, plain_text
from distill.ocr.layout import ImageText, bare, squeeze

Verdict = Literal["supported", "unsupported", "not_checkable"]
_THERE: Final = 85.0
"""From this likeness, in per cent, words count as those of the image: OCR may err in a letter or two."""
_NOT_THERE: Final = 60.0
"""Up to this likeness words are not in the image; between the two OCR cannot tell."""
_FEWEST_LETTERS: Final = 3
_BY_COLUMN: Final = 0.95
"""How sure a reading is that only all the numbers of the image speak against, and no label's own."""
_SAYS: Final = re.compile(
    r"\b(?:says?|said|reads?|reading|written|writes?|labell?ed|labels?|titled?|title|text|words?|printed|heading|header"
    r"|caption(?:ed)?|sign|inscription|inscribed|spells?|logo|shows?|displays?|displayed|marked|name[ds]?|stands?|see|find"
    r"|make out)\b",
    re.IGNORECASE,
)
_LISTS: Final = re.compile(
    r"\b(?:values?|numbers?|figures?|prices?|costs?|amounts?|entr(?:y|ies)|readings?|lists?|listed|gives?|given|chart"
    r"|graph|table|receipt|bill|menu|board)\b"
)
_QUOTED: Final = re.compile(r'"([^"\n]{2,80})"|“([^”\n]{2,80})”|«([^»\n]{2,80})»|(?<![\w])\'([^\'\n]{2,60})\'(?!\w)')
_BEFORE, _AFTER = 90, 40
"""Characters around a quotation in which a word may say that it stands in the image."""
_THINGS: Final = re.compile(r"\s+(?:[a-z]+ ){0,2}([a-z]+s)\b")
_MOST_COUNTED: Final = 99
"""Up to this number, a number before a plural may count things that are no text."""
_SO: Final = re.compile(r"\b(?:so|thus|hence|therefore|answer)\b")
_ANNOUNCED, _STEPS_BACK = 16, 8
"""Characters after a number in which a step is named ("12 apart"); the last numbers that a step may be on."""
_HEDGED: Final = re.compile(
    r"(?:\b(?:about|around|approximately|roughly|nearly|almost|some|estimated)\b|[~≈])\s*[$€£]?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A claim that the text of the image does not support."""

    claim: str
    kind: Literal["number", "name", "quotation"]
    confidence: float
    """How sure it is that the image says something else, 0 to 1."""
    picture: tuple[str, ...] = ()
    """What OCR read in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageClaims:
    supported: int = 0
    unchecked: int = 0
    unread: tuple[Unread, ...] = ()
    complete: bool = True
    """False for a text with too many numbers and names: none of them was checked."""

    @property
    def checked(self) -> int:
        return self.supported + len(self.unread)

    @property
    def verdict(self) -> Verdict:
        return "unsupported" if self.unread else "supported" if self.supported else "not_checkable"


def check_claims(text: str, image: ImageText | None, question: str = "", around: str = "") -> ImageClaims:
    """What of a rationale the text of its image supports; `around` is what a question gives besides (options)."""
    if image is None:
        return ImageClaims()
    # "Number 3" is an ordinal for `distill.grounding`; "the number 3" is a number in the image.
    text = plain_text(text).replace("the number ", "the amount ")
    facts = read_question(question, image.table, around)
    items = read_items(text, image.table, facts.words)
    if items is None:
        return ImageClaims(complete=False)
    check = _ImageCheck(text, items, image, facts)
    numbers = check.run()
    checked = max(0, numbers.checked - numbers.count)
    # What is computed from numbers of the rationale alone says nothing of an image in which OCR reads no number.
    unread = 0 if image.scores else len(numbers.supported)
    quoted = list(_check_quotations(text, image, f"{question} {around}"))
    return ImageClaims(
        supported=checked - unread + sum(verdict == "supported" for verdict, _ in quoted),
        unchecked=check.unchecked + unread + sum(verdict == "not_checkable" for verdict, _ in quoted),
        unread=(*check.unread, *(unread for _, unread in quoted if unread is not None)),
    )


class _ImageCheck(RationaleCheck):
    """The numbers of a rationale, and the names that have one, against the text of an image."""

    __slots__ = ("picture", "unchecked", "unread")

    def __init__(self, text: str, items: list[Item], image: ImageText, question: QuestionFacts) -> None:
        super().__init__(text, items, image.table, question, 0.0, sys.maxsize)
        self.picture, self.unchecked = image, 0
        self.unread: list[Unread] = []

    def report(self, item: Item, reason: Reason, label: str = "", expected: Sequence[float] = ()) -> bool | None:
        """Unsupported if OCR can decide; else the item counts as not checkable, and its number as known."""
        if reason in ("arithmetic", "result") or (item.number is None and reason == "reading"):
            return None  # results of calculations, and bars called an extreme, are no readings of text
        confidence = (
            self._sureness_of_name(item) if item.number is None else self._sureness_of_number(item, label, expected)
        )
        if confidence is None:
            self.unchecked += 1
            return None
        if confidence == 0.0:
            return True
        self.count += 1
        written = f"{'-' * item.negative}{self.text[item.start : item.end]}"
        self.unread.append(
            Unread(
                claim=f"{label} {written}".strip(), kind="name" if item.number is None else "number",
                confidence=round(confidence, 3), picture=tuple(f"{value:g}" for value in expected[:4]),
            )
        )  # fmt: skip
        return False

    def in_other_notation(self, item: Item) -> bool:
        is_other = super().in_other_notation(item)
        self.unchecked += is_other
        return is_other

    def _sureness_of_number(self, item: Item, label: str, expected: Sequence[float]) -> float | None:
        """Confidence that the image lacks a number: 0 if it has the number, None if OCR cannot decide."""
        image = self.picture
        if label and announced_steps(label):
            return None  # "The total is 9" may be of some rows, where the image has a total of all
        written = "".join(sign for sign in self.text[item.start : item.end] if sign.isdigit() or sign in ".,")
        elsewhere = written in image.digits
        if not elsewhere and bare(written) in image.bare_digits:
            return None  # but for a point or a comma it is there
        if expected and label in image.table.under:
            if elsewhere and (self._has_own_head(item) or (image.table.axis[label] == 1 and len(expected) > 1)):
                return 0.0  # "14 goals in 79 hours" is no reading of goals
            sure = max(image.scores.get(value, 0.0) for value in expected)
            return sure * (_BY_COLUMN if elsewhere else 1.0)
        row = self.known.row
        if elsewhere and not (1 < len(row) <= image.printed and not self.known.fits(item.value, row)):
            return 0.0
        printed = image.printed > 0 and (len(image.table.under) > 1 or not image.has_axis)
        joined = len(written) > 1 and any(written in run and written != run for run in image.digits)
        if not printed or joined or not self._is_reading(item) or self._is_result(item):
            return None
        return _BY_COLUMN * image.lowest_number_score

    def _has_own_head(self, item: Item) -> bool:
        """Whether the head of a column that holds a number follows it."""
        table = self.picture.table
        return any(
            axis == 1 and self.lower.startswith(f" {label}", item.end) and item.value in table.under[label]
            for label, axis in table.axis.items()
        )

    def _is_reading(self, item: Item) -> bool:
        """Whether the rationale reads a number without a label in the image, and OCR should find it there."""
        number, role = item.number, self.expressions.get(item.start)
        assert number is not None
        if role is not None:
            return not (role.scales and number.integer and number.value <= _MOST_COUNTED)  # so many items, or parts
        if self._counts_things(item) or _HEDGED.search(self.lower, max(0, item.start - 20), item.start):
            return False
        sentence = self.lower[self.sentence_start : item.end]
        named = [label for label in self.picture.labels if len(label) >= _FEWEST_LETTERS and label in sentence]
        paired = self.picture.table.under
        if len(paired) > 1 and any(label not in paired for label in named):
            return False  # OCR has found numbers beside other labels, and missed the one beside this
        currency = self.text[max(0, item.start - 2) : item.start].strip()[-1:] in ("$", "€", "£")
        formatted = number.percent or not number.integer or number.value >= 100 or currency
        return formatted or bool(named) or any(words.search(sentence) for words in (_SAYS, _LISTS))

    def _is_result(self, item: Item) -> bool:
        """Whether words announce a result, and one step on the numbers before gives it."""
        around = self.lower[max(self.sentence_start, item.start - _BEFORE) : item.end + _ANNOUNCED]
        if not (_SO.search(around) or announced_steps(around)):
            return False
        said = self.known.stated.last(_STEPS_BACK)
        pairs = [step_results(ANY, [first, second]) for at, second in enumerate(said) for first in said[:at]]
        sums = (sum(said[at:]) for at in range(len(said)))
        return self.known.is_close(item, chain(sums, *pairs), False)

    def _counts_things(self, item: Item) -> bool:
        """Whether a number counts what is seen, and is no text."""
        things = _THINGS.match(self.lower, item.end)
        assert item.number is not None
        counted = things is not None and item.number.integer and item.value <= _MOST_COUNTED
        return (counted or counts_people_or_time(self.lower, item.end)) and not (
            things is not None and things[1] in self.picture.joined
        )

    def _sureness_of_name(self, item: Item) -> float | None:
        name = self.text[item.start : item.end]
        alone = self.text[: item.start].rpartition("\n")[2].strip(" -*•1234567890.)") == "" and " " not in name
        confidence = _unlike(name, self.picture)
        # A word that begins a line may be the writer's own heading.
        return confidence * 0.6 if confidence and alone else confidence


def _unlike(words: str, image: ImageText) -> float | None:
    """The confidence that words are not in the image; 0 if they are, None if OCR cannot decide."""
    plain = squeeze(words)
    if len(plain) < _FEWEST_LETTERS:
        return None
    likeness = fuzz.partial_ratio(plain, image.joined) if len(plain) <= len(image.joined) else 0.0
    likeness = max(likeness, fuzz.ratio(plain, image.joined))
    if likeness >= _THERE:
        return 0.0
    return image.mean_score * (1 - max(0.0, likeness - 40) / 100) if likeness <= _NOT_THERE else None


def _check_quotations(text: str, image: ImageText, given: str) -> Iterator[tuple[Verdict, Unread | None]]:
    """The verdict on each text that the rationale reads in the image."""
    known = squeeze(given)
    for match in _QUOTED.finditer(text):
        words = next(group for group in match.groups() if group)
        before = text[max(0, match.start() - _BEFORE) : match.start()]
        before = before[max(0, find_last_break(before)) :]
        after = text[match.end() : match.end() + _AFTER]
        said = _SAYS.search(before) or _SAYS.search(after)
        if said and re.search(r"[^\W\d_]", words) and squeeze(words) not in known:
            yield _verdict_on(words, "quotation", image)
    for match in _SAID_NAME.finditer(text):
        if squeeze(match[1]) not in known:
            yield _verdict_on(match[1], "name", image)


_SAID_NAME: Final = re.compile(
    r"\b(?:reads|says|labell?ed|titled|inscribed|spells)\b:?[ ]*(?:as )?(?:the )?"
    r"([A-Z][\w&'-]+(?: (?:(?:of|and|the|&) )?[A-Z][\w&'-]*){0,5})"
)


def _verdict_on(words: str, kind: Literal["name", "quotation"], image: ImageText) -> tuple[Verdict, Unread | None]:
    confidence = _unlike(words, image)
    if confidence is None:
        return "not_checkable", None
    if confidence == 0.0:
        return "supported", None
    return "unsupported", Unread(claim=words, kind=kind, confidence=round(confidence, 3))
