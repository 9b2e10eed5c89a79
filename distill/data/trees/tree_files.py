"""Files as trees of records: JSON, tables, XML, workbooks, databases and labelled texts."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import date, time
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.data import guessed_columns, sources
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.exact_json import RepeatedKeys, find_repeated, parse_rows
from distill.data.tables.table_kinds import KINDS, suffix_of
from distill.data.trees.labelled_texts import read_labelled
from distill.errors import DataError

TEXTS: Final = frozenset({".txt", ".md"})
WORKBOOKS: Final = frozenset({".xlsx", ".xls", ".xlsm", ".ods"})
PARQUET: Final = ".parquet"
DATABASES: Final = frozenset({".db", ".sqlite", ".sqlite3"})
SUFFIXES: Final = frozenset(
    {".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".xml", PARQUET, *TEXTS, *WORKBOOKS, *DATABASES}
)
_ENTITIES: Final = b"<!ENTITY"
_BYTE_ORDERS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_trees(file: Path, folder: Path) -> Iterator[tuple[str, Any]]:
    """The trees of a file, with the name of each: a sheet, a table of a database, or the file.

    A file that cannot be read has none. One with a row that cannot be read has none, too: it may be the one that a
    question needs. Images in Parquet files are references to their cells, by paths below `folder`.
    """
    suffix = file.suffix.lower()
    try:
        if suffix == ".json":
            trees = _json(file)
        elif suffix == ".xml":
            trees = _xml(file)
        elif suffix in WORKBOOKS:
            trees = _workbook(file)
        elif suffix in DATABASES:
            trees = _database(file)
        elif suffix in TEXTS:
            trees = _text(file)
        elif suffix == PARQUET:
            trees = _parquet(file, folder)
        else:
            trees = _rows(file)
        yield from list(trees)
    except (DataError, OSError, ValueError, sqlite3.Error, ElementTree.ParseError, pa.ArrowException):
        return


def _json(file: Path) -> Iterator[tuple[str, Any]]:
    data = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        value = parse_rows(data)
    except orjson.JSONDecodeError:
        yield from _rows(file)
        return
    repeated = isinstance(value, RepeatedKeys) or any(
        find_repeated(item) is not None for item in (value if isinstance(value, list) else [value])
    )
    if not repeated:
        yield file.stem, value


def _rows(file: Path) -> Iterator[tuple[str, Any]]:
    """A table that the readers of tables know."""
    table = SourceTable(label=str(file), kind=KINDS.get(suffix_of(file), "csv"), files=(file,), root=file.parent)
    if guessed_columns.cells_for_names(table):
        return
    items = list(sources.rows(table))
    rows = [item.values for item in items if isinstance(item, SourceRow)]
    if rows and len(rows) == len(items):
        yield file.stem, [dict(row) for row in rows]


def _parquet(file: Path, folder: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a Parquet file. Images are not read: each is a reference to its cell."""
    schema = pq.read_schema(file)
    path = file.relative_to(folder).as_posix()
    images = {field.name: pa.types.is_list(field.type) for field in schema if _holds_bytes(field.type)}
    rows = pq.read_table(file, columns=[name for name in schema.names if name not in images]).to_pylist()
    for name, is_list in images.items():
        if is_list:
            (lengths,) = (pc.list_value_length(pq.read_table(file, columns=[name])[name]).to_pylist(),)
            if set(lengths) != {1}:
                return  # a reference leads to the first image of a list
        for number, row in enumerate(rows):
            row[name] = {"path": path, "column": name, "row": number}
    if rows:
        yield file.stem, rows


def _holds_bytes(kind: Any) -> bool:
    if pa.types.is_list(kind):
        return _holds_bytes(kind.value_type)
    held = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return bool(held or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _text(file: Path) -> Iterator[tuple[str, Any]]:
    """A text with labels, or a table that a spreadsheet saved as text with tabs."""
    data = file.read_bytes()
    text = data.decode("utf-16" if data[:2] in _BYTE_ORDERS else "utf-8-sig")
    if (records := read_labelled(text)) is not None:
        yield file.stem, records
    elif "\t" in text.split("\n", 1)[0]:
        yield from _rows(file)


def _xml(file: Path) -> Iterator[tuple[str, Any]]:
    data = file.read_bytes()
    if _ENTITIES not in data.upper():  # entities may grow without bounds
        yield file.stem, _element(ElementTree.fromstring(data))


def _element(element: ElementTree.Element) -> Any:
    """An element as an object of its attributes, its text and the elements in it, lists of those that are no text."""
    text = (element.text or "").strip()
    if not element.attrib and not len(element):
        return text
    nested: dict[str, list[Any]] = defaultdict(list)
    for child in element:
        nested[child.tag.rpartition("}")[2]].append(_element(child))
    children = {
        tag: found[0] if len(found) == 1 and isinstance(found[0], str) else found for tag, found in nested.items()
    }
    return {**element.attrib, **({"#text": text} if text else {}), **children}


def _workbook(file: Path) -> Iterator[tuple[str, Any]]:
    """The sheets of a workbook whose first row with several cells has the names of its columns."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        with CalamineWorkbook.from_path(file) as book:
            for name in book.sheet_names:
                cells = [list(map(_plain, row)) for row in book.get_sheet_by_name(name).to_python()]
                if rows := _with_names(cells):
                    yield name, rows
    except CalamineError as error:
        raise DataError(str(error)) from None


def _with_names(cells: list[list[Any]]) -> list[Mapping[str, Any]]:
    lines = [line for line in cells if any(cell != "" for cell in line)]
    while lines and sum(cell != "" for cell in lines[0]) < 2:
        del lines[0]
    if not lines:
        return []
    names = [str(cell).strip() for cell in lines[0]]
    given = [name for name in names if name]
    nameless = any(cell != "" for line in lines[1:] for name, cell in zip(names, line, strict=False) if not name)
    if len(set(given)) < len(given) or nameless:
        return []
    return [{name: cell for name, cell in zip(names, line, strict=False) if name} for line in lines[1:]]


def _plain(cell: Any) -> Any:
    """A cell as a person sees it: whole numbers without a point, days as texts."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return cell.isoformat() if isinstance(cell, date | time) else cell


def _database(file: Path) -> Iterator[tuple[str, Any]]:
    """The tables of an SQLite database, which is opened for reading alone."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as base:
        base.row_factory = sqlite3.Row
        names = base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        for (name,) in names.fetchall():
            quoted = str(name).replace('"', '""')
            if rows := [dict(row) for row in base.execute(f'SELECT * FROM "{quoted}"')]:
                yield str(name), rows
