"""What a rationale writes out of an image in reading order, compared with what the image shows in that order.

A table of a chart has a label for each value (`distill.grounding.check`). A grid of shapes or a row of digits has an
order instead: "Row 2: red circle, empty, blue square", "The image reads 1 1 3 / 5 6 3". Reads listings only, in
English; a sentence about one cell, or a row of digits in the middle of a calculation, is not judged.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

GRID_KEYS: Final = ("cells", "grid")
"""The keys of a sample's meta that may hold names in reading order: one list, or a list for each row."""
NUMBER_KEYS: Final = ("digits",)
"""The keys that may hold numbers in reading order."""
_MOST_CELLS: Final = 2_000
_ROW: Final = re.compile(r"\brow (\d{1,3}) ?(?::|is|has|shows|contains)([^;.\n]{0,400}?)(?=\brow \d|[;.\n]|$)")
_WORD: Final = re.compile(r"[^\W\d_]+")
_NUMBER: Final = re.compile(r"\d{1,15}+")
_FILLERS: Final = frozenset(["a", "an", "the", "and", "then", "with"])
_NOTHING: Final = frozenset(["empty", "blank", "nothing"])
_LISTING: Final = re.compile(
    r"(\b(?:transcript|transcription|reads?|digits are|digits)\b ?:? ?)?(?<![\w.+*=-])(\d++(?:[ ,/|\n]++\d++){2,}+)"
)
_OPERATOR: Final = re.compile(r" ?(?:[-+*/=×÷]|\.\d)")


def is_misread(text: str, meta: Mapping[str, Any]) -> bool | None:
    """Whether a listing of the text is not what the image shows; None if it holds no listing that can be judged."""
    verdicts = [*_judge_rows(text.lower(), _find_rows(meta)), *_judge_numbers(text.lower(), _find_numbers(meta))]
    return any(verdicts) if verdicts else None


def _find_rows(meta: Mapping[str, Any]) -> list[list[list[str]]]:
    """The words of every cell of every row; names in one list are a square grid."""
    for key in GRID_KEYS:
        names = meta.get(key)
        if not isinstance(names, list | tuple) or not 0 < len(names) <= _MOST_CELLS:
            continue
        if all(isinstance(name, str) for name in names):
            width = math.isqrt(len(names))
            if width * width != len(names):
                return []
            names = [names[start : start + width] for start in range(0, len(names), width)]
        if all(isinstance(row, list | tuple) and all(isinstance(name, str) for name in row) for row in names):
            return [[_WORD.findall(name.lower()) for name in row] for row in names]
    return []


def _find_numbers(meta: Mapping[str, Any]) -> list[int]:
    for key in NUMBER_KEYS:
        numbers = meta.get(key)
        if isinstance(numbers, list | tuple) and 1 < len(numbers) <= _MOST_CELLS:
            return [int(number) for number in numbers] if all(type(number) is int for number in numbers) else []
    return []


def _judge_rows(text: str, rows: Sequence[list[list[str]]]) -> list[bool]:
    """For each row that is listed, whether it is listed wrongly."""
    if not rows:
        return []
    known = {word for row in rows for cell in row for word in cell} | _NOTHING
    verdicts = []
    for match in _ROW.finditer(text):
        words = [word for word in _WORD.findall(match[2]) if word not in _FILLERS]
        number = int(match[1])
        if len(words) < 2 or 2 * sum(word in known for word in words) <= len(words):
            continue
        verdicts.append(not 0 < number <= len(rows) or not _lists(words, rows[number - 1]))
    return verdicts


def _lists(words: Sequence[str], row: Sequence[list[str]]) -> bool:
    """Whether words are the names of a row, one word of each name, or the names without the empty cells."""
    if len(words) == len(row) and all(word in cell for word, cell in zip(words, row, strict=True)):
        return True
    whole = [word for cell in row for word in cell]
    return list(words) == whole or list(words) == [word for word in whole if word not in _NOTHING]


def _judge_numbers(text: str, numbers: Sequence[int]) -> list[bool]:
    """For each listing of all numbers, whether it is wrong; an announced one may have too many or too few."""
    if not numbers:
        return []
    verdicts = []
    for match in _LISTING.finditer(text):
        listed = [int(number) for number in _NUMBER.findall(match[2])]
        if _OPERATOR.match(text, match.end()):
            listed.pop()  # the first number of a calculation
        if len(listed) == len(numbers) or match[1]:
            verdicts.append(listed != list(numbers))
    return verdicts
