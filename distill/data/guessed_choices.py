"""Whether columns hold choices that a question shows, and answers that name one of them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from distill.data.formats import NO_CHOICES
from distill.data.gold_answers import RowError
from distill.data.row_values import Choices, whole_number
from distill.errors import DataError

_CHOICES = re.compile(
    r"((answer|multiple|mc)?[ _.-]?(choice|option|candidate)s?|opciones|antworten|antwortmöglichkeiten)"
    r"([ _.-]?([a-h]|\d))?",
    re.IGNORECASE,
)


def require_shown_choices(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise DataError for columns that seem to hold choices, where no format shows them with the question."""
    named = [name for name in names if _CHOICES.fullmatch(name.strip())]
    if held := [name for name in named if any(row.get(name) not in (None, *NO_CHOICES) for row in rows)]:
        raise DataError(
            f"columns that seem to hold choices ({', '.join(map(repr, held))}) cannot be read, and questions without "
            "their choices are other questions; write a column `choices` with a list of texts and the right one in "
            "`answer`, or remove them"
        )


def count_from_one(asked: Sequence[tuple[Any, Any]]) -> bool:
    """Whether answers are places among choices without labels, one is that of the last and none is the first, 0."""
    read = [(Choices.read(cell), whole_number(answer)) for cell, answer in asked if holds_choices(cell, None, False)]
    places = [(str(answer), choices) for choices, answer in read if answer is not None and not choices.labels]
    return any(place == str(len(choices.texts)) for place, choices in places) and all(
        place.isdecimal() and 0 < int(place) <= len(choices.texts) and place not in choices.texts
        for place, choices in places
    )


def holds_choices(cell: Any, answer: Any, strict: bool) -> bool:
    try:
        choices = Choices.read(cell)
        return not strict or choices.letter(answer) is not None
    except RowError:
        return False
