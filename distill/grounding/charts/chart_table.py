"""The table behind a chart, read from any form that data sets use: values with their labels.

Reads {label: value}, {label: {label: value}}, {column: [values]}, lists of rows, lists of records, plain lists of
numbers, {"columns": ..., "data": ...}, and the same written as JSON, CSV, TSV or a table of pipes. Anything
else is None, never a guess. Reads no images.
"""

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import read_single_quantity
from distill.artifacts.repeated_keys import repeated_key

TABLE_KEYS: Final = ("table", "bars", "data", "values", "digits")
"""The keys of a sample's meta that may hold its table, in this order."""
_MAX_CELLS: Final = 20_000
_MISSING: Final = frozenset(["", "-", "–", "—", "n/a", "na", "nan", "null", "none"])
"""How data sets write that a value is missing."""
_HEADERS: Final = ("columns", "header", "headers")
_BODIES: Final = ("rows", "data", "values")
_YEAR = re.compile(r"(?:1[5-9]|20|21)\d\d")
_PARENTHESES = re.compile(r"\s*[(\[][^()\[\]]*[)\]]")
_RULE = re.compile(r"[\s|:+-]+")
_LINE_END = re.compile(r"<0x0A>|\r\n?|\n")

_COLOURS = """red blue green yellow purple orange grey gray black white brown pink cyan teal violet magenta navy
maroon turquoise beige gold silver lime indigo olive tan crimson salmon lavender"""
COLOURS: Final = frozenset(_COLOURS.split())
_MONTHS = """january february march april may june july august september october november december jan feb mar apr
jun jul aug sep sept oct nov dec"""
MONTHS: Final = frozenset(_MONTHS.split())
_DAYS = """monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun"""
DAYS: Final = frozenset(_DAYS.split())
QUARTERS: Final = frozenset(["q1", "q2", "q3", "q4"])
CLASSES: Final = (COLOURS, MONTHS, DAYS, QUARTERS)
"""Words of one kind: where a table's labels are of a kind, another word of that kind is no label of this table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartTable:
    values: tuple[float, ...]
    """In reading order."""
    under: Mapping[str, tuple[float, ...]]
    """The values under each label, in lower case; numerals are labels only where they are years."""
    axis: Mapping[str, int]
    """0 for the label of a row, 1 for that of a column."""
    lines: tuple[tuple[float, ...], ...]
    """The rows and columns of two values or more: what a total, a mean or an extreme can be taken of."""
    numerals: frozenset[float]
    """Values, and numbers that occur in labels."""
    words: frozenset[str]
    """Every word of every label and header, and initials of labels of several words."""
    kinds: tuple[frozenset[str], ...]
    """The classes of words that the labels belong to."""
    counts: frozenset[int]
    """How many rows, columns and values there are."""
    years: bool
    """Whether labels are years."""


def find_table(meta: Mapping[str, Any], key: str | None = None) -> ChartTable | None:
    """The table a sample's meta holds under `key`, or under the first of TABLE_KEYS that holds one."""
    for name in TABLE_KEYS if key is None else (key,):
        if (raw := meta.get(name)) is not None and (table := read_table(raw)) is not None:
            return table
    return None


def read_table(raw: Any) -> ChartTable | None:
    """The table in any of the known forms; None when it holds no numbers or is something else."""
    if isinstance(raw, str):
        raw = _parse_text(raw)
    grid = _read_grid(raw)
    if grid is None:
        return None
    header, rows = grid
    if not rows or sum(len(row) for _, row in rows) > _MAX_CELLS:
        return None
    return _build_table(header, rows)


_Grid = tuple[list[str], list[tuple[str, list[float | None]]]]
"""Labels of the columns, then (label of the row, its values); an empty label where there is none."""


def _parse_text(text: str) -> Any:
    if (stripped := text.strip())[:1] in ("{", "["):
        try:
            read = orjson.loads(stripped)
        except orjson.JSONDecodeError:
            return None
        # Of a column that is named twice, JSON readers keep one value in silence.
        return None if repeated_key(text.encode(), read) is not None else read
    lines = [line.strip(" ") for line in _LINE_END.split(text)]
    lines = [line for line in lines if line.strip() and not (_RULE.fullmatch(line) and "-" in line)]
    for mark in ("|", "\t", ";", ",") if len(lines) > 1 else ():
        framed = mark in "|\t" and all(line.startswith(mark) for line in lines[1:])
        # Where some lines only begin with the mark, the cell before it is empty.
        unframed = [line.removeprefix(mark) for line in lines] if framed else lines
        if not all(mark in line for line in unframed[1:]):
            continue
        if mark == "|":
            unframed = [line.rstrip("|") for line in unframed]
        try:
            rows = [
                [cell.strip() for cell in row] for row in csv.reader(unframed, delimiter=mark, skipinitialspace=True)
            ]
        except csv.Error:  # a quotation mark without its end, before a long text
            return None
        width = max(len(row) for row in rows)
        # A first line of another width is a title: "TITLE | Sales by year".
        return [row for position, row in enumerate(rows) if position or len(row) == width]
    return None


def _read_grid(raw: Any) -> _Grid | None:
    if isinstance(raw, Mapping):
        return _grid_of_mapping(raw)
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes) or not raw:
        return None
    if all(isinstance(item, Mapping) for item in raw):
        names = list(dict.fromkeys(str(name) for record in raw for name in record))
        return _grid_of_rows([names, *([_cell(record, name) for name in names] for record in raw)], header=True)
    if all(isinstance(item, Sequence) and not isinstance(item, str | bytes) for item in raw):
        return _grid_of_rows([list(row) for row in raw])
    numbers = _column(raw)
    if numbers is None:
        return None
    return [""], [("", [number]) for number in numbers]


def _cell(record: Mapping[Any, Any], name: str) -> Any:
    return record[name] if name in record else next((record[key] for key in record if str(key) == name), None)


def _grid_of_mapping(raw: Mapping[Any, Any]) -> _Grid | None:
    header = next((raw[name] for name in _HEADERS if isinstance(raw.get(name), list | tuple)), None)
    body = next((raw[name] for name in _BODIES if isinstance(raw.get(name), list | tuple)), None)
    if header is not None and body is not None:
        rows = [list(row) for row in body if isinstance(row, list | tuple)]
        return _grid_of_rows([list(header), *rows], header=True)
    entries = list(raw.items())
    if not entries:
        return None
    if all(isinstance(value, Mapping) for _, value in entries):
        names = list(dict.fromkeys(str(name) for _, row in entries for name in row))
        return names, [(str(label), [cell_value(_cell(row, name)) for name in names]) for label, row in entries]
    if all(isinstance(value, list | tuple) for _, value in entries):
        columns = [list(value) for _, value in entries]
        if len({len(column) for column in columns}) != 1:
            return None
        return _grid_of_rows(
            [[str(name) for name, _ in entries], *map(list, zip(*columns, strict=True))], header=True
        )
    values = _column(raw.values())
    if values is None:
        return None
    return [""], [(str(label), [value]) for (label, _), value in zip(entries, values, strict=True)]


def _column(cells: Iterable[Any]) -> list[float | None] | None:
    """The numbers of a column, None for one that is missing; None where a cell is something else."""
    cells = list(cells)
    numbers = [cell_value(cell) for cell in cells]
    known = (number is not None or _is_missing(cell) for cell, number in zip(cells, numbers, strict=True))
    return numbers if all(known) else None


def _is_missing(cell: Any) -> bool:
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _MISSING)


def _grid_of_rows(rows: list[list[Any]], header: bool | None = None) -> _Grid | None:
    rows = [row for row in rows if row]
    if not rows:
        return None
    width = max(len(row) for row in rows)
    rows = [row + [None] * (width - len(row)) for row in rows]
    if header is None:
        header = len(rows) > 1 and _is_header(rows)
    head = [_label(cell) for cell in rows[0]] if header else [""] * width
    body = rows[1:] if header else rows
    # The column of labels: the first that holds anything but numbers, or simply the first.
    label_column = next(
        (column for column in range(width) if any(cell_value(row[column]) is None and row[column] for row in body)), 0
    )
    if width == 1:
        return head, [("", [cell_value(row[0])]) for row in body]
    value_columns = [column for column in range(width) if column != label_column]
    return (
        [head[column] for column in value_columns],
        [(_label(row[label_column]), [cell_value(row[column]) for column in value_columns]) for row in body],
    )


def _is_header(rows: list[list[Any]]) -> bool:
    """Whether the first row names the columns: it holds no numbers, or years over values that are not years."""
    headings = [cell for cell in rows[0][1:] if cell not in (None, "")] or rows[0][:1]
    if all(cell_value(cell) is None for cell in headings):
        return True
    below = [cell for row in rows[1:] for cell in row[1:] if cell not in (None, "")]
    return all(_YEAR.fullmatch(_label(cell)) for cell in headings) and not all(
        _YEAR.fullmatch(_label(cell)) for cell in below
    )


def _label(cell: Any) -> str:
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return "" if cell is None else str(cell).strip()


def cell_value(cell: Any) -> float | None:
    """The number in a cell: a number, or a text that is one quantity and nothing else."""
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return float(cell) if math.isfinite(cell) else None
    return _cell_number(cell) if isinstance(cell, str) and cell[:24].strip() else None


@lru_cache(maxsize=1 << 14)
def _cell_number(cell: str) -> float | None:
    quantity = read_single_quantity(normalise(cell)) if len(cell) <= 40 and any(map(str.isdigit, cell)) else None
    return float(quantity.value) if quantity is not None else None


def _build_table(header: list[str], rows: list[tuple[str, list[float | None]]]) -> ChartTable | None:
    values = tuple(value for _, row in rows for value in row if value is not None)
    if not values:
        return None
    under: dict[str, tuple[float, ...]] = {}
    axis: dict[str, int] = {}
    numerals = set(values)
    words: set[str] = set()
    lines = []
    value_columns = [[row[column] for _, row in rows] for column in range(len(header))]
    lines_of_cells: Iterable[tuple[int, str, list[float | None]]] = [
        *((0, label, row) for label, row in rows),
        *((1, label, cells) for label, cells in zip(header, value_columns, strict=True)),
    ]
    single_column = len(header) == 1
    for line_axis, name, line in lines_of_cells:
        line_values = tuple(value for value in line if value is not None)
        if len(line_values) > 1:
            lines.append(line_values)
        label = " ".join(name.lower().split())
        if not label:
            continue
        words.update(_label_words(label))
        if label.isascii() and label.replace(".", "", 1).isdigit():
            numerals.add(float(label))
            if not _YEAR.fullmatch(label):
                continue
        elif not label.isalpha():
            numerals.update(float(digits) for digits in re.findall(r"\d+(?:\.\d+)?", label))
        # The header of the only column of values says nothing: every value is under it.
        if line_values and len(label) <= 80 and not (line_axis and single_column):
            without_remark = _PARENTHESES.sub("", label).strip() if "(" in label or "[" in label else label
            for spelling in {label, without_remark} - {""}:
                under[spelling] = under.get(spelling, ()) + line_values
                axis[spelling] = line_axis
    years = sum(1 for label in under if _YEAR.fullmatch(label)) > 1
    kinds = tuple(
        kind
        for kind in CLASSES
        if len(kind & words) > 1 and sum(not kind.isdisjoint(_label_words(label)) for label in under) > 1
    )
    return ChartTable(
        values=values,
        under=under,
        axis=axis,
        lines=tuple(lines) or ((values,) if len(values) > 1 else ()),
        numerals=frozenset(numerals),
        words=frozenset(words),
        kinds=kinds,
        counts=frozenset((len(rows), len(values if single_column else header), len(values))),
        years=years,
    )


_WORD = re.compile(r"[^\W_]+")


@lru_cache(maxsize=1 << 14)
def _label_words(label: str) -> frozenset[str]:
    """The words of a label, and its initials where it has several ("united states" is also "us")."""
    words = _WORD.findall(label)
    return frozenset([*words, "".join(word[0] for word in words)] if len(words) > 1 else words)
