"""What the columns of a table most likely hold, by their names and first rows; and where its images lie.

A guess is for a person to confirm: `distill init` prints it. Reading itself follows the recipe
(distill/data/reader.py).
"""

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from distill.data import sources
from distill.data.formats import ASKING, CHOICES, TURNS, choices_of, images_within, readable_rows, speaker_of
from distill.data.gold_answers import RowError
from distill.data.guessed_choices import (
    count_from_one,
    holds_choices,
    require_answers_no_choices,
    require_shown_choices,
)
from distill.data.image_places import ImagePlaces, is_file
from distill.data.images import image_paths
from distill.data.images.base64_images import is_base64
from distill.data.images.image_suffixes import has_image_suffix
from distill.data.row_values import choice_columns, parse_json_list, read_answer_type, read_turns, whole_number
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.errors import DataError, ImageError
from distill.recipe.sections.data import DataSource
from distill.word_tables import counted

ROLES = ("image", "question", "answer")
_NAMES = {
    "image": "image images filename filepath imagepath imgpath imagefile imagename imgname path file img picture "
    "photo bild foto imagen imagem immagine afbeelding obraz resim "
    "изображение картинка 图像 图片 圖片 画像 이미지 صورة",
    "question": "question questions query prompt instruction ask asked userquestion questiontext "
    "questionstring problem frage pregunta pergunta domanda vraag pytanie soru вопрос 问题 問題 質問 질문 سؤال",
    "answer": "expectedanswer answer answers label labels goldanswer gold groundtruth target response reply "
    "correctanswer expected output outputs gt correctans answerlabel correctchoiceidx correctchoice correctoption "
    "finalanswer questionanswer multiplechoiceanswer directanswers gtanswer solution chosen completion "
    "antwort reponse respuesta resposta risposta antwoord odpowiedź cevap ответ 答案 回答 답변 정답 جواب",
}
"""The usual ones first."""
_ASKING_WORD = re.compile(r"(?<![a-z])(question|q)(?![a-z])", re.IGNORECASE)
_ANSWERING_WORD = {"question": "answer", "q": "a"}
_LOOKED_AT = 200
_LONGEST_NAME = 512
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedSource:
    """The settings of a data section that a table most likely needs."""

    format: str
    columns: Mapping[str, str | Sequence[str]]
    """Role to column, several for images; a role without a column is left out, and one that was given none has an
    empty name."""
    names: Sequence[str]
    """All columns of the table."""
    images_root: Path
    roots: Sequence[Path]
    """Folders that have as many of the images; none where no image is found."""
    outside: bool
    """Whether the path of an image leads out of `images_root`."""

    @property
    def image_columns(self) -> list[str]:
        return [name for name in _names_of(self.columns.get("image", ())) if name]

    @property
    def rest(self) -> list[str]:
        """The columns of the table without a role."""
        used = {name for column in self.columns.values() for name in _names_of(column)}
        return [name for name in self.names if name not in used]


def files_below(
    folder: Path, suffixes: Collection[str], on_error: Callable[[OSError], None] | None = None
) -> list[Path]:
    """The files below a folder with one of these suffixes (in lower case), in order; nothing hidden.

    Links to files are included. Folders that may not be read are left out; `on_error` gets the error of each.
    """
    files: list[Path] = []
    for base, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [
            Path(base, name)
            for name in sorted(names)
            if not name.startswith(".") and Path(name).suffix.lower() in suffixes
        ]
    return files


def unread_tables(table: SourceTable, folder: Path) -> list[str]:
    """A line about the other tables in a folder whose table is read."""
    if table.hub or not folder.is_dir():
        return []
    beside = (file for file in sources.files_beside(folder) if file not in table.files)
    unread = [file.name for file in beside if suffix_of(file) in KINDS]
    return [f"not read: {', '.join(unread)}; to read one of them, give its path"] if unread else []


def guess(table: SourceTable, given: Mapping[str, str | Sequence[str]], folder: Path | None = None) -> GuessedSource:
    """The guess for a table; the columns of `given` are not guessed. Images are looked for in `folder`, too.

    Raises DataError for an unreadable table.
    """
    rows = [row.values for row in islice(sources.rows(table), _LOOKED_AT) if isinstance(row, SourceRow)]
    names = _column_names(rows)
    places = ImagePlaces(
        [table.root, folder] if folder else [table.root], above=None if folder else table.root.parent
    )
    question = given["question"] if "question" in given else _column("question", names, rows, given, places)
    rows = [each for row in rows for each in readable_rows(row, str(question))]
    found: dict[str, str | Sequence[str] | None] = {"question": question}
    for role in ("image", "answer"):
        found[role] = given[role] if role in given else _column(role, _column_names(rows), rows, given, places)
    found["answer"] = _answer_beside(question, rows) if found["answer"] is None else found["answer"]
    columns = {role: name for role in ROLES if (name := found[role]) is not None}
    if "answer" not in given:
        require_answers_no_choices(str(columns.get("answer")), rows)
    if "question" not in given:
        _require_one_question(str(question), rows)
    if "image" in columns and "image" not in given:
        columns["image"] = _numbered_columns(str(columns["image"]), names, rows)
    if any(_is_unknown_type(row.get("answer_type")) for row in rows):
        columns.setdefault("answer_type", "")
    shown = _names_of(columns.get("image", ()))
    cells = [cell for row in rows for name in shown for cell in _named(row.get(name))]
    if not cells:
        cells = [cell for row in rows for turn in _turns(row) for cell in _named(images_within(turn))]
    roots = places.roots_of(cells)
    root = roots[0] if len(roots) == 1 else table.root
    paths = [cell for cell in cells if isinstance(cell, str)]
    return GuessedSource(
        format=_format(_column_names(rows), rows, columns),
        columns=columns,
        names=names,
        images_root=root,
        roots=roots,
        outside=any(_leads_out(root, path) for path in paths if is_file(root / path)),
    )


def _require_one_question(question: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise DataError where columns whose names differ by a number ask, too: whose answer is not known."""
    same = [name for name in _column_names(rows) if _letters(name) == _letters(question)]
    asking = [name for name in same if sum(_asks(row.get(name)) for row in rows) > _HALF * len(rows)]
    if len(asking) > 1:
        raise DataError(
            f"several columns of questions ({', '.join(map(repr, asking))}); give --column question=NAME, and the "
            "columns of its images and answer"
        )


def has_role(role: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows of a table hold questions or answers, in a column or in turns of a conversation."""
    if any(map(_turns, rows)):
        return True
    question = _column("question", _column_names(rows), rows, {}, ImagePlaces([]))
    if role == "question":
        return question is not None
    rows = [each for row in rows for each in readable_rows(row, question or "")]
    return _column(role, _column_names(rows), rows, {}, ImagePlaces([])) is not None


def is_usual(role: str, name: str) -> bool:
    """Whether a column of this name usually has this role."""
    return _letters(name) in map(_letters, _NAMES[role].split())


def _column_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_unknown_type(value: Any) -> bool:
    try:
        read_answer_type({"answer_type": value}, DataSource(source="."))
    except RowError:
        return True
    return False


def _names_of(column: str | Sequence[str]) -> Sequence[str]:
    return [column] if isinstance(column, str) else column


def _numbered_columns(first: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str | Sequence[str]:
    """A column of images, or all of its name with other numbers, as image_1 to image_7 for the images of a row."""
    same = [name for name in names if _letters(name) == _letters(first)]
    cells = {name: [row[name] for row in rows if row.get(name) not in (None, "")] for name in same}
    numbered = sorted(
        (name for name in same if all(map(_holds_image, cells[name]))),
        key=lambda name: int("".join(filter(str.isdecimal, name)) or 0),
    )
    return numbered if len(numbered) > 1 and first in numbered else first


def left_out(table: SourceTable, guessed: GuessedSource) -> list[str]:
    """Lines about what the guess does not show the teacher: columns with more images, and earlier turns."""
    rows = [row.values for row in islice(sources.rows(table), _LOOKED_AT) if isinstance(row, SourceRow)]
    half = max(1.0, _HALF * len(rows))
    held = [name for name in guessed.rest if sum(_adds_image(row, name, guessed) for row in rows) >= half]
    named = ", ".join(map(repr, held))
    lines = [f"not read: other images, in {named}; give --column image=NAME for each column"] if held else []
    question = str(guessed.columns.get("question", ""))
    asked = [max(_questions(row), len(readable_rows(row, question))) for row in rows]
    if several := sum(count > 1 for count in asked):
        lines.append(
            f"turns: {several} of the first {counted(len(rows), 'row asks', 'rows ask')} several questions; each is "
            "asked alone, and earlier_turns = true under [data.questions] and [data.test] shows it with the turns "
            "before it"
        )
    return lines


def _adds_image(row: Mapping[str, Any], name: str, guessed: GuessedSource) -> bool:
    cell, taken = row.get(name), list(map(row.get, guessed.image_columns))
    repeated = cell in taken or any(isinstance(images, list) and cell in images for images in taken)  # tar shards
    return not repeated and (_holds_bytes(cell) or any(is_file(guessed.images_root / path) for path in _paths(cell)))


def _turns(row: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The turns of a row; empty for a row that cannot be read."""
    column = "texts" if "texts" in row else next((name for name in TURNS if name in row), "")
    try:
        return read_turns(row.get(column), column)
    except RowError:
        return ()


def _questions(row: Mapping[str, Any]) -> int:
    """How many questions a row asks in its turns; 0 for a row that cannot be read."""
    return sum("texts" in row or speaker_of(turn) in ASKING for turn in _turns(row))


def cells_for_names(table: SourceTable) -> list[str]:
    """The names of a CSV table that look like a row of data, as in a file without a header line."""
    rows = [row.values for row in islice(sources.rows(table), _LOOKED_AT) if isinstance(row, SourceRow)]
    names = [name for name in rows[0] if name] if rows and table.kind == "csv" else []
    usual = set(map(_letters, " ".join(_NAMES.values()).split()))
    if any(_letters(name) in usual for name in names):
        return []
    return [
        name for name in names if has_image_suffix(name) or _asks(name) or any(row.get(name) == name for row in rows)
    ]


def _letters(name: str) -> str:
    """Letters alone, small and without accents, so that `Réponse_1` is `reponse`."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", name.casefold()) if letter.isalpha())


def _format(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str | Sequence[str]]
) -> str:
    answer = str(columns.get("answer", ""))
    if "texts" in names:
        return "finevision"
    if any(turns in names for turns in TURNS):
        return "llava"
    if "query" in names and ("imgname" in names or "label" in names):
        return "chartqa"
    asked = [(cell, row.get(answer)) for row in rows if (cell := choices_of(row)) is not None]
    # A column named A may be anything, so all answers must name choices. Of named choices none may be lost.
    named = any(len(column) > 1 for row in rows for column in choice_columns(row).values())
    strict = not named and not set(CHOICES).intersection(names)
    held = [holds_choices(cell, answer, strict) for cell, answer in asked if not strict or answer not in (None, "")]
    if not held or not (all if strict else any)(held):
        require_shown_choices(names, rows, columns)
        return "plain"
    if count_from_one(asked):
        raise DataError(
            f"column {answer!r}: the positions of the right choices seem to count from 1; write them from 0, or the "
            "letters or texts of the choices"
        )
    return "scienceqa"


def _column(
    role: str,
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    given: Mapping[str, str | Sequence[str]],
    places: ImagePlaces,
) -> str | None:
    """The column of a role: by its name (usual names first), then by its content."""
    used = {name for column in given.values() for name in _names_of(column)}
    free = [name for name in names if name not in used]
    plain = {_letters(name): name for name in reversed(free)}
    usual_names = map(_letters, _NAMES[role].split())
    usual = [plain[name] for name in usual_names if name in plain]
    if role == "image":
        return _image_column(usual, free, rows, places)
    if role == "answer":
        choices = [cell for row in rows if (cell := choices_of(row)) is not None]
        naming = [name for name in usual if choices and all(_names_choice(row, name) for row in rows)]
        return next(iter([*naming, *usual]), None)
    asking = _by_content(_asks, free, rows)
    if not usual or not asking:
        return usual[0] if usual else asking
    texts, others = ({str(row.get(name)) for row in rows} for name in (usual[0], asking))
    return usual[0] if len(texts) > 1 or len(others) == 1 else asking  # the same text in all rows is an instruction


def _answer_beside(question: Any, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The answer column, named like the question's column but with `a` or `answer`; it is not a choice A."""
    choices = {name for row in rows for name in choice_columns(row).values()}
    name = _ASKING_WORD.sub(lambda word: _ANSWERING_WORD[word[0].lower()], str(question))
    return name if name != question and name not in choices and any(name in row for row in rows) else None


def _by_content(holds: Callable[[Any], bool], names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str | None:
    shares = {name: sum(holds(row.get(name)) for row in rows) for name in names}
    best = max(shares, key=shares.__getitem__, default="")
    return best if best and shares[best] > _HALF * len(rows) else None


def _image_column(
    usual: Sequence[str], free: Sequence[str], rows: Sequence[Mapping[str, Any]], places: ImagePlaces
) -> str | None:
    """The column whose cells lead to images: a usual one, or one that names files in the folders nearby."""

    def found(name: str) -> tuple[int, int]:
        """Rows whose image is there; and values: an id of images has more than a number of their kind."""
        cells = [row.get(name) for row in rows]
        named = [names[0] for cell in cells if (names := _named(cell))]
        return sum(map(_holds_bytes, cells)) + places.found(named), len(set(named))

    for candidates in (usual, [name for name in free if name not in usual]):
        counts = {name: found(name) for name in candidates}
        best = max(counts, key=counts.__getitem__, default="")
        if best and counts[best][0] > _HALF * len(rows):
            return best
    if usual:  # of `image` and `images` one may be all but empty
        return max(usual, key=lambda name: sum(_holds_image(row.get(name)) for row in rows))
    return _by_content(_holds_image, free, rows)


def _names_choice(row: Mapping[str, Any], column: str) -> bool:
    cell, answer = choices_of(row), row.get(column)
    return cell is None or answer is None or holds_choices(cell, answer, strict=True)


def _holds_image(cell: Any) -> bool:
    return bool(_paths(cell)) or _holds_bytes(cell)


def _holds_bytes(cell: Any) -> bool:
    return any(map(_is_bytes, cell if isinstance(cell, list) else [cell]))


def _asks(cell: Any) -> bool:
    texts = (row["question"] for row in readable_rows({"question": cell}, "question"))
    return any(isinstance(text, str) and text.rstrip().endswith("?") for text in texts)


def _is_bytes(cell: Any) -> bool:
    if isinstance(cell, str):
        return is_base64(cell)
    return isinstance(cell, bytes) or (
        isinstance(cell, dict) and not cell.keys().isdisjoint(("bytes", "offset", "row"))
    )


def _named(cell: Any) -> list[str | int]:
    """The texts and numbers of a cell that may name an image file."""
    items = parse_json_list(cell) if isinstance(cell, str) and cell.lstrip().startswith("[") else cell
    items = map(whole_number, items if isinstance(items, list) else [items])
    return [item for item in items if _may_name(item)]


def _may_name(item: Any) -> bool:
    if isinstance(item, str):
        return 0 < len(item) <= _LONGEST_NAME and "\n" not in item and not item.startswith(("http://", "https://"))
    return isinstance(item, int) and not isinstance(item, bool)


def _paths(cell: Any) -> list[str]:
    texts = [item.replace("\\", "/") for item in _named(cell) if isinstance(item, str)]
    return list(filter(has_image_suffix, texts))


def _leads_out(root: Path, path: str) -> bool:
    try:
        image_paths.path_within(root, path, allow_outside=False)
    except ImageError:
        return True
    return False
