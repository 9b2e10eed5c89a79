"""The parts of a row that all formats share: images, question, answer type, domain, turns, choices.

Checks a value and raises RowError with a reason; does not know which columns a format has (distill.data.formats).
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from distill.data.gold_answers import RowError
from distill.data.source_answer_types import answer_type_of
from distill.data.tables.exact_json import RepeatedKeyError, parse_json
from distill.recipe.messages import did_you_mean
from distill.recipe.sections.data import ANSWER_TYPE_NAMES, DataSource
from distill.word_tables import counted

PLACEHOLDER = "<image>"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_POSITION = re.compile(r"-?\d{1,9}")
_LETTER = re.compile(r"\(?([A-Z])[).:]?")


@dataclass(slots=True, kw_only=True)
class ImageCell:
    """One image of a row: a path, candidate paths, or a cell with bytes at `column`, item `index`."""

    column: str
    index: int
    value: Any


@dataclass(slots=True, kw_only=True)
class RowQuestion:
    """One question of a row."""

    text: str
    answers: tuple[str, ...] = ()
    answer_type: str | None = None
    domain: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ParsedRow:
    """The images of a row and the questions about them."""

    images: tuple[ImageCell, ...]
    questions: tuple[RowQuestion, ...]


def image_names(source: DataSource, *more_names: str) -> tuple[str, ...]:
    """The columns of which one holds the images, the first choice first."""
    if "image" in source.columns.model_fields_set:
        return source.columns.names("image")
    return ("image", "images", "file_name", *more_names)


def pick_column(values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    """The first of the named columns that holds something."""
    for name in names:
        value = values.get(name)
        if value is not None:
            return name, value
    return names[0], None


def read_images(
    values: Mapping[str, Any], source: DataSource, *, required: bool, other_columns: Sequence[str] = ()
) -> tuple[ImageCell, ...]:
    if source.columns.image == "":
        return ()
    names = image_names(source, *other_columns)
    if isinstance(source.columns.image, str):
        return _cells(*pick_column(values, names), required=required)
    held = [name for name in names if values.get(name) not in _EMPTY]
    if required and not held:
        raise RowError("empty_image_cell", f"columns {', '.join(map(repr, names))} hold no image")
    return tuple(cell for name in held for cell in _cells(name, values[name], required=required))


_EMPTY = (None, "", b"")


def _cells(column: str, value: Any, *, required: bool) -> tuple[ImageCell, ...]:
    """The images that one cell of a table holds."""
    if isinstance(value, str):
        if value and not value.lstrip().startswith("["):
            return (ImageCell(column=column, index=0, value=value),)
        value = parse_json_list(value)
    items = value if isinstance(value, list) else [value]
    cells = tuple(ImageCell(column=column, index=index, value=item) for index, item in enumerate(items))
    if any(cell.value in _EMPTY for cell in cells):
        if required or len(cells) > 1:
            raise RowError("empty_image_cell", f"column {column!r} holds no image")
        return ()
    if required and not cells:
        raise RowError("empty_image_cell", f"column {column!r} is an empty list")
    return cells


def whole_number(value: Any) -> Any:
    """A whole number without its point: data frames write one so where another cell of its column is empty."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse_json_list(text: str) -> Any:
    value = parse_json_value(text)
    return value if isinstance(value, list) else text


def parse_json_value(text: str) -> Any:
    """The list or object that a text of JSON holds; other text as it is."""
    try:
        value = parse_json(text.encode())
    except RepeatedKeyError as error:
        raise RowError("malformed_row", f"a cell of JSON: {error}") from None
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, list | dict) else text


def read_difficulty(values: Mapping[str, Any], source: DataSource) -> Mapping[str, Any]:
    value = values.get(source.columns.difficulty)
    text = "" if value is None else str(value).strip()
    return {"difficulty": text} if text else {}


def read_meta(value: Any) -> Mapping[str, Any]:
    """Further facts of a row: an object, also as JSON text (Parquet has no free-form objects)."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = parse_json(value.encode())
        except RepeatedKeyError as error:
            raise RowError("malformed_row", f"meta: {error}") from None
        except orjson.JSONDecodeError:
            return {}
    if not isinstance(value, dict):
        return {}
    try:
        orjson.dumps(value, default=str)
    except orjson.JSONEncodeError as error:
        raise RowError("malformed_row", f"meta cannot be kept as JSON: {error}") from None
    return value


def read_question(value: Any) -> str:
    """The question's text without image placeholders. Raises RowError when nothing is left."""
    if isinstance(value, bool) or (value is not None and not isinstance(value, str | int | float)):
        raise RowError("malformed_row", f"the question is {type(value).__name__}, not text")
    text = str("" if value is None or value != value else value).replace(PLACEHOLDER, "").strip()
    if "<img>" in text and "</img>" in text:
        raise RowError("image_count_mismatch", "the text names its images in <img>; put them into a column `images`")
    if text and text.isascii() and text.isprintable():  # nearly every question; no blanks are left around it
        return text
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise RowError("empty_question", "the question has no visible character")
    return text


_KINDS_OF_OTHERS: Mapping[str, str | None] = {
    # VQA and VizWiz
    "other": None,
    "yes/no": None,
    "unanswerable": None,
    # MathVista
    "integer": "number",
    "float": "number",
}
"""What known data sets write in a column of this name; None: the type is found from the gold answer."""


def read_answer_type(values: Mapping[str, Any], source: DataSource) -> str | None:
    value = values.get(source.columns.answer_type)
    if value is None or value == "" or value != value:  # an empty cell, or NaN
        return answer_type_of(source)
    name = str(value).strip().lower()
    if name in ANSWER_TYPE_NAMES:
        return name
    if name in _KINDS_OF_OTHERS:
        return _KINDS_OF_OTHERS[name] or answer_type_of(source)
    # An unknown type does not become free text: the comparison would be less strict than the row requires.
    raise RowError(
        "unknown_answer_type",
        f"answer type {value!r}{did_you_mean(name, ANSWER_TYPE_NAMES)} ({', '.join(ANSWER_TYPE_NAMES)}); when the "
        f'column {source.columns.answer_type!r} means something else, set columns.answer_type = ""',
    )


def read_domain(values: Mapping[str, Any], source: DataSource) -> str:
    value = values.get(source.columns.domain)
    if isinstance(value, list | dict | bytes):
        raise RowError("malformed_row", f"the domain is {type(value).__name__}, not text")
    return ("" if value is None else str(value).strip()) or source.domain


def read_turns(value: Any, column: str) -> list[Mapping[str, Any]]:
    """A list of objects; also the object of lists that older datasets versions store it as."""
    if isinstance(value, str):
        value = parse_json_list(value)
    if isinstance(value, Mapping) and value and all(isinstance(item, list) for item in value.values()):
        sizes = {len(item) for item in value.values()}
        if len(sizes) == 1:
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        raise RowError("malformed_row", f"column {column!r} is not a list of turns")
    return value


_LETTERED = re.compile(r"\(([A-Za-z])\)\s*(.*?)(?=\([A-Za-z]\)|$)", re.DOTALL)
"""Choices in one text: (a) red (b) green."""
_CHOICE_COLUMN = re.compile(r"(?:option|choice)[ _.-]?(?P<label>[a-z]|\d{1,2})|(?P<letter>[a-z])", re.IGNORECASE)


def choice_columns(names: Iterable[str]) -> Mapping[str, str]:
    """Label to column, where a table has a column for each choice, such as A and B, option_a and option_b, choice1.

    None unless the labels begin with A, 0 or 1 and there are two.
    """
    matches = ((name, _CHOICE_COLUMN.fullmatch(name)) for name in names)
    columns = {(match["label"] or match["letter"]).upper(): name for name, match in matches if match}
    found = dict(sorted(columns.items(), key=lambda item: (len(item[0]), item[0])))
    return found if any({first, second} <= found.keys() for first, second in ("AB", "01", "12")) else {}


@dataclass(frozen=True, slots=True)
class Choices:
    """The texts of the choices in order; the row's own labels where it has some."""

    texts: Sequence[str]
    labels: Sequence[str] = ()

    @classmethod
    def read(cls, cell: Any) -> "Choices":
        """A list of texts; labels with texts ({"A": "red"}); or lists of both ({"label": [...], "text": [...]}).

        Each may also be a text in the notation of JSON or Python. Raises RowError.
        """
        value = parse_literal(cell)
        labels: Sequence[Any] = ()
        if isinstance(value, str) and value.startswith("(") and len(parts := _LETTERED.findall(value)) > 1:
            value = {f"({letter})": text.strip() for letter, text in parts}
        if isinstance(value, Mapping):
            labels, value = _labelled(value)
        if not isinstance(value, list) or not 1 <= len(value) <= len(LETTERS) or len(labels) not in (0, len(value)):
            raise RowError("bad_choices", f"choices must be 1 to {len(LETTERS)} texts, not {cell!r:.200}")
        if not all(isinstance(text, str | int | float) for text in value):
            raise RowError("bad_choices", f"choices must be texts, not {cell!r:.200}")
        return cls([str(text).strip() for text in value], [str(label).strip() for label in labels])

    @property
    def lines(self) -> list[str]:
        """The choices as a question shows them."""
        return [f"{letter}. {text}" for letter, text in zip(LETTERS, self.texts, strict=False)]

    def letter(self, answer: Any) -> str | None:
        """The letter of the choice that an answer names: by its label, number from 0, letter or text.

        None without an answer. Raises RowError.
        """
        index = answer = whole_number(answer)
        if isinstance(answer, bool | str) or str(answer) in self.labels:
            index = self._index(str(answer).strip())
        if index is not None and (not isinstance(index, int) or not 0 <= index < len(self.texts)):
            raise RowError(
                "bad_answer",
                f"answer {index!r} is not the position, letter or text of one of "
                f"{counted(len(self.texts), 'choice')}",
            )
        return None if index is None else LETTERS[index]

    def _index(self, answer: str) -> Any:
        """The place of the named choice; other text as it is."""
        if answer in self.labels:
            return self.labels.index(answer)
        named = self.texts.index(answer) if answer in self.texts else None
        place = int(answer) if _POSITION.fullmatch(answer) else None
        numbers = any(text.isdecimal() for text in self.texts)
        if place in range(len(self.texts)) and named != place and (numbers or named is not None):
            raise RowError(
                "bad_answer", f"answer {answer!r} may be the text of a choice or the position of another one"
            )
        if named is not None or place is not None:
            return place if named is None else named
        letter = _LETTER.fullmatch(answer)
        return LETTERS.index(letter[1]) if letter else answer or None


def names_a_choice(answer: Any) -> bool:
    """Whether an answer is a position or a letter. The text of a number is no position."""
    return isinstance(answer, int | float) or (isinstance(answer, str) and bool(_LETTER.fullmatch(answer.strip())))


def parse_literal(cell: Any) -> Any:
    """The list or object that a text in the notation of JSON or Python holds; anything else as it is."""
    if not isinstance(cell, str):
        return cell
    value = parse_json_value(cell)
    if value is not cell or not cell.lstrip().startswith(("[", "{")):
        return value
    try:
        return ast.literal_eval(cell.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return cell


def _labelled(value: Mapping[Any, Any]) -> tuple[list[Any], Any]:
    """Labels and texts of an object. Tables write a label that a row does not have as an empty cell."""
    if isinstance(value.get("text"), list) and isinstance(value.get("label"), list):
        return value["label"], value["text"]
    present = {label: text for label, text in value.items() if text not in (None, "")}
    return list(present), list(present.values())
