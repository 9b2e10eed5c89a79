"""One table of questions out of all that lies in a file or below a folder, where it is no table of its own."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distill.data import guessed_columns, sources
from distill.data.images.base64_images import is_base64
from distill.data.images.image_names import ImageIndex
from distill.data.images.image_suffixes import has_image_suffix, image_suffixes
from distill.data.row_values import whole_number
from distill.data.table_search import SPLITS
from distill.data.tables.table_rows import jsonl, write_rows
from distill.data.trees.image_records import UnclearImageError, records_of_images
from distill.data.trees.joined_records import UnclearJoinError, joined
from distill.data.trees.records import CONFLICT, Records, Row, tables_of
from distill.data.trees.tree_files import SUFFIXES, read_trees
from distill.word_tables import counted

_MOST_FILES: Final = 20
"""Files of one suffix in one folder; more of them are no tables."""
_IMAGE_NAMES: Final = re.compile(r"(im(a)?ge?s?|pictures?|photos?)[ _-]?(ids?|names?|files?|paths?)?", re.IGNORECASE)
_NUMBERED: Final = re.compile(r"\D*(\d+)")
_CHOICE: Final = re.compile(r"(option|choice)[ _.-]?\w|[A-H]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Found:
    """A table, and the file it is in; no file for a table of records that images have beside them."""

    records: Records
    file: Path | None

    def split(self, folder: Path) -> str | None:
        named = self.records.name if self.records.name in SPLITS else None
        return named or (sources.split_of(self.file, folder) if self.file else None)


class UnclearRowsError(Exception):
    """Questions were found, and what belongs to them is not clear."""


def write_found(given: Path, files: Sequence[Path], out: Path) -> str | None:
    """Write the questions in these files of a folder, or in one file, as rows; what was read, in words.

    None where no questions are found. Raises UnclearRowsError.
    """
    folder = given if given.is_dir() else given.parent
    try:
        tables = _tables(given, folder, [file for file in files if file.suffix.lower() in SUFFIXES])
        asking = [table for table in tables if table.records.asks]
        if not asking:
            return None
        splits = {table.split(folder) for table in asking}
        wanted = next((name for name in SPLITS if name in splits), None)
        if None in splits and wanted:
            raise UnclearRowsError("questions of a split, and others whose split is not known")
        questions = _one([table for table in asking if table.split(folder) == wanted], folder)
        others = [table.records for table in tables if table not in asking and table.split(folder) in (None, wanted)]
        rows, said = joined(questions.records, others)
    except (UnclearImageError, UnclearJoinError) as error:
        raise UnclearRowsError(str(error)) from None
    rows = _with_numbers(_with_folders(rows, folder), folder)
    clear = [row for row in rows if not any(value is CONFLICT and _matters(name) for name, value in row.items())]
    if not clear:
        raise UnclearRowsError("a question has several records with different answers")
    write_rows(out, ({name: value for name, value in row.items() if value is not CONFLICT} for row in clear))
    where = "files beside the images" if questions.file is None else f"{questions.records.name} in {questions.file}"
    joins = f"; joined: {', '.join(said)}" if said else ""
    lost = len(rows) - len(clear)
    unclear = f"; left out: {counted(lost, 'question')} whose records say different things" if lost else ""
    return f"read as a table: {where}, {counted(len(clear), 'row')}{joins}{unclear}"


def require_no_unread_choices(file: Path, answer: str) -> None:
    """Raise UnclearRowsError if rows without choices have a list of texts among which their answers are."""
    rows = [row for row in jsonl(file) if isinstance(row, Mapping)]
    for name in dict.fromkeys(name for row in rows for name in row):
        if name != answer and not _matters(name) and all(_is_among(row.get(answer), row.get(name)) for row in rows):
            raise UnclearRowsError(f"{name!r} seems to hold choices; write them into a column `choices`")


def _is_among(answer: Any, texts: Any) -> bool:
    """Whether a list of different texts has the answer, or has it at the place that the answer is."""
    if not isinstance(texts, list) or len({str(text) for text in texts}) != len(texts) or len(texts) < 2:
        return False
    place = whole_number(answer)
    in_order = str(place).isdecimal() and int(place) <= len(texts)
    return in_order or (isinstance(answer, str) and (answer in map(str, texts) or len(answer) == 1))


def _with_folders(rows: list[Row], folder: Path) -> list[Row]:
    """Rows that name a folder each, with the images in it by their numbers; other rows as they are."""
    inside: dict[Path, list[Path]] = defaultdict(list)
    for image in guessed_columns.files_below(folder, image_suffixes()):
        inside[image.parent].append(image)
    named: dict[str, list[Path]] = defaultdict(list)
    for place in inside:
        for start in range(len(place.relative_to(folder).parts)):
            named["/".join(place.relative_to(folder).parts[start:])].append(place)
    texts = [name for name in (rows[0] if rows else ()) if all(isinstance(row.get(name), str) for row in rows)]
    clear = [name for name in texts if all(len(named.get(row[name].strip("/"), ())) == 1 for row in rows)]
    clear = [name for name in clear if len({row[name] for row in rows}) > 1]
    ordered = {place: _in_order(images) for place, images in inside.items()}
    stems = {image.stem for images in inside.values() for image in images}
    if len(clear) != 1 or any(_may_show(value, stems) for row in rows for value in row.values()):
        return rows
    shown = [ordered[named[row[clear[0]].strip("/")][0]] for row in rows]
    if None in shown:
        raise UnclearRowsError(f"{clear[0]!r} names folders of images whose order is not known")
    return [
        {**row, "image": [path.relative_to(folder).as_posix() for path in images or ()]}
        for row, images in zip(rows, shown, strict=True)
    ]


def _with_numbers(rows: list[Row], folder: Path) -> list[Row]:
    """Rows with a number of an image, and the only image with it in its name (12 of kitchen_000012.jpg).

    The names of all images differ in this number alone. Other rows as they are.
    """
    images = guessed_columns.files_below(folder, image_suffixes())
    numbers = {int(found[1]): image for image in images if (found := _NUMBERED.fullmatch(image.stem))}
    forms = {re.sub(r"\d+", "#", image.stem) for image in images}
    if "image_id" not in (rows[0] if rows else ()) or len(numbers) < len(images) or len(forms) != 1:
        return rows
    if any(name != "image_id" and guessed_columns.is_usual("image", name) for name in rows[0]):
        return rows
    ids = [whole_number(row.get("image_id")) for row in rows]
    if not all(isinstance(each, int) and each in numbers for each in ids):
        return rows
    return [
        {**row, "image": numbers[each].relative_to(folder).as_posix()} for row, each in zip(rows, ids, strict=True)
    ]


def _may_show(value: Any, stems: Collection[str]) -> bool:
    """Whether a cell may lead to an image by itself."""
    if isinstance(value, list | dict):
        return any(_may_show(each, stems) for each in (value.values() if isinstance(value, dict) else value))
    text = str(value)
    return isinstance(value, str | int) and (has_image_suffix(text) or is_base64(text) or text in stems)


def _in_order(images: Sequence[Path]) -> list[Path] | None:
    """Images by the only number in which their names differ; None for other names."""
    numbers = {image: re.findall(r"\d+", image.stem) for image in images}
    forms = {(re.sub(r"\d+", "#", image.stem), len(numbers[image])) for image in images}
    if len(images) == 1:
        return list(images)
    if len(forms) > 1 or not all(numbers.values()):
        return None
    differ = [at for at in range(len(numbers[images[0]])) if len({int(each[at]) for each in numbers.values()}) > 1]
    if len(differ) != 1:
        return None
    return sorted(images, key=lambda image: int(numbers[image][differ[0]]))


def _matters(name: str) -> bool:
    return any(guessed_columns.is_usual(role, name) for role in guessed_columns.ROLES)


def _tables(given: Path, folder: Path, files: Sequence[Path]) -> list[_Found]:
    found: list[_Found] = []
    beside: set[Path] = set()
    if given.is_dir():
        records, beside = records_of_images(folder, files)
        found += [_Found(each, None) for each in tables_of(records, "images")]
        for file, rows in _rows_of_lines(files):
            found += [_Found(each, file) for each in tables_of(rows, file.parent.name)]
            beside = beside | {file}
    left = [file for file in files if file not in beside]
    counts = Counter((file.parent, file.suffix.lower()) for file in left)
    for file in left:
        if counts[file.parent, file.suffix.lower()] <= _MOST_FILES:
            found += [_Found(each, file) for name, tree in read_trees(file, folder) for each in tables_of(tree, name)]
    return found


def _one(tables: Sequence[_Found], folder: Path) -> _Found:
    """The table of questions, or those in files side by side with the same columns. Raises UnclearRowsError."""
    if len(tables) == 1:
        return tables[0]
    alike: dict[Any, list[_Found]] = defaultdict(list)
    for table in tables:
        columns = frozenset(name for name in table.records.own if not _CHOICE.fullmatch(name))
        place = (len(table.file.parts), table.file.suffix) if table.file else None
        alike[place, columns].append(table)
    distinct_files = len({table.file for table in tables}) == len(tables)
    if len(alike) > 1 or not distinct_files:
        names = ", ".join(f"{table.records.name} in {_name(table, folder)}" for table in tables[:_MOST_FILES])
        raise UnclearRowsError(f"several tables with questions ({names})")
    first = tables[0]
    places = {table.file.parent for table in tables if table.file}
    if len(places) > 1 and (len(places) < len(tables) or len({place.parent for place in places}) > 1):
        raise UnclearRowsError("tables with questions in several folders")
    rows = [row for table in tables for row in _own_images(table, folder, apart=len(places) > 1)]
    own = frozenset(name for table in tables for name in table.records.own)
    return _Found(Records(name=first.records.name, rows=_distinct(rows), own=own), first.file)


def _own_images(table: _Found, folder: Path, *, apart: bool) -> Iterator[Row]:
    """The rows of one of several tables; if each is in a folder of its own, with the images that are there."""
    if not apart or table.file is None:
        yield from table.records.rows
        return
    near = ImageIndex(table.file.parent)
    inside = table.file.parent.relative_to(folder)
    for row in table.records.rows:
        new = dict(row)
        for name, value in row.items():
            if isinstance(value, str) and has_image_suffix(value):
                roots = near.roots(value)
                if len(roots) != 1:
                    raise UnclearRowsError(f"{value!r} is not one image in {inside}")
                new[name] = (inside / roots[0] / value).as_posix()
        yield new


def _distinct(rows: Sequence[Row]) -> list[Row]:
    """Rows without those that are there twice. Raises UnclearRowsError if the same question has two answers."""
    found: dict[Any, Row] = {}
    for row in rows:
        asked = {name: value for name, value in row.items() if not _says(name)}
        key = repr(sorted((name, value) for name, value in asked.items() if isinstance(value, str | list)))
        if found.setdefault(key, row) != row:
            raise UnclearRowsError("the same question with other answers, in two tables")
    return list(found.values())


def _says(name: str) -> bool:
    return guessed_columns.is_usual("answer", name) or bool(_CHOICE.fullmatch(name))


def _name(table: _Found, folder: Path) -> str:
    return str(table.file.relative_to(folder)) if table.file else "files beside the images"


def _rows_of_lines(files: Sequence[Path]) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Texts side by side with a line for each row, as in COCO-QA: the file of questions of each folder, and its rows.

    A folder counts if it has one text of questions, one of answers and one of images, all of as many lines.
    """
    folders: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if file.suffix.lower() == ".txt":
            folders[file.parent].append(file)
    for held in folders.values():
        roles = {
            role: [file for file in held if guessed_columns.is_usual(role, file.stem)]
            for role in ("question", "answer")
        }
        roles["image"] = [file for file in held if _IMAGE_NAMES.fullmatch(file.stem)]
        if any(len(found) != 1 for found in roles.values()):
            continue
        try:
            lines = {found[0].stem: found[0].read_text(encoding="utf-8-sig").splitlines() for found in roles.values()}
        except UnicodeDecodeError:
            continue
        counts = {len(texts) for texts in lines.values()}
        if len(counts) == 1 and min(counts) > 1 and all(text.strip() for texts in lines.values() for text in texts):
            rows = [
                dict(zip(lines, map(str.strip, cells), strict=True)) for cells in zip(*lines.values(), strict=True)
            ]
            yield roles["question"][0], rows
