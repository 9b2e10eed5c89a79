"""Tables that are joined by ids: each question with the record of its image, and with the one of its answer.

An id counts under three conditions: its name says what it refers to (`image_id` and a table `images`, or
`question_id` in both), each question finds a record, and the other table has each id once. A bare number counts for
the key of an exam alone: a letter of a choice for each question.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from distill.data import guessed_columns
from distill.data.row_values import choice_columns, whole_number
from distill.data.trees.records import Records, Row

_ID: Final = re.compile(
    r"(?P<of>.*?)[ _.-]?(ids?|idx|index|key|uu?id|nr|no|number|name|file|filename|file_name|path)|(?P<thing>.+)",
    re.IGNORECASE,
)
_BARE: Final = frozenset({"id", "_id", "key", "uid", "uuid", "idx", "index", "nr", "no", "number", "rowid"})
_IMAGES: Final = frozenset({"image", "img", "photo", "picture", "pic", "foto", "bild"})
_QUESTIONS: Final = frozenset({"question", "q", "qa"})


_Link = tuple[str, str, dict[str, Row]]
"""A column, the one of another table that it names, and the records by their texts."""


class UnclearJoinError(Exception):
    """Tables are about each other, and which records belong together is not clear."""


def joined(table: Records, others: Sequence[Records]) -> tuple[list[Row], list[str]]:
    """The rows of a table of questions with the fields of the records that their ids name; and how, in words.

    Raises UnclearJoinError.
    """
    rows: list[Row] = [dict(row) for row in table.rows]
    said: list[str] = []
    taken: dict[str, str] = {}
    waiting = list(others)
    while True:
        for other in waiting:
            links = _distinct(list(_links(table, rows, other)), rows)
            if len(links) > 1:
                names = ", ".join(f"{column!r} to {key!r}" for column, key, _ in links)
                raise UnclearJoinError(f"several ids lead to {other.name} ({names})")
            if links:
                break
        else:
            break
        ((column, key, records),) = links
        waiting.remove(other)
        if column in taken:
            raise UnclearJoinError(f"{column!r} may be an id of {taken[column]} or of {other.name}")
        taken[column] = other.name
        is_key_of_exam = column == key and key.lower() in _BARE
        of_question = is_key_of_exam or not _QUESTIONS.isdisjoint((_thing(column), _thing(key)))
        rows = [_merged(row, records[_text(row[column])], key, other.name, of_question) for row in rows]
        said.append(f"{other.name} by {column!r}")
    for other in waiting:
        if (about := _about(table, rows, other)) is not None:
            raise UnclearJoinError(f"{other.name} is about the questions by {about!r}, and not one record each")
    return rows, said


def _merged(row: Row, record: Row, key: str, name: str, of_question: bool) -> Row:
    """A row with the fields of a record; if both have a field, the value of the row stays.

    What a record of an image or another thing asks or answers is not the question's.
    """
    new = {field: value for field, value in record.items() if field != key and row.get(field) != value}
    lost = {field for field in new if field in row or not (of_question or _is_of_image(field))}
    return {**row, **{f"{name}.{field}" if field in lost else field: value for field, value in new.items()}}


def _is_of_image(field: str) -> bool:
    return not any(guessed_columns.is_usual(role, field) for role in ("question", "answer"))


def _links(table: Records, rows: Sequence[Row], other: Records) -> Iterator[_Link]:
    """The ids that lead each question to one record of another table, with the records."""
    for column in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(column) for row in rows]
        if not all(map(_is_key, values)):
            continue
        if (letters := _answer_key(table, rows, other, column)) is not None:
            yield column, column, letters
            continue
        for key in sorted(other.own):
            if not _may_join(column, table.name, key, other.name):
                continue
            if (
                not _thing(column)
                and not _thing(key)
                and not all(isinstance(each, str) and not each.isdecimal() for each in values)
            ):
                continue  # numbers of two tables may be of anything
            keys = [row.get(key) for row in other.rows]
            found = {_text(value): row for value, row in zip(keys, other.rows, strict=True) if _is_key(value)}
            if len(found) == len(other.rows) and all(_text(value) in found for value in values):
                yield column, key, found


def _distinct(links: Sequence[_Link], rows: Sequence[Row]) -> Sequence[_Link]:
    """The id of the question alone where the other ids lead each question to the same record."""
    ids = [link for link in links if _thing(link[0]) in _QUESTIONS]
    records = [[id(found[_text(row[column])]) for row in rows] for column, _, found in links]
    return ids if len(ids) == 1 and all(each == records[0] for each in records) else links


def _answer_key(table: Records, rows: Sequence[Row], other: Records, column: str) -> dict[str, Row] | None:
    """The records of a key with the letter of a choice for each question, and for no other, by the same number."""
    numbers = [re.findall(r"\d+", records.name) for records in (table, other)]
    may_be_others = all(numbers) and numbers[0] != numbers[1]  # of another year
    if column.lower() not in _BARE or column not in other.own or len(other.own) != 2 or may_be_others:
        return None
    (answer,) = other.own - {column}
    answered = any(guessed_columns.is_usual("answer", name) for name in table.own)
    if answered or not guessed_columns.is_usual("answer", answer):
        return None
    found = {_text(record.get(column)): record for record in other.rows}
    if not len(found) == len(other.rows) == len(rows) or {_text(row[column]) for row in rows} != found.keys():
        return None
    for row in rows:
        offered = [label for label, name in choice_columns(row).items() if row[name] not in (None, "")]
        if found[_text(row[column])].get(answer) not in offered:
            return None
    return found


def _about(table: Records, rows: Sequence[Row], other: Records) -> str | None:
    """The id of questions in a table that was not joined: its choices or answers would be lost."""
    for key in sorted(other.own):
        for column in dict.fromkeys(name for row in rows for name in row):
            asked = key.lower() not in _BARE and _thing(key) in _QUESTIONS | {_singular(table.name)}
            if asked and _may_join(column, table.name, key, other.name):
                values = {_text(row[column]) for row in rows if _is_key(row.get(column))}
                if any(_is_key(row.get(key)) and _text(row[key]) in values for row in other.rows):
                    return key
    return None


def _may_join(column: str, table: str, key: str, other: str) -> bool:
    """Whether the names of two fields say that they are ids of the same things."""
    first, second = (name.lower() in _BARE for name in (column, key))
    if not first and not second:
        match = _ID.fullmatch(column.lower())
        return column.lower() == key.lower() and match is not None and match["thing"] is None
    if first and second:
        return False
    return _same(_thing(key), table) if first else _same(_thing(column), other)


def _thing(name: str) -> str:
    """Of what a field is an id: `image` of `image_id`."""
    match = _ID.fullmatch(name.lower())
    return _singular((match["of"] or match["thing"] or "") if match else "")


def _same(thing: str, table: str) -> bool:
    name = _singular(re.split(r"[^a-z]+", table.lower().strip("_ "))[-1] if table else "")
    alike = (thing in kinds and name in kinds for kinds in (_IMAGES, _QUESTIONS))
    return bool(thing) and (thing == name or any(alike))


def _singular(name: str) -> str:
    return name.lower().removesuffix("s")


def _is_key(value: Any) -> bool:
    value = whole_number(value)
    return (isinstance(value, str) and bool(value)) or (isinstance(value, int) and not isinstance(value, bool))


def _text(value: Any) -> str:
    return str(whole_number(value))
