"""The column layouts of known data sets: turns one row into images and questions.

Formats: plain (columns mapped in the recipe), finevision (also the Cauldron), llava (also ShareGPT and
role/content messages), chartqa, cocoqa, scienceqa, traces (the dataset of a filter stage), returned (the questions
of a round). A row with several question turns gives several questions, each asked on its own or, with
`earlier_turns`, with a transcript of the turns before it. Reads no files; does not judge images.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

import orjson

from distill.data.gold_answers import RowError as RowError
from distill.data.gold_answers import golds as golds
from distill.data.gold_answers import votes
from distill.data.images.base64_images import Base64Image, is_base64
from distill.data.row_values import (
    PLACEHOLDER,
    Choices,
    choice_columns,
    image_names,
    names_a_choice,
    pick_column,
    read_answer_type,
    read_difficulty,
    read_domain,
    read_images,
    read_meta,
    read_question,
    read_turns,
)
from distill.data.row_values import ImageCell as ImageCell
from distill.data.row_values import ParsedRow as ParsedRow
from distill.data.row_values import RowQuestion as RowQuestion
from distill.errors import DataError
from distill.extensions import DATA_FORMATS, FAILURES, Extension, call, call_fault, describe, load_once
from distill.recipe.messages import did_you_mean
from distill.recipe.sections.data import DataSource
from distill.word_tables import counted

CHOICES = (
    *("choices", "options", "Choices", "Options", "answer_choices", "multiple_choices", "multiple_choice_options"),
    *("candidates", "opciones", "opzioni", "optionen", "选项"),
)
TURNS = ("conversations", "messages", "conversation")
ASKING = frozenset({"human", "user"})
NO_CHOICES: tuple[Any, ...] = ([], {}, "", "[]", "{}")
"""What tables that mix both kinds of questions write for one without choices."""
_IMAGE_PARTS = ("image", "image_url", "input_image")
"""Types of the parts of a turn that stand for an image."""
_ANSWERING = frozenset({"gpt", "assistant", "model", "chatgpt"})

_Format = Callable[[Mapping[str, Any], DataSource], ParsedRow]


def parse(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    """Images and questions of one row. Raises RowError."""
    # Data frames write a missing cell as NaN.
    present = {name: value for name, value in values.items() if not (isinstance(value, float) and isnan(value))}
    if source.format in _FORMATS:
        parsed = _FORMATS[source.format](present, source)
    else:
        parsed = _parse_by(outside_format(source), present, source)
    if not parsed.questions:
        raise RowError("empty_question", "the row asks no question")
    return _with_earlier_turns(parsed) if source.earlier_turns else parsed


def _with_earlier_turns(parsed: ParsedRow) -> ParsedRow:
    """The row with the turns before each question in the question's text."""
    questions, said = [], ""
    for question in parsed.questions:
        asked = f"{said}User: {question.text}"
        questions.append(replace(question, text=asked) if said else question)
        said = f"{asked}\n" + (f"Assistant: {question.answers[0]}\n" if question.answers else "")
    return replace(parsed, questions=tuple(questions))


def outside_format(source: DataSource) -> Extension:
    """The format of a source from a user's file or an installed package. Raises RecipeError."""

    def lacking(loaded: Any) -> str:
        if not callable(loaded):
            return f"a data format is a function of a row's values and its source, this is {type(loaded).__name__}"
        return call_fault(loaded, "values", "source")

    return load_once(DATA_FORMATS, source.format, f"data.{source._name}.format", source._folder, lacking)


def _parse_by(extension: Extension, values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    """What a format from outside makes of a row; where it fails, that is the row's reason."""
    try:
        parsed = call(extension.loaded, values, source)
        if not isinstance(parsed, ParsedRow):
            raise RowError("format_failed", f"{extension.value} returned {type(parsed).__name__}, not a ParsedRow")
        questions = tuple(_as_read(question, source) for question in parsed.questions)
        images = tuple(replace(image) for image in parsed.images)
    except RowError:
        raise
    except FAILURES as error:
        raise RowError("format_failed", f"{extension.value}: {describe(error)}") from error
    return ParsedRow(images=images, questions=questions)


def _as_read(question: RowQuestion, source: DataSource) -> RowQuestion:
    """A question of a format from outside, read as the project's formats read the cells of a row. Raises RowError."""
    stated = {source.columns.answer_type: question.answer_type}
    read = replace(
        question,
        text=read_question(question.text),
        answers=golds(question.answers),
        answer_type=question.answer_type if "@" in str(question.answer_type) else read_answer_type(stated, source),
        domain=read_domain({source.columns.domain: question.domain}, source),
        meta=read_meta(dict(question.meta)),
    )
    orjson.dumps([read.text, read.answers, read.domain])  # half of a surrogate pair is no text
    return read


def check_columns(columns: Iterable[str], source: DataSource, where: str) -> None:
    """Raise DataError when a source lacks a column that its format or its mapping needs."""
    present = set(columns)
    for role, names in _needed(source, present):
        if not present.intersection(names):
            expected = " or ".join(repr(name) for name in names)
            hint = ' (columns.image = "" reads questions without images)' if role == "image" else ""
            raise DataError(
                f"{where}: no column {expected} for the {role}{did_you_mean(names[0], present)}; the source has: "
                f"{', '.join(sorted(present)) or 'none'}; map columns in the recipe, or set another format{hint}"
            )


def _needed(source: DataSource, present: set[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Roles with the columns of which one must be there; a role with several columns of its own occurs for each."""
    mapped = {role: names for role in source.columns.model_fields_set if (names := source.columns.names(role))}
    match source.format:
        case "plain" | "returned":
            needed = {"question": (source.columns.question,), "image": image_names(source)}
        case "finevision":
            needed = {"question": ("texts",), "image": image_names(source)}
        case "llava":
            needed = {"question": TURNS}
        case "chartqa":
            needed = {"question": ("query", "question"), "image": image_names(source, "imgname")}
        case "cocoqa" if "texts" in present:
            needed = {"image": image_names(source)}
        case "cocoqa":
            needed = {"question": ("question",), "image": image_names(source, "image_id", "img_id")}
        case "scienceqa":
            lettered = choice_columns(present).values()
            needed = {"question": (source.columns.question,), "choices": (*CHOICES, *lettered)}
        case "traces":
            needed = {"question": ("messages",), "answer": ("answer",)}
        case _:
            needed = {}
    if source.columns.image == "":
        needed.pop("image", None)
    by_default = [(role, names) for role, names in needed.items() if role not in mapped]
    return by_default + [(role, (name,)) for role, names in mapped.items() for name in names]


def _question(
    values: Mapping[str, Any], source: DataSource, text: Any, answers: Any, meta: Mapping[str, Any] | None = None
) -> RowQuestion:
    """A question of a row, its text and answers as cells hold them; `meta`: what is known of it besides."""
    return RowQuestion(
        text=read_question(text),
        answers=golds(answers),
        answer_type=read_answer_type(values, source),
        domain=read_domain(values, source),
        meta={**read_difficulty(values, source), **(meta or {})},
    )


def asked_rows(values: Mapping[str, Any], question: str, answer: str = "answer") -> list[Mapping[str, Any]]:
    """A row for each question of a row. Raises RowError.

    The column of the question holds a question; or objects with `question` and `answer`, whose other fields count as
    columns; or a list of texts, with a list of as many answers in the column of the answer.
    """
    cell = values.get(question)
    if not isinstance(cell, list | Mapping):
        return [values]
    if isinstance(cell, list) and all(isinstance(text, str) for text in cell):
        column, answers = pick_column(values, (answer, "answers"))
        if not isinstance(answers, list) or len(answers) != len(cell):
            asked = counted(len(cell), "question needs", "questions need")
            raise RowError("malformed_row", f"{asked} a list of as many answers in {column!r}")
        return [{**values, question: text, column: gold} for text, gold in zip(cell, answers, strict=True)]
    turns = read_turns(cell, question)
    if not all(isinstance(turn.get("question"), str) for turn in turns):
        raise RowError("malformed_row", f"column {question!r}: an object without a text `question`")
    golds_of_turns = [turn.get("answer", turn.get("answers")) for turn in turns]
    return [
        {**values, **turn, question: turn["question"], "answers": None, answer or "answer": gold}
        for turn, gold in zip(turns, golds_of_turns, strict=True)
    ]


def readable_rows(values: Mapping[str, Any], question: str) -> list[Mapping[str, Any]]:
    """As `asked_rows`, but returns the row itself if its questions cannot be read."""
    try:
        return asked_rows(values, question)
    except RowError:
        return [values]


def _each_question(read: _Format) -> _Format:
    """A format of rows with one question, for rows that may have several about the same images."""

    def read_each(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
        if isinstance(values.get(source.columns.question), str):
            return read(values, source)
        parsed = [read(row, source) for row in asked_rows(values, source.columns.question, source.columns.answer)]
        if len(parsed) == 1:
            return parsed[0]
        if any(row.images != parsed[0].images for row in parsed):
            raise RowError("malformed_row", f"column {source.columns.question!r}: questions about different images")
        return ParsedRow(
            images=parsed[0].images if parsed else (),
            questions=tuple(question for row in parsed for question in row.questions),
        )

    return read_each


def _plain(values: Mapping[str, Any], source: DataSource, *, with_image: bool = True) -> ParsedRow:
    columns = source.columns
    answer_names = (columns.answer,) if "answer" in columns.model_fields_set else (columns.answer, "answers")
    answers = pick_column(values, answer_names)[1]
    meta = {**read_meta(values.get("meta")), **votes(answers)}
    question = _question(values, source, values.get(columns.question), answers, meta)
    return ParsedRow(images=read_images(values, source, required=with_image), questions=(question,))


def _finevision(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    turns = read_turns(values.get("texts"), "texts")
    questions = tuple(_question(values, source, turn.get("user"), turn.get("assistant")) for turn in turns)
    return ParsedRow(images=read_images(values, source, required=False), questions=questions)


def speaker_of(turn: Mapping[str, Any]) -> str:
    """The speaker of a turn of a conversation, in LLaVA (`from`) or a chat (`role`), in lower case."""
    return str(turn.get("from", turn.get("role", ""))).lower()


def _llava(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    column, value = pick_column(values, TURNS)
    images = read_images(values, source, required=False)
    questions: list[RowQuestion] = []
    asked: str | None = None
    placeholders = 0
    shown: list[Any] = []
    for turn in read_turns(value, column):
        speaker = speaker_of(turn)
        text, pictures = _content(turn.get("value", turn.get("content")))
        if speaker in ASKING:
            placeholders += pictures
            shown += images_within(turn)
            questions.extend(_asked(asked, None, values, source))
            asked = text
        elif speaker in _ANSWERING and asked is not None:
            questions.extend(_asked(asked, text, values, source))
            asked = None
        elif speaker != "system":
            raise RowError("malformed_row", f"column {column!r}: unknown or misplaced speaker {speaker!r}")
    questions.extend(_asked(asked, None, values, source))
    if len(questions) == 1 and not questions[0].answers:  # the gold answer is beside the turns
        questions = [replace(questions[0], answers=golds(values.get(source.columns.answer)))]
    if shown and not images and source.columns.image != "":
        images = _cells_within(shown, column)
    if placeholders and placeholders != len(images):
        found = f"{counted(placeholders, '<image> placeholder')} for {counted(len(images), 'image')}"
        raise RowError("image_count_mismatch", found)
    return ParsedRow(images=images, questions=tuple(questions))


def _asked(text: str | None, answer: str | None, values: Mapping[str, Any], source: DataSource) -> list[RowQuestion]:
    return [] if text is None else [_question(values, source, text, answer)]


def _content(value: Any) -> tuple[str, int]:
    """Text of a turn and the number of image placeholders in it; a turn may be a string or a list of parts."""
    if isinstance(value, str):
        return value, value.count(PLACEHOLDER)
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        texts = [str(part["text"]) for part in value if part.get("type") == "text" and part.get("text")]
        images = sum(part.get("type") in _IMAGE_PARTS for part in value)
        return "\n".join(texts), images + sum(text.count(PLACEHOLDER) for text in texts)
    raise RowError("malformed_row", f"a turn's text is {type(value).__name__}")


def images_within(turn: Mapping[str, Any]) -> list[Any]:
    """The images within the parts of a turn, as chats for OpenAI's API and for Qwen name them."""
    content = turn.get("value", turn.get("content"))
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    shown = [part for part in parts if part.get("type") in _IMAGE_PARTS]
    found = (part.get(name) for part in shown for name in ("image_url", "image", "url", "path"))
    return [image.get("url", image.get("path")) if isinstance(image, dict) else image for image in found if image]


def _cells_within(images: Sequence[Any], column: str) -> tuple[ImageCell, ...]:
    """The images of turns, which no reference to a cell of a Parquet table leads to. Raises RowError."""
    for image in images:
        if not isinstance(image, str) or (is_base64(image) and not isinstance(image, Base64Image)):
            raise RowError(
                "unsupported_image_cell",
                f"column {column!r}: images within turns are paths, or base64 in an unpacked JSON file; put the "
                "images of a Parquet table into a column `images`",
            )
    return tuple(ImageCell(column=column, index=index, value=image) for index, image in enumerate(images))


def _chartqa(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    text, answer = (pick_column(values, names)[1] for names in (("query", "question"), ("label", "answer")))
    question = _question(values, source, text, answer)
    images = read_images(values, source, required=True, other_columns=("imgname",))
    # The original archives keep the images in a folder png/ that the tables do not mention.
    image_cells = (
        _candidates(cell, cell.value, f"png/{cell.value}") if _is_path(cell.value) else cell for cell in images
    )
    return ParsedRow(images=tuple(image_cells), questions=(question,))


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and not is_base64(value)


def _cocoqa(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    if "texts" in values:
        return _finevision(values, source)
    kind = {} if values.get("type") is None else {"type": values["type"]}
    question = _question(values, source, values.get("question"), values.get("answer"), kind)
    images = read_images(values, source, required=True, other_columns=("image_id", "img_id"))
    return ParsedRow(images=images, questions=(question,))


def _candidates(cell: ImageCell, *names: str) -> ImageCell:
    return ImageCell(column=cell.column, index=cell.index, value=names)


def _scienceqa(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    cell = choices_of(values)
    if cell is None:  # a table may mix questions with and without choices
        answer = values.get(source.columns.answer)
        if pick_column(values, CHOICES)[1] is not None and names_a_choice(answer):
            raise RowError("bad_choices", f"there are no choices, and the answer {answer!r} names one")
        return _plain(values, source, with_image=False)
    choices = Choices.read(cell)
    letter = choices.letter(values.get(source.columns.answer))
    hint = str(values.get("hint") or "").strip()
    lines = [f"{hint}\n"] if hint else []
    question = RowQuestion(
        text="\n".join([*lines, read_question(values.get(source.columns.question)), *choices.lines]),
        answers=() if letter is None else (letter,),
        answer_type="choice",
        domain=read_domain(values, source),
        meta={**read_difficulty(values, source), **_explanations(values), "options": list(choices.texts)},
    )
    return ParsedRow(images=read_images(values, source, required=False), questions=(question,))


def choices_of(values: Mapping[str, Any]) -> Any:
    """The cell that holds the choices of a row, or its columns for single choices; None without choices."""
    cell = pick_column(values, CHOICES)[1]
    if cell is not None and cell not in NO_CHOICES:
        return cell
    lettered = {label: values.get(column) for label, column in choice_columns(values).items()}
    return lettered if any(text not in (None, "") for text in lettered.values()) else None


def _explanations(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """How people explained the answer: ScienceQA's solution, A-OKVQA's rationales. No model sees them."""
    return {name: value for name in ("solution", "rationales") if (value := values.get(name))}


def _traces(values: Mapping[str, Any], source: DataSource) -> ParsedRow:
    """The question of a trace and its answer; the rationale is for training alone (student/data/rows.py)."""
    parsed = _llava(values, source)
    if len(parsed.questions) != 1:
        asked = counted(len(parsed.questions), "question")
        raise RowError("malformed_row", f"column 'messages': {asked}, and a trace has one")
    return replace(parsed, questions=(replace(parsed.questions[0], answers=golds(values.get("answer"))),))


_FORMATS: Mapping[str, _Format] = {
    "plain": _each_question(_plain),
    "finevision": _finevision,
    "llava": _llava,
    "chartqa": _chartqa,
    "cocoqa": _cocoqa,
    "scienceqa": _each_question(_scienceqa),
    "traces": _traces,
    "returned": partial(_plain, with_image=False),
}
