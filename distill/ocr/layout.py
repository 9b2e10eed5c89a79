"""What the text of an image says: its numbers, each with the labels beside, above or below it.

A number belongs to the label at its left in the same line of the image, and to the name of its column if names form a
row. The result has the form of a chart's table, so that `distill.grounding` checks a rationale against it. A number
without a label is still a number of the image.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from distill.grounding.charts.chart_table import ChartTable
from distill.grounding.numbers_in_text import WORD_CLASS, find_numbers, plain_text, read_numbers
from distill.ocr.reader import TextLine

_LETTERS: Final = re.compile(r"[^\W\d_]")
_DIGITS: Final = re.compile(r"\d+(?:[.,]\d+)*")
_LOOKALIKES: Final = str.maketrans("OoQDIl|SsBZzG", "0000111558226")
"""Letters that OCR takes for digits, or digits for them."""
_SAME_HEIGHT: Final = 0.35
"""Pieces whose heights overlap by this share of the smaller one stand in one line; images are a little askew."""
_JOINED: Final = re.compile(r"(?<=[a-zA-Z]{2})(?=\d)|(?<=[a-zA-Z])(?=\d+[.,]\d)|(?<=\d)(?=[a-zA-Z])(?![OoQIlSsBZz])")
"""Where OCR joins a number and a word: "EUR15.63", "69m"."""
_CURRENCIES: Final = frozenset(["eur", "usd", "gbp", "chf", "sek", "nok", "dkk", "pln", "czk", "jpy", "cny", "inr"])
_TORN: Final = re.compile(r"(?<=\d)([.,]) (?=\d)")
_TICKS: Final = 4
"""So many numbers at equal distances, in a column or a row, that grow in equal steps are marks of an axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """A label or a number of the image."""

    text: str
    value: float | None
    score: float
    left: float
    top: float
    right: float
    bottom: float

    @property
    def x(self) -> float:
        return (self.left + self.right) / 2

    @property
    def y(self) -> float:
        return (self.top + self.bottom) / 2


@dataclass(frozen=True, kw_only=True)
class ImageText:
    """The text of an image, or of all images of a question."""

    table: ChartTable
    """Its numbers, and the numbers beside each label."""
    scores: dict[float, float]
    """How surely each number was read; the best of several."""
    labels: frozenset[str]
    """Every label in lower case, with a number or not."""
    joined: str
    """All text in lower case without spaces and signs, image by image and line by line."""
    digits: frozenset[str]
    """Every run of digits, also of those that look like letters."""
    bare_digits: frozenset[str]
    """The same without points and commas, which OCR mistakes and loses."""
    mean_score: float
    has_axis: bool
    """Whether numbers stand as the marks of an axis."""
    printed: int
    """Numbers besides those of an axis."""

    @cached_property
    def lowest_number_score(self) -> float:
        """How surely the least sure number was read."""
        return min(self.scores.values(), default=1.0)


def read_layout(images: Sequence[Sequence[TextLine]]) -> ImageText | None:
    """The text of some images; None where they have none."""
    lines = [line for image in images for line in image]
    if not lines:
        return None
    values: list[float] = []
    under: dict[str, list[float]] = {}
    axis: dict[str, int] = {}
    scores: dict[float, float] = {}
    labels: set[str] = set()
    ticks = 0
    for image in images:
        pieces = [piece for line in image for piece in _split_line(line)]
        numbers = [piece for piece in pieces if piece.value is not None]
        names = [piece for piece in pieces if piece.value is None]
        marks = _find_ticks(numbers)
        ticks += len(marks)
        labels.update(piece.text for piece in names)
        for number in numbers:
            assert number.value is not None
            values.append(number.value)
            scores[number.value] = max(number.score, scores.get(number.value, 0.0))
            if id(number) not in marks:
                for label, side in _labels_of(number, names, numbers).items():
                    under.setdefault(label, []).append(number.value)
                    axis[label] = min(side, axis.get(label, side))
    digits = {run for line in lines for run in _digit_runs(line.text)}
    return ImageText(
        table=_as_table(values, under, axis, digits, labels),
        scores=scores,
        labels=frozenset(labels),
        joined="\n".join(squeeze(line.text) for line in lines),
        digits=frozenset(digits),
        bare_digits=frozenset(map(bare, digits)),
        mean_score=sum(line.score for line in lines) / len(lines),
        has_axis=ticks > 0,
        printed=len(values) - ticks,
    )


def bare(number: str) -> str:
    """The digits of a number alone."""
    return "".join(sign for sign in number if sign.isdigit())


def squeeze(text: str) -> str:
    """Letters and digits in lower case: OCR joins words and loses signs."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _digit_runs(text: str) -> Iterable[str]:
    yield from _DIGITS.findall(text)
    yield from _DIGITS.findall(text.replace(" ", ""))
    for word in text.split():
        # "l7" and "1O" are numbers; of letters alone only a whole line can be one.
        if any(map(str.isdigit, word)) or word == text:
            yield from _DIGITS.findall(word.translate(_LOOKALIKES))


def _split_line(line: TextLine) -> Iterable[_Piece]:
    """The numbers of a line, and the words between them; a letter takes as much room as any other."""
    text = _JOINED.sub(" ", _TORN.sub(r"\1", plain_text(line.text)))
    items = read_numbers(text, find_numbers(text))
    width = (line.right - line.left) / max(1, len(text))

    def piece(start: int, end: int, value: float | None) -> _Piece:
        label = " ".join(text[start:end].lower().strip(" :;,.=-|*()[]$€£%").split())
        return _Piece(
            text=label, value=value, score=line.score, left=line.left + start * width, top=line.top,
            right=line.left + end * width, bottom=line.bottom,
        )  # fmt: skip

    end = 0
    for item in items:
        if _is_label(text[end : item.start], alone=False):
            yield piece(end, item.start, None)
        yield piece(item.start, item.end, item.value)
        end = item.end
    if _is_label(text[end:], alone=not items):
        yield piece(end, len(text), None)


def _is_label(text: str, *, alone: bool) -> bool:
    """Whether a stretch of a line may name something: units, currencies, signs and words such as "and" do not."""
    letters = len(_LETTERS.findall(text))
    words = re.findall(r"[^\W\d_]+", text.lower())
    return (letters > 2 or (alone and letters > 0)) and any(
        word not in WORD_CLASS and word not in _CURRENCIES for word in words
    )


def _labels_of(number: _Piece, names: Sequence[_Piece], numbers: Sequence[_Piece]) -> dict[str, int]:
    """The labels of a number, each with its axis as a table has it: 1 for the head of a column of a table."""
    found: dict[str, int] = {}
    row = [name for name in names if _share_line(name, number)]
    before = [name for name in row if name.x < number.left]
    if before:
        found[max(before, key=lambda name: name.right).text] = 0
    elif row:
        first = min(row, key=lambda name: name.left)
        between = [other for other in numbers if number.right < other.x < first.left and _share_line(other, number)]
        if not between:
            found[first.text] = 0
    column = [name for name in names if name not in row and abs(name.x - number.x) < _reach(name, number)]
    for place in (
        min((name for name in column if name.y > number.y), key=lambda name: name.y, default=None),
        max((name for name in column if name.y < number.y), key=lambda name: name.y, default=None),
    ):
        # Names in a row are names of columns; a heading is alone in its row.
        if place is not None and any(_share_line(place, name) for name in names if name is not place):
            found.setdefault(place.text, int(bool(before)))
    return found


def _reach(name: _Piece, number: _Piece) -> float:
    return max(name.right - name.left, number.right - number.left) / 2


def _share_line(one: _Piece, other: _Piece) -> bool:
    common = min(one.bottom, other.bottom) - max(one.top, other.top)
    return common >= _SAME_HEIGHT * min(one.bottom - one.top, other.bottom - other.top)


def _find_ticks(numbers: Sequence[_Piece]) -> set[int]:
    """The ids of the numbers that are marks of an axis."""
    marks: set[int] = set()
    for along, across in (("y", "right"), ("y", "left"), ("x", "y")):
        by_place = sorted(numbers, key=lambda piece: getattr(piece, across))
        group: list[_Piece] = []
        for piece in [*by_place, None]:
            if piece is not None and (not group or getattr(piece, across) - getattr(group[-1], across) < 0.02):
                group.append(piece)
                continue
            if len(group) >= _TICKS and _is_scale(sorted(group, key=lambda mark: getattr(mark, along)), along):
                marks.update(map(id, group))
            group = [piece] if piece is not None else []
    return marks


def _is_scale(marks: Sequence[_Piece], along: str) -> bool:
    """Whether values and places of numbers grow in equal steps."""
    values = [mark.value or 0.0 for mark in marks]
    places = [getattr(mark, along) for mark in marks]
    step, pitch = (values[-1] - values[0]) / (len(marks) - 1), (places[-1] - places[0]) / (len(marks) - 1)
    return step != 0 and all(
        abs(value - values[0] - step * at) <= abs(step) * 0.01 and abs(place - places[0] - pitch * at) <= pitch * 0.25
        for at, (value, place) in enumerate(zip(values, places, strict=True))
    )


def _as_table(
    values: Sequence[float],
    under: dict[str, list[float]],
    axis: dict[str, int],
    digits: Iterable[str],
    labels: Iterable[str],
) -> ChartTable:
    written = {
        float(form)
        for run in digits
        for form in (run.replace(",", ""), run.replace(",", "."))
        if form.count(".") < 2 and len(form) <= 15
    }
    rows = [tuple(numbers) for numbers in under.values() if len(numbers) > 1]
    return ChartTable(
        values=tuple(values) or (0.0,),
        under={label: tuple(numbers) for label, numbers in under.items()},
        axis=axis,
        lines=tuple(rows),
        numerals=frozenset(values) | written,
        words=frozenset(word for label in labels for word in re.findall(r"[^\W_]+", label)),
        kinds=(),
        counts=frozenset([len(under), len(values)]),
        years=False,
    )
