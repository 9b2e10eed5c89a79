"""What the columns of known data sets mean: one row in, its images and questions out.

Formats: plain (columns mapped in the recipe), finevision (also the Cauldron), llava (also ShareGPT and
role/content messages), chartqa, cocoqa, scienceqa. A row with several question turns gives several questions, each
asked on its own. Reads no files; does not judge images.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

import orjson

from distill.answers.own_types import OwnAnswerType
from distill.data.gold_answers import RowError as RowError
from distill.data.gold_answers import golds as golds
from distill.data.gold_answers import votes
from distill.data.sources import nearest
from distill.errors import DataError
from distill.extensions import ANSWER_TYPES, DATA_FORMATS, Extension, load
from distill.recipe.data import ANSWER_TYPE_NAMES, DataSource
from distill.recipe.recipe import Recipe

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PLACEHOLDER = "<image>"
_TURNS = ("conversations", "messages", "conversation")
_ASKING = frozenset({"human", "user"})
_ANSWERING = frozenset({"gpt", "assistant", "model", "chatgpt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCell:
    """One image of a row: a path, candidate paths, or a cell with bytes at `column`, item `index`."""

    column: str
    index: int
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuestion:
    """One question of a row."""

    text: str
    answers: tuple[str, ...] = ()
    answer_type: str | None = None
    domain: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRow:
    """What a row holds: its images and the questions about them."""

    images: tuple[ImageCell, ...]
    questions: tuple[RowQuestion, ...]


def parse(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    """Images and questions of one row. Raises RowError."""
    # Data frames write a missing cell as NaN.
    present = {name: value for name, value in values.items() if not _is_nan(value)}
    if source.format in _FORMATS:
        return _FORMATS[source.format](present, source)
    return _parse_by(outside_format(source), present, source)


@cache
def _load(value: str, folder: Path) -> Extension:
    def lacking(loaded: Any) -> str:
        return "" if callable(loaded) else "a data format is a function of a row's values and its source"

    return load(DATA_FORMATS, value, "data.NAME.format", folder, lacking)


def outside_format(source: DataSource) -> Extension:
    """The format of a source that a user's file or an installed package brings. Raises RecipeError."""
    return _load(source.format, source._folder)


def answer_type_of(source: DataSource) -> str | None:
    """What the samples of a source say of their answers' type; one from outside with its code. Raises RecipeError."""
    if source.answer_type is None or source.answer_type in ANSWER_TYPE_NAMES:
        return source.answer_type
    made = _load_type(source.answer_type, source._folder)
    return f"{made.loaded.name}@{made.code.removeprefix('sha256:')[:16]}"


def load_answer_types(recipe: Recipe) -> None:
    """Make the answer types from outside known to this process, for samples that are read from a run's folder."""
    for source in recipe.data.values():
        answer_type_of(source)


@cache
def _load_type(value: str, folder: Path) -> Extension:
    def lacking(made: Any) -> str:
        if not isinstance(made, OwnAnswerType):
            return f"an answer type is a distill.answers.own_types.OwnAnswerType, this is {type(made).__name__}"
        has_valid_name = made.name.startswith("own_") and made.name.isidentifier()
        return "" if has_valid_name else f"its name must begin with own_ and hold no spaces, got {made.name!r}"

    return load(ANSWER_TYPES, value, "data.NAME.answer_type", folder, lacking)


def _parse_by(extension: Extension, values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    """What a format from outside makes of a row; where it fails, that is the row's reason."""
    try:
        parsed = extension.loaded(values, source)
    except RowError:
        raise
    except Exception as error:
        raise RowError("format_failed", f"{extension.value}: {type(error).__name__}: {error}") from error
    if not isinstance(parsed, ParsedRow):
        raise RowError("format_failed", f"{extension.value} returned {type(parsed).__name__}, not a ParsedRow")
    of_source = answer_type_of(source)
    questions = tuple(each if each.answer_type else replace(each, answer_type=of_source) for each in parsed.questions)
    return replace(parsed, questions=questions)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)


def check_columns(columns: Iterable[str], source: DataSource, where: str) -> None:
    """Raise DataError when a source lacks a column that its format or its mapping needs."""
    present = set(columns)
    for role, names in _needed(source, present).items():
        if not present.intersection(names):
            expected = " or ".join(repr(name) for name in names)
            hint = ' (columns.image = "" reads questions without images)' if role == "image" else ""
            raise DataError(
                f"{where}: no column {expected} for the {role}{nearest(names[0], present)}; the source has: "
                f"{', '.join(sorted(present)) or 'none'}; map columns in the recipe, or set another format{hint}"
            )


def _needed(source: DataSource, present: set[str]) -> dict[str, tuple[str, ...]]:
    mapped = {role: (getattr(source.columns, role),) for role in source.columns.model_fields_set}
    mapped = {role: names for role, names in mapped.items() if names[0]}
    match source.format:
        case "plain":
            needed = {"question": (source.columns.question,), "image": _image_names(source)}
        case "finevision":
            needed = {"question": ("texts",), "image": _image_names(source)}
        case "llava":
            needed = {"question": _TURNS}
        case "chartqa":
            needed = {"question": ("query", "question"), "image": _image_names(source, "imgname")}
        case "cocoqa" if "texts" in present:
            needed = {"image": _image_names(source)}
        case "cocoqa":
            needed = {"question": ("question",), "image": _image_names(source, "image_id", "img_id")}
        case "scienceqa":
            needed = {"question": (source.columns.question,), "choices": ("choices",)}
        case _:
            needed = {}
    if source.columns.image == "":
        needed.pop("image", None)
    return needed | mapped


def _image_names(source: DataSource, *more_names: str) -> tuple[str, ...]:
    if "image" in source.columns.model_fields_set:
        return (source.columns.image,)
    return ("image", "images", "file_name", *more_names)


def _pick(values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    """The first of the named columns that holds something."""
    for name in names:
        value = values.get(name)
        if value is not None:
            return name, value
    return names[0], None


def _cells(
    values: Mapping[str, Any], source: DataSource, *, required: bool, other_columns: Sequence[str] = ()
) -> tuple[ImageCell, ...]:
    if source.columns.image == "":
        return ()
    column, value = _pick(values, _image_names(source, *other_columns))
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _json_list(value)
    items = value if isinstance(value, list) else [value]
    cells = tuple(ImageCell(column=column, index=index, value=item) for index, item in enumerate(items))
    if any(cell.value in (None, "", b"") for cell in cells):
        if required or len(cells) > 1:
            raise RowError("empty_image_cell", f"column {column!r} holds no image")
        return ()
    if required and not cells:
        raise RowError("empty_image_cell", f"column {column!r} is an empty list")
    return cells


def _json_list(text: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, list) else text


def _plain(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    columns = source.columns
    answer_names = (columns.answer,) if "answer" in columns.model_fields_set else (columns.answer, "answers")
    answers = _pick(values, answer_names)[1]
    question = RowQuestion(
        text=_question(values.get(columns.question)),
        answers=golds(answers),
        answer_type=_answer_type(values, source),
        domain=_domain(values, source),
        meta={**_difficulty(values, source), **votes(answers), **_meta(values.get("meta"))},
    )
    return ParsedRow(images=_cells(values, source, required=True), questions=(question,))


def _difficulty(values: Mapping[str, Any], source: DataSource) -> Mapping[str, Any]:
    value = values.get(source.columns.difficulty)
    return {} if value is None or value == "" else {"difficulty": str(value)}


def _meta(value: Any) -> Mapping[str, Any]:
    """Further facts of a row: an object, also as JSON text (Parquet has no free-form objects)."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    if not isinstance(value, dict):
        return {}
    try:
        orjson.dumps(value, default=str)
    except orjson.JSONEncodeError as error:
        raise RowError("malformed_row", f"meta cannot be kept as JSON: {error}") from None
    return value


def _finevision(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    turns = _records(values.get("texts"), "texts")
    questions = tuple(
        RowQuestion(
            text=_question(turn.get("user")),
            answers=golds(turn.get("assistant")),
            answer_type=_answer_type(values, source),
            domain=_domain(values, source),
        )
        for turn in turns
    )
    return ParsedRow(images=_cells(values, source, required=False), questions=questions)


def _llava(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    column, value = _pick(values, _TURNS)
    images = _cells(values, source, required=False)
    questions: list[RowQuestion] = []
    asked: str | None = None
    placeholders = 0
    for turn in _records(value, column):
        speaker = str(turn.get("from", turn.get("role", ""))).lower()
        text, pictures = _content(turn.get("value", turn.get("content")))
        if speaker in _ASKING:
            placeholders += pictures
            questions.extend(_asked(asked, None, values, source))
            asked = text
        elif speaker in _ANSWERING and asked is not None:
            questions.extend(_asked(asked, text, values, source))
            asked = None
        elif speaker != "system":
            raise RowError("malformed_row", f"column {column!r}: unknown or misplaced speaker {speaker!r}")
    questions.extend(_asked(asked, None, values, source))
    if placeholders and placeholders != len(images):
        raise RowError("image_count_mismatch", f"{placeholders} <image> placeholders for {len(images)} images")
    return ParsedRow(images=images, questions=tuple(questions))


def _asked(text: str | None, answer: str | None, values: Mapping[str, Any], source: DataSource) -> list[RowQuestion]:
    if text is None:
        return []
    return [
        RowQuestion(
            text=_question(text),
            answers=golds(answer),
            answer_type=_answer_type(values, source),
            domain=_domain(values, source),
        )
    ]


def _content(value: Any) -> tuple[str, int]:
    """Text of a turn and the number of image placeholders in it; a turn may be a string or a list of parts."""
    if isinstance(value, str):
        return value, value.count(_PLACEHOLDER)
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        texts = [str(part["text"]) for part in value if part.get("type") == "text" and part.get("text")]
        pictures = sum(part.get("type") in ("image", "image_url") for part in value)
        return "\n".join(texts), pictures + sum(text.count(_PLACEHOLDER) for text in texts)
    raise RowError("malformed_row", f"a turn's text is {type(value).__name__}")


def _chartqa(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    question = RowQuestion(
        text=_question(_pick(values, ("query", "question"))[1]),
        answers=golds(_pick(values, ("label", "answer"))[1]),
        answer_type=_answer_type(values, source),
        domain=_domain(values, source),
        meta=_difficulty(values, source),
    )
    images = _cells(values, source, required=True, other_columns=("imgname",))
    # The original archives keep the pictures in a folder png/ that the tables do not mention.
    image_cells = (
        _candidates(cell, cell.value, f"png/{cell.value}") if isinstance(cell.value, str) else cell for cell in images
    )
    return ParsedRow(images=tuple(image_cells), questions=(question,))


def _cocoqa(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    if "texts" in values:
        return _finevision(values, source)
    kind = values.get("type")
    question = RowQuestion(
        text=_question(values.get("question")),
        answers=golds(values.get("answer")),
        answer_type=_answer_type(values, source),
        domain=_domain(values, source),
        meta={} if kind is None else {"type": kind},
    )
    images = _cells(values, source, required=True, other_columns=("image_id", "img_id"))
    return ParsedRow(images=tuple(_coco_image(cell) for cell in images), questions=(question,))


def _coco_image(cell: ImageCell) -> ImageCell:
    """A COCO image given by its number, under any of the names and folders that COCO has used."""
    text = str(cell.value) if isinstance(cell.value, int | str) else ""
    if not text.isdecimal():
        return cell
    names = [f"{int(text):012d}.jpg"]
    for split in ("train2014", "val2014"):
        names += [f"COCO_{split}_{int(text):012d}.jpg", f"{split}/COCO_{split}_{int(text):012d}.jpg"]
    names += [f"{split}/{int(text):012d}.jpg" for split in ("train2017", "val2017")]
    return _candidates(cell, *names)


def _candidates(cell: ImageCell, *names: str) -> ImageCell:
    return ImageCell(column=cell.column, index=cell.index, value=names)


def _scienceqa(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    choices = values.get("choices")
    if isinstance(choices, str):
        choices = _json_list(choices)
    if not isinstance(choices, list) or not 1 <= len(choices) <= len(LETTERS):
        raise RowError("bad_choices", f"choices must be a list of 1 to {len(LETTERS)} texts, not {choices!r:.200}")
    if not all(isinstance(choice, str | int | float) for choice in choices):
        raise RowError("bad_choices", f"choices must be texts, not {choices!r:.200}")
    options = [str(choice).strip() for choice in choices]
    index = values.get(source.columns.answer)
    if isinstance(index, str) and index.strip().lstrip("-").isdecimal():
        index = int(index)
    if index is not None and (not isinstance(index, int) or not 0 <= index < len(options)):
        raise RowError("bad_answer", f"answer {index!r} is not the position of one of {len(options)} choices")
    hint = str(values.get("hint") or "").strip()
    lines = [f"{hint}\n"] if hint else []
    lines += [_question(values.get(source.columns.question))]
    lines += [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    question = RowQuestion(
        text="\n".join(lines),
        answers=() if index is None else (LETTERS[index],),
        answer_type="choice",
        domain=_domain(values, source),
        meta={**_difficulty(values, source), **_explanations(values), "options": options},
    )
    return ParsedRow(images=_cells(values, source, required=False), questions=(question,))


def _explanations(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """How people came to the answer: ScienceQA's solution, A-OKVQA's rationales. No one is shown them."""
    return {name: value for name in ("solution", "rationales") if (value := values.get(name))}


def _question(value: Any) -> str:
    """The question's text without image placeholders. Raises RowError when nothing is left."""
    if isinstance(value, bool) or (value is not None and not isinstance(value, str | int | float)):
        raise RowError("malformed_row", f"the question is {type(value).__name__}, not text")
    text = str(value if value is not None else "").replace(_PLACEHOLDER, "").strip()
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


def _answer_type(values: Mapping[str, Any], source: DataSource) -> str | None:
    value = values.get(source.columns.answer_type)
    if value is None or value == "" or value != value:  # an empty cell, or NaN
        return answer_type_of(source)
    name = str(value).strip().lower()
    if name in ANSWER_TYPE_NAMES:
        return name
    if name in _KINDS_OF_OTHERS:
        return _KINDS_OF_OTHERS[name] or answer_type_of(source)
    # An unknown type is no free text: an answer would be held to less than the row asks for.
    raise RowError(
        "unknown_answer_type",
        f"answer type {value!r}{nearest(name, ANSWER_TYPE_NAMES)} ({', '.join(ANSWER_TYPE_NAMES)}); when the column "
        f'{source.columns.answer_type!r} means something else, set columns.answer_type = ""',
    )


def _domain(values: Mapping[str, Any], source: DataSource) -> str:
    value = values.get(source.columns.domain)
    if isinstance(value, list | dict | bytes):
        raise RowError("malformed_row", f"the domain is {type(value).__name__}, not text")
    return str(value) if value is not None and value != "" else source.domain


def _records(value: Any, column: str) -> list[Mapping[str, Any]]:
    """A list of objects; also the object of lists that older datasets versions store it as."""
    if isinstance(value, str):
        value = _json_list(value)
    if isinstance(value, Mapping) and value and all(isinstance(item, list) for item in value.values()):
        sizes = {len(item) for item in value.values()}
        if len(sizes) == 1:
            value = [dict(zip(value, cells, strict=True)) for cells in zip(*value.values(), strict=True)]
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        raise RowError("malformed_row", f"column {column!r} is not a list of turns")
    return value


_FORMATS = {
    "plain": _plain,
    "finevision": _finevision,
    "llava": _llava,
    "chartqa": _chartqa,
    "cocoqa": _cocoqa,
    "scienceqa": _scienceqa,
}
