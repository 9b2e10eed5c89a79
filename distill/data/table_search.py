"""Finds the table with the questions below a folder, as public data sets are laid out.

Tables lie in folders of their own (`annotations/train.json`), in files for each split, or in several files for one
split (`train/train_human.json`, `train/train_augmented.json`). Other JSON and CSV files there hold no questions.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from distill.data import guessed_columns, sources
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.data.tables.table_rows import write_rows
from distill.errors import DataError
from distill.word_tables import counted

SPLITS = ("train", "training", "validation", "valid", "val", "dev", "testmini", "test")
"""The split whose rows are used: the first one that a table has."""
SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".tsv"})
_PARQUET = ".parquet"
_MOST_FILES = 20
"""Files of one suffix in one folder; more of them are notes about one image each."""
_LOOKED_AT = 20
_QUESTION_ID = re.compile(r"q(uestion|a)?_?(id|idx|index)", re.IGNORECASE)


def find(folder: Path) -> str | None:
    """The file, or the pattern of files, with the questions below a folder; None where there is none.

    Raises DataError where several tables are left.
    """
    columns = {file: found for file in _tables(folder) if (found := _columns(file))}
    splits = {file: sources.split_of(file, folder) for file in columns}
    wanted = next((name for name in SPLITS if name in splits.values()), None)
    tables = [file for file in columns if splits[file] == wanted]
    if len(tables) < 2:
        return str(tables[0]) if tables else None
    pattern = tables[0].with_name(f"*{tables[0].suffix}")
    if sorted(pattern.parent.glob(pattern.name)) == tables and len({columns[file] for file in tables}) == 1:
        return str(pattern)
    names = ", ".join(str(file.relative_to(folder)) for file in tables[:_MOST_FILES])
    raise DataError(f"{folder}: several tables with questions ({names}); give one of them")


def write_joined(questions: Path, folder: Path, out: Path) -> str | None:
    """Write the rows of a table of questions with their answers from another table below a folder, as in VQA.

    The tables share a split and the ids of questions; a plain `id` may be of something else. Returns what was joined,
    in words; None where the table has answers of its own, or none fits.
    """
    rows, unreadable = _rows(questions)
    if not rows or guessed_columns.has_role("answer", rows[:_LOOKED_AT]):
        return None
    split = sources.split_of(questions, folder)
    for file in _tables(folder):
        if file == questions or sources.split_of(file, folder) != split:
            continue
        others = _rows(file)[0]
        if guessed_columns.has_role("answer", others[:_LOOKED_AT]) and (key := _shared_key(rows, others)):
            answers = {row[key]: row for row in others}
            write_rows(out, ({**answers.get(row[key], {}), **row} for row in rows))
            missing = sum(row[key] not in answers for row in rows)
            lacks = f"; {counted(missing, 'row has', 'rows have')} none" if missing else ""
            lacks += f"; left out: {counted(unreadable, 'row')} that cannot be read" if unreadable else ""
            return f"answers: of {file}, by the column {key!r}{lacks}"
    return None


def _tables(folder: Path) -> list[Path]:
    files = guessed_columns.files_below(folder, {*SUFFIXES, _PARQUET})
    beside = Counter((file.parent, file.suffix.lower()) for file in files if file.suffix.lower() != _PARQUET)
    return [file for file in files if beside[file.parent, file.suffix.lower()] <= _MOST_FILES]


def _shared_key(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """A column of ids of questions that two tables share, different in all rows of each; empty without one."""
    for name in filter(_QUESTION_ID.fullmatch, rows[0]):
        ids, other_ids = ([row.get(name) for row in table] for table in (rows, others))
        if all(isinstance(each, str | int) for each in (*ids, *other_ids)):
            distinct, others_distinct = set(ids), set(other_ids)
            shared = len(distinct & others_distinct) > len(rows) / 2
            if shared and len(distinct) == len(ids) and len(others_distinct) == len(other_ids):
                return name
    return ""


def _rows(file: Path, most: int | None = None) -> tuple[list[Mapping[str, Any]], int]:
    """The rows of a file, or of its first ones, and the number of rows that cannot be read."""
    table = SourceTable(label=str(file), kind=KINDS[suffix_of(file)], files=(file,), root=file.parent)
    try:
        rows = list(islice(sources.rows(table), most))
    except DataError:
        return [], 0
    readable = [row.values for row in rows if isinstance(row, SourceRow)]
    return readable, len(rows) - len(readable)


def _columns(file: Path) -> frozenset[str]:
    """The columns of a table that asks questions; nothing for any other file."""
    rows, _ = _rows(file, _LOOKED_AT)
    return (
        frozenset(name for row in rows for name in row) if guessed_columns.has_role("question", rows) else frozenset()
    )
