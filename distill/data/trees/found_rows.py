"""One table of questions out of all that lies in a file or below a folder, where it is no table of its own."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distill.data import guessed_columns, sources
from distill.data.row_values import whole_number
from distill.data.table_search import SPLITS
from distill.data.tables.table_rows import jsonl, write_rows
from distill.data.trees.image_records import UnclearImageError, records_of_images
from distill.data.trees.joined_records import UnclearJoinError, joined
from distill.data.trees.records import CONFLICT, Records, Row, tables_of
from distill.data.trees.tree_files import SUFFIXES, read_trees

_MOST_FILES: Final = 20
"""Files of one suffix in one folder; more of them are no tables."""


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
        questions = _one([table for table in asking if table.split(folder) == wanted], folder)
        others = [table.records for table in tables if table not in asking and table.split(folder) in (None, wanted)]
        rows, said = joined(questions.records, others)
    except (UnclearImageError, UnclearJoinError) as error:
        raise UnclearRowsError(str(error)) from None
    clear = [row for row in rows if not any(value is CONFLICT and _matters(name) for name, value in row.items())]
    if not clear:
        raise UnclearRowsError("the records of each question say different things")
    write_rows(out, ({name: value for name, value in row.items() if value is not CONFLICT} for row in clear))
    where = "files beside the images" if questions.file is None else f"{questions.records.name} in {questions.file}"
    joins = f"; joined: {', '.join(said)}" if said else ""
    lost = len(rows) - len(clear)
    unclear = f"; left out: {lost:,} questions whose records say different things" if lost else ""
    return f"read as a table: {where}, {len(clear):,} rows{joins}{unclear}"


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


def _matters(name: str) -> bool:
    return any(guessed_columns.is_usual(role, name) for role in guessed_columns.ROLES)


def _tables(given: Path, folder: Path, files: Sequence[Path]) -> list[_Found]:
    found: list[_Found] = []
    beside: set[Path] = set()
    if given.is_dir():
        records, beside = records_of_images(folder, files)
        found += [_Found(each, None) for each in tables_of(records, "images")]
    left = [file for file in files if file not in beside]
    counts = Counter((file.parent, file.suffix.lower()) for file in left)
    for file in left:
        if counts[file.parent, file.suffix.lower()] <= _MOST_FILES:
            found += [_Found(each, file) for name, tree in read_trees(file) for each in tables_of(tree, name)]
    return found


def _one(tables: Sequence[_Found], folder: Path) -> _Found:
    """The table of questions, or those in files side by side with the same columns. Raises UnclearRowsError."""
    if len(tables) == 1:
        return tables[0]
    alike: dict[Any, list[_Found]] = defaultdict(list)
    for table in tables:
        place = (table.file.parent, table.file.suffix) if table.file else None
        alike[place, table.records.own].append(table)
    distinct_files = len({table.file for table in tables}) == len(tables)
    if len(alike) > 1 or not distinct_files:
        names = ", ".join(f"{table.records.name} in {_name(table, folder)}" for table in tables[:_MOST_FILES])
        raise UnclearRowsError(f"several tables with questions ({names})")
    rows: list[Row] = [row for table in tables for row in table.records.rows]
    first = tables[0]
    return _Found(Records(name=first.records.name, rows=rows, own=first.records.own), first.file)


def _name(table: _Found, folder: Path) -> str:
    return str(table.file.relative_to(folder)) if table.file else "files beside the images"
