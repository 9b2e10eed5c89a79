"""What the columns of a table most likely hold, by their names and first rows; and where its images lie.

A guess is for a person to confirm: `distill init` prints it. Reading itself follows the recipe
(distill/data/reader.py).
"""

import os
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from distill.data import sources
from distill.data.formats import ASKING, CHOICES, TURNS, choices_of, speaker_of
from distill.data.gold_answers import RowError
from distill.data.images import image_paths
from distill.data.images.image_suffixes import image_suffixes
from distill.data.row_values import Choices, read_turns
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.errors import ImageError

ROLES = ("image", "question", "answer")
_NAMES = {
    "image": "image images filename filepath imagepath imgpath imagefile imagename imgname path file img picture "
    "photo bild foto imagen imagem immagine afbeelding obraz resim "
    "изображение картинка 图像 图片 圖片 画像 이미지 صورة",
    "question": "question questions query prompt instruction ask asked userquestion questiontext frage pregunta "
    "pergunta domanda vraag pytanie soru вопрос 问题 問題 質問 질문 سؤال",
    "answer": "answer answers label labels goldanswer gold groundtruth target response reply correctanswer expected "
    "antwort reponse respuesta resposta risposta antwoord odpowiedź cevap ответ 答案 回答 답변 정답 جواب",
}
"""The usual ones first."""
_LOOKED_AT = 200
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedSource:
    """The settings of a data section that a table most likely needs."""

    format: str
    columns: Mapping[str, str]
    """Role to column; a role without a column is left out, and one that was given none has an empty name."""
    names: Sequence[str]
    """All columns of the table."""
    images_root: Path
    outside: bool
    """Whether the path of an image leads out of `images_root`."""


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


def guess(table: SourceTable, given: Mapping[str, str]) -> GuessedSource:
    """The guess for a table; the columns of `given` are not guessed. Raises DataError for an unreadable table."""
    rows = [row.values for row in islice(sources.rows(table), _LOOKED_AT) if isinstance(row, SourceRow)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    found = {role: given[role] if role in given else _column(role, names, rows, given) for role in ROLES}
    columns = {role: name for role, name in found.items() if name is not None}
    paths = [path for row in rows for path in _paths(row.get(columns.get("image", "")))]
    root = _images_root(table.root, paths)
    return GuessedSource(
        format=_format(names, rows, columns.get("answer", "")),
        columns=columns,
        names=names,
        images_root=root,
        outside=any(_leads_out(root, path) for path in paths if _is_file(root / path)),
    )


def left_out(table: SourceTable, guessed: GuessedSource) -> list[str]:
    """Lines about what the guess does not show the teacher: columns with more images, and earlier turns."""
    rows = [row.values for row in islice(sources.rows(table), _LOOKED_AT) if isinstance(row, SourceRow)]
    rest = [name for name in guessed.names if name not in guessed.columns.values()]
    held = [name for name in rest if rows and sum(_holds_image(row.get(name)) for row in rows) >= _HALF * len(rows)]
    named = ", ".join(map(repr, held))
    lines = [f"not read: other images, in {named}; a list in one column gives a question several"] if held else []
    turns = [_turns(row) for row in rows] if guessed.format in ("llava", "finevision") else []
    if several := sum(count > 1 for count in turns):
        lines.append(
            f"turns: {several} of the first {len(rows)} rows ask several questions; each is asked alone, and "
            "earlier_turns = true under [data.questions] and [data.test] shows it with the turns before it"
        )
    return lines


def _turns(row: Mapping[str, Any]) -> int:
    """How many questions a row asks; 0 for a row that cannot be read."""
    column = "texts" if "texts" in row else next((name for name in TURNS if name in row), "")
    try:
        turns = read_turns(row.get(column), column)
    except RowError:
        return 0
    return len(turns) if column == "texts" else sum(speaker_of(turn) in ASKING for turn in turns)


def cells_for_names(table: SourceTable) -> list[str]:
    """The names of a CSV table that look like a row of data, as in a file without a header line."""
    rows = [row.values for row in islice(sources.rows(table), _LOOKED_AT) if isinstance(row, SourceRow)]
    names = [name for name in rows[0] if name] if rows and table.kind == "csv" else []
    usual = set(map(_letters, " ".join(_NAMES.values()).split()))
    if any(_letters(name) in usual for name in names):
        return []
    return [name for name in names if _paths(name) or _asks(name) or any(row.get(name) == name for row in rows)]


def _letters(name: str) -> str:
    """Letters alone, small and without accents, so that `Réponse_1` is `reponse`."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", name.casefold()) if letter.isalpha())


def _format(names: Sequence[str], rows: Sequence[Mapping[str, Any]], answer: str) -> str:
    if "texts" in names:
        return "finevision"
    if any(turns in names for turns in TURNS):
        return "llava"
    if "query" in names and ("imgname" in names or "label" in names):
        return "chartqa"
    asked = [(cell, row.get(answer)) for row in rows if (cell := choices_of(row)) is not None]
    # A column named A or 1 may be anything, so the answers must name choices.
    strict = not set(CHOICES).intersection(names)
    return "scienceqa" if asked and all(_holds_choices(cell, answer, strict) for cell, answer in asked) else "plain"


def _holds_choices(cell: Any, answer: Any, strict: bool) -> bool:
    try:
        choices = Choices.read(cell)
        return not strict or choices.letter(answer) is not None
    except RowError:
        return False


def _column(
    role: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]], given: Mapping[str, str]
) -> str | None:
    """The column of a role: by its name, the usual names first, then by what it holds."""
    free = [name for name in names if name not in given.values()]
    plain = {_letters(name): name for name in reversed(free)}
    usual_names = map(_letters, _NAMES[role].split())
    usual = [plain[name] for name in usual_names if name in plain]
    if usual and role == "image":  # of `image` and `images` one may be all but empty
        return max(usual, key=lambda name: sum(_holds_image(row.get(name)) for row in rows))
    if usual:
        return usual[0]
    holds = {"image": _holds_image, "question": _asks}.get(role)
    if holds is None:
        return None
    shares = {name: sum(holds(row.get(name)) for row in rows) for name in free}
    best = max(shares, key=shares.__getitem__, default="")
    return best if best and shares[best] > _HALF * len(rows) else None


def _holds_image(cell: Any) -> bool:
    return bool(_paths(cell)) or any(map(_is_bytes, cell if isinstance(cell, list) else [cell]))


def _asks(cell: Any) -> bool:
    return isinstance(cell, str) and cell.rstrip().endswith("?")


def _is_bytes(cell: Any) -> bool:
    return isinstance(cell, bytes) or (isinstance(cell, dict) and not cell.keys().isdisjoint(("bytes", "offset")))


def _paths(cell: Any) -> list[str]:
    items = cell if isinstance(cell, list) else [cell]
    texts = [item.replace("\\", "/") for item in items if isinstance(item, str)]
    return [text for text in texts if Path(text).suffix.lower() in image_suffixes()]


def _leads_out(root: Path, path: str) -> bool:
    try:
        image_paths.path_within(root, path, allow_outside=False)
    except ImageError:
        return True
    return False


def _is_file(path: Path) -> bool:
    """Whether a file is there; no, where its folder may not be read."""
    try:
        return path.is_file()
    except OSError:
        return False


def _images_root(root: Path, paths: Sequence[str]) -> Path:
    """The folder that most of the paths are relative to: that of the table, or one in it, above it or beside it.

    A folder without read permission counts as empty.
    """
    absolute = [path for path in paths if Path(path).is_absolute()]
    if absolute and len(absolute) == len(paths):
        return Path(os.path.commonpath([str(Path(path).parent) for path in absolute])).resolve()

    def count(folder: Path) -> int:
        return sum(_is_file(folder / path) for path in paths)

    near = max((root, *_folders(root), root.parent), key=count)
    return near if count(near) else max((near, *_folders(root.parent)), key=count)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder; none where it may not be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.name[:1] != "." and path.is_dir())
    except OSError:
        return []
