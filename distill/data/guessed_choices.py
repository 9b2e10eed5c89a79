"""Whether columns hold choices that a question shows, and answers that name one of them."""

import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from distill.data import sources
from distill.data.formats import NO_CHOICES, choices_of
from distill.data.gold_answers import RowError
from distill.data.row_values import LETTERS, Choices, choice_columns, whole_number
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_rows import write_rows
from distill.errors import DataError
from distill.word_tables import counted

_CHOICES = re.compile(
    r"((answer|multiple|mc)?[ _.-]?(choice|option|candidate)s?|opciones|antworten|antwortmöglichkeiten)"
    r"([ _.-]?([a-h]|\d))?",
    re.IGNORECASE,
)
_LETTER: Final = re.compile(r"[A-Za-z]")
_LETTERED: Final = re.compile(r"(?:answer|ans|alternative)?[ _.-]?\(?(?P<letter>[A-Za-z])[).:]?", re.IGNORECASE)
"""Columns of choices by their letters alone, such as `A`, `(A)` or `Answer A`."""
_SAYS_RIGHT: Final = re.compile(r"correct|right|richtig|solution", re.IGNORECASE)
_MOST_POSITIONS: Final = 10
"""A number from here on is no position: few questions have as many choices."""


def require_shown_choices(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | Sequence[str]]
) -> None:
    """Raise DataError for columns that seem to hold choices, where no format shows them with the question."""
    free = [name for name in names if name not in columns.values()]
    found = {match["letter"].upper(): name for name in free if (match := _LETTERED.fullmatch(name.strip()))}
    filled = {letter: name for letter, name in found.items() if any(row.get(name) not in (None, "") for row in rows)}
    lettered = [filled[letter] for letter in takewhile(filled.__contains__, LETTERS)]
    answers = [(choices_of(row), row.get(str(columns.get("answer")))) for row in rows]
    given = [(cell, answer) for cell, answer in answers if answer not in (None, "")]
    named = any(holds_choices(cell, answer, strict=True) for cell, answer in given if not _may_be_position(answer))
    # If no answer names these columns, A and B may be measures.
    are_measures = given and not named and choice_columns(lettered)
    if "question" in columns and len(lettered) > 1 and not are_measures:
        raise DataError(
            f"columns {', '.join(map(repr, lettered))} seem to hold choices, and the questions would be asked "
            "without them. If a column has the letters of the right ones, give --column answer=NAME; else call them "
            "option_a, option_b, ... to ask without right answers. Rename columns that hold something else"
        )
    known = [name for name in names if _CHOICES.fullmatch(name.strip())]
    if held := [name for name in known if any(row.get(name) not in (None, *NO_CHOICES) for row in rows)]:
        raise DataError(
            f"columns that seem to hold choices ({', '.join(map(repr, held))}) cannot be read, and questions without "
            "their choices are other questions; write a column `choices` with a list of texts and the right one in "
            "`answer`, or remove them"
        )


def count_from_one(asked: Sequence[tuple[Any, Any]]) -> bool:
    """Whether answers are positions among choices without labels, with the last position and without the first one,
    0."""
    read = [(Choices.read(cell), whole_number(answer)) for cell, answer in asked if holds_choices(cell, None, False)]
    places = [(str(answer), choices) for choices, answer in read if answer is not None and not choices.labels]
    return any(place == str(len(choices.texts)) for place, choices in places) and all(
        place.isdecimal() and 0 < int(place) <= len(choices.texts) and place not in choices.texts
        for place, choices in places
    )


def require_answers_no_choices(answer: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise DataError for a list of several answers beside a column that says which is right, or several columns."""
    numbered = re.compile(rf"{re.escape(answer.rstrip('0123456789'))}\d+")
    several = [name for name in (rows[0] if rows else ()) if numbered.fullmatch(name)]
    if len(several) > 1 and answer in several:
        raise DataError(
            f"several columns of answers ({', '.join(map(repr, several))}); they may be choices. Call them choice1, "
            "choice2, ..., or give --column answer=NAME"
        )
    naming = [name for name in (rows[0] if rows else ()) if _SAYS_RIGHT.search(name) and name != answer]
    listed = [row for row in rows if isinstance(row.get(answer), list) and len(row[answer]) > 1]
    if naming and 2 * len(listed) > len(rows):
        raise DataError(
            f"column {answer!r} may hold choices, of which {naming[0]!r} names the right one; rename it to "
            "`choices`, or give --column answer=NAME"
        )


def with_letters(table: SourceTable, answer: str, out: Path) -> tuple[SourceTable, list[str]]:
    """A table whose answers are texts of choices, with their letters in a file; and what was done, in words.

    A single row does not show whether "2" is the choice "2" or the position of another choice. The table can: each
    answer is a text among its choices, and one cannot be a position. The table itself if no row needs it, or one does
    not fit.
    """
    items = list(sources.rows(table))
    rows = [item for item in items if isinstance(item, SourceRow)]
    letters = [_letter_of_text(row.values, answer) for row in rows]
    if None in letters or not any(letters) or all(map(_may_be_position, [row.values.get(answer) for row in rows])):
        return table, []
    asked = [row.values for row, letter in zip(rows, letters, strict=True) if letter]
    if all(holds_choices(choices_of(row), row.get(answer), strict=True) for row in asked):
        return table, []
    written = [
        {**_without_bytes(row, table), **({answer: letter} if letter else {})}
        for row, letter in zip(rows, letters, strict=True)
    ]
    try:
        write_rows(out, written)
    except TypeError:  # bytes
        return table, []
    unreadable = len(items) - len(rows)
    lost = f"; left out: {counted(unreadable, 'row')} that cannot be read" if unreadable else ""
    lettered = SourceTable(label=table.label, kind="jsonl", files=(out,), root=table.root)
    return lettered, [f"answers: all are texts of choices, so they are written as their letters{lost}"]


def _letter_of_text(row: Mapping[str, Any], answer: str) -> str | None:
    """The letter of the one choice that an answer is the text of; empty without one, None where that is not clear."""
    cell = choices_of(row)
    text = str(whole_number(row.get(answer)) if row.get(answer) is not None else "").strip()
    if cell is None or not text:
        return ""
    try:
        choices = Choices.read(cell)
    except RowError:
        return None
    one_each = choices.texts.count(text) == 1 and not any(_LETTER.fullmatch(each) for each in choices.texts)
    return LETTERS[choices.texts.index(text)] if one_each and not choices.labels else None


def _may_be_position(answer: Any) -> bool:
    text = str(whole_number(answer)).strip()
    return answer in (None, "") or (text.isdecimal() and int(text) < _MOST_POSITIONS)


def _without_bytes(row: SourceRow, table: SourceTable) -> Mapping[str, Any]:
    """The cells of a row; an image that its file holds as a reference to it."""
    if not row.table:
        return row.values
    path = os.path.relpath(row.table, table.root)
    return {
        name: {"path": path, "column": name, "row": row.table_row}
        if isinstance(cell, bytes) or (isinstance(cell, dict) and "bytes" in cell)
        else cell
        for name, cell in row.values.items()
    }


def holds_choices(cell: Any, answer: Any, strict: bool) -> bool:
    try:
        choices = Choices.read(cell)
        return not strict or choices.letter(answer) is not None
    except RowError:
        return False
