"""Finds the table with the questions below a folder, as public data sets are laid out.

Tables lie in folders of their own (`annotations/train.json`), in files for each split, or in several files for one
split (`train/train_human.json`, `train/train_augmented.json`). Other JSON and CSV files there hold no questions.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from distill.artifacts.journal import write_jsonl
from distill.data import guessed_columns, sources
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.errors import DataError

SPLITS = ("train", "training", "validation", "valid", "val", "dev", "testmini", "test")
"""The split whose rows are used: the first one that a table has."""
SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".tsv"})
_MOST_FILES = 20
"""Files of one suffix in one folder; more of them are notes about one image each."""
_LOOKED_AT = 20


def find(folder: Path) -> str | None:
    """The file, or the pattern of files, with the questions below a folder; None where there is none.

    Raises DataError where several tables are left.
    """
    files = guessed_columns.files_below(folder, SUFFIXES)
    beside = Counter((file.parent, file.suffix.lower()) for file in files)
    few = [file for file in files if beside[file.parent, file.suffix.lower()] <= _MOST_FILES]
    columns = {file: found for file in few if (found := _columns(file))}
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

    The tables share a column, such as `question_id`, and a split. Returns what was joined, in words; None where the
    table has answers of its own, or none fits.
    """
    rows = list(_rows(questions, None))
    if not rows or guessed_columns.answers(rows[:_LOOKED_AT]):
        return None
    split = sources.split_of(questions, folder)
    for file in guessed_columns.files_below(folder, SUFFIXES):
        if file == questions or sources.split_of(file, folder) != split:
            continue
        if not guessed_columns.answers(list(_rows(file, _LOOKED_AT))):
            continue
        others = list(_rows(file, None))
        if key := _shared_key(rows, others):
            answers = {row[key]: row for row in others}
            write_jsonl(out, ({**answers.get(row[key], {}), **row} for row in rows))
            return f"answers: of {file}, by the column {key!r}"
    return None


def _shared_key(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """A column of ids that two tables share, different in all rows of each; empty without one."""
    for name in (name for name in rows[0] if name.lower().endswith("id")):
        ids, other_ids = ([row.get(name) for row in table] for table in (rows, others))
        if all(isinstance(each, str | int) for each in (*ids, *other_ids)):
            distinct, others_distinct = set(ids), set(other_ids)
            shared = len(distinct & others_distinct) > len(rows) / 2
            if shared and len(distinct) == len(ids) and len(others_distinct) == len(other_ids):
                return name
    return ""


def _rows(file: Path, most: int | None) -> Iterator[Mapping[str, Any]]:
    """The readable rows of a file, or the first ones; none of a file that is no table."""
    table = SourceTable(label=str(file), kind=KINDS[suffix_of(file)], files=(file,), root=file.parent)
    with suppress(DataError):
        yield from (row.values for row in islice(sources.rows(table), most) if isinstance(row, SourceRow))


def _columns(file: Path) -> frozenset[str]:
    """The columns of a table that asks questions; nothing for any other file."""
    rows = list(_rows(file, _LOOKED_AT))
    return frozenset(name for row in rows for name in row) if guessed_columns.asks(rows) else frozenset()
