"""The rows of one file, for each kind of file, as mappings; a row that cannot be read is a text with the reason.

Rows of Parquet and Arrow files come with their number, because images in them are referred to by it.
"""

import codecs
import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.data.images.image_cells import open_arrow
from distill.data.tables.exact_json import (
    RepeatedKeyError,
    RepeatedKeys,
    find_repeated,
    parse_json,
    parse_rows,
    repeated_text,
)
from distill.data.tables.table_kinds import PACKED_LINES, open_lines
from distill.errors import DataError

_COCOQA_FILES = {"question": "questions.txt", "answer": "answers.txt", "image_id": "img_ids.txt", "type": "types.txt"}
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?\s*', re.IGNORECASE)
_ANKI = re.compile(r"#(?:separator|html|tags|columns|notetype|deck|guid|if matches)\b[\w ]*:", re.IGNORECASE)
_MARKUP = re.compile(r"\s*<(?:!--|!doctype\b|\?xml\b|(?:html|head|body|meta|table|quiz)\b)", re.IGNORECASE)
_USUAL_NAMES = {"image", "question", "answer"}
_CONVERT = "convert the file, such as by `iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW` if it is of Windows"
_BATCH_ROWS = 32
"""Rows of a columnar file in memory at once: rows may carry whole images."""


def jsonl(file: Path, begin: int = 0) -> Iterator[Mapping[str, Any] | str]:
    """The rows of a file of JSON lines from byte `begin` on; a text where a line is no row."""
    with open_lines(file) as lines:
        if begin:
            lines.seek(begin)
        for number, line in enumerate(lines):
            text = line.removeprefix(b"\xef\xbb\xbf").strip() if number == begin == 0 else line.strip()
            if text:
                yield _parsed(text)


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines. Raises TypeError for bytes."""
    with file.open("wb") as lines:
        for row in rows:
            lines.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def _parsed(text: bytes) -> Mapping[str, Any] | str:
    try:
        value = parse_json(text)
    except RepeatedKeyError as error:
        return str(error)
    except orjson.JSONDecodeError as error:
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            fault = f"not valid UTF-8 ({wrong.reason} at byte {wrong.start} of the line)"
            return f"{fault}; convert the file with iconv, or unpack it"
        return f"not valid JSON: {error}"
    return value if isinstance(value, dict) else f"a JSON object is needed, not {type(value).__name__}"


def _json(file: Path) -> Iterator[Mapping[str, Any] | str]:
    """A JSON array of objects, or an object holding one; many tools also write JSON lines under this suffix."""
    data = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        value = parse_rows(data)
    except orjson.JSONDecodeError as error:
        if isinstance(_parsed(data.strip().split(b"\n", 1)[0]), str):
            raise DataError(f"{file}: not valid JSON: {error}") from None
        yield from jsonl(file)
        return
    if isinstance(value, RepeatedKeys):
        raise DataError(f"{file}: {repeated_text(value.key)}")
    if isinstance(value, dict):
        lists = [key for key, item in value.items() if isinstance(item, list)]
        lists = [key for key in lists if any(isinstance(item, dict) for item in value[key])] or lists
        if len(lists) > 1:
            raise DataError(f"{file}: holds several lists ({', '.join(lists)}); write the rows as JSON lines")
        value = value[lists[0]] if lists else _keyed_rows(value)
    if not isinstance(value, list):
        raise DataError(f"{file}: a JSON array of objects is needed, not {type(value).__name__}")
    for item in value:
        if (key := find_repeated(item)) is not None:
            yield repeated_text(key)
        else:
            yield item if isinstance(item, dict) else f"a JSON object is needed, not {type(item).__name__}"


def _keyed_rows(value: Mapping[str, Any]) -> list[Any]:
    """The rows of an object that has each under its key; any other object is one row."""
    if len(value) < 2 or not all(isinstance(row, dict) for row in value.values()):
        return [value]
    return [{"key" if "id" in row else "id": key, **row} for key, row in value.items()]


def _csv(file: Path) -> Iterator[Mapping[str, Any] | str]:
    csv.field_size_limit(sys.maxsize)
    with file.open("rb") as opened:
        begins_utf16 = opened.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text"
    encoding, errors = ("utf-16", "surrogatepass") if begins_utf16 else ("utf-8-sig", "surrogateescape")
    with file.open(encoding=encoding, errors=errors, newline="") as lines:
        header_line, delimiter = _seek_header(lines)
        if file.suffix.lower() == ".tsv":
            delimiter = "\t"
        table = csv.DictReader(lines, delimiter=delimiter, restkey="\0", restval="\0", strict=True)
        names = table.fieldnames or ()
        _refuse_odd_header(file, header_line, names)
        _refuse_equal_names(file, names)
        if not all(map(_is_text, names)):
            raise DataError(f"{file}: the names of the columns are not valid UTF-8; {_CONVERT}")
        first = True
        while True:
            begin = header_line + table.reader.line_num
            try:
                item = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                # Lenient reading would put all lines up to the next quotation mark into one cell.
                yield f"lines {begin} to {header_line - 1 + table.reader.line_num} are no CSV row: {error}"
                continue
            if first and _names_columns(item.values()) and not _names_columns(names):
                line = header_line - 1 + table.reader.line_num
                raise DataError(f"{file}: line {line} has the names of the columns; remove what stands above it")
            first = False
            if "\0" in item or "\0" in item.values():
                header = len(names)
                cells = header - list(item.values()).count("\0") + len(item.get("\0", ()))
                hint = f"; a cell that holds {delimiter!r} needs quotation marks" if cells > header else ""
                if header == 1:
                    hint = "; a line above the names of the columns, such as a title, has to be removed"
                yield f"the row has {cells:,} cells, the header has {header:,}{hint}"
            elif any(isinstance(cell, str) and not _is_text(cell) for cell in item.values()):
                yield f"not valid {'UTF-16' if begins_utf16 else 'UTF-8'}; {_CONVERT}"
            else:
                yield item


def _seek_header(lines: TextIO) -> tuple[int, str]:
    """Put a table at its header, the first line that is not blank; its line number, from 1, and the delimiter.

    The line `sep=;`, which Excel reads and writes before the header, names the delimiter and holds no columns.
    """
    number, stated = 1, ""
    while True:
        begin = lines.tell()
        line = lines.readline()
        named = _SEPARATOR_LINE.fullmatch(line)
        if (line.strip() and not named) or not line:
            lines.seek(begin)
            return number, stated or _delimiter(line)
        stated = named[1] if named else stated
        number += 1


def _names_columns(cells: Iterable[Any]) -> bool:
    """Whether a line of a table has at least two of the names that nearly every table of questions has."""
    return len(_USUAL_NAMES & {cell.strip().casefold() for cell in cells if isinstance(cell, str)}) > 1


def _refuse_odd_header(file: Path, line: int, names: Sequence[str]) -> None:
    """Raise DataError where the first line of a table is of another kind of file."""
    first = names[0] if names else ""
    if _ANKI.match(first):
        raise DataError(
            f"{file}: an export of Anki, which names no columns; remove the lines that begin with #, and write one "
            "such as image,question,answer above the notes; the column of images holds names of files"
        )
    if _MARKUP.match(first):
        raise DataError(
            f"{file}: holds HTML or XML ({first:.40}), no cells; open it in a spreadsheet program and save it as CSV"
        )
    if list(names).count("") > 1:
        raise DataError(
            f"{file}: line {line} leaves several columns without a name; remove what stands above the names of the "
            "columns, such as a title, and name each column"
        )


def _refuse_equal_names(file: Path, names: Iterable[str]) -> None:
    """Raise DataError for a table in which one column would hide another of its name."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{file}: more than one column has the name {twice[0]!r}; rename them")


def _refuse_equal_fields(file: Path, fields: Iterable[Any]) -> None:
    """As `_refuse_equal_names`, for typed columns and the objects in them."""
    fields = list(fields)
    _refuse_equal_names(file, (field.name for field in fields))
    for kind in (field.type for field in fields):
        if pa.types.is_nested(kind):
            _refuse_equal_fields(file, (kind.field(index) for index in range(kind.num_fields)))


def _delimiter(header: str) -> str:
    """The separator of cells: a comma; a semicolon, which programs write beside decimal commas; or a tab."""
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(",;\t", key=unquoted.count)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet(file: Path) -> Iterator[tuple[Mapping[str, Any], int] | str]:
    with pq.ParquetFile(file) as table:
        _refuse_equal_fields(file, table.schema_arrow)
        yield from _numbered(table.iter_batches(batch_size=_BATCH_ROWS), _class_names(table.schema_arrow))


def _arrow(file: Path) -> Iterator[tuple[Mapping[str, Any], int] | str]:
    table = open_arrow(str(file))
    _refuse_equal_fields(file, table.schema)
    yield from _numbered(table.to_batches(max_chunksize=_BATCH_ROWS), _class_names(table.schema))


def _numbered(batches: Iterable[Any], names: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int] | str]:
    row = 0
    for batch in batches:
        for values in _batch_rows(_as_written(batch), names):
            yield values if isinstance(values, str) else (values, row)
            row += 1


def _as_written(batch: Any) -> Any:
    """The rows with the numbers and times that a table of text would hold: 0.1, where a column of half the precision
    has 0.10000000149011612, and microseconds, because Python has nothing shorter."""
    for position, column in enumerate(batch.columns):
        numbers = _retyped(column.type, pa.float64())
        if numbers != column.type:
            texts = _retyped(column.type, pa.string())
            batch = batch.set_column(
                position, batch.schema.names[position], column.cast(texts, safe=False).cast(numbers)
            )
    return batch


def _retyped(kind: Any, single: Any) -> Any:
    """A type in which `single` takes the place of floats of 32 bits."""
    if pa.types.is_float32(kind):
        return single
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_retyped(kind.value_type, single)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_retyped(field.type, single)) for field in kind])
    return kind


def _batch_rows(batch: Any, names: Mapping[str, Any]) -> Iterator[Mapping[str, Any] | str]:
    try:
        batch_rows: list[Any] = batch.to_pylist()
    except (ValueError, OverflowError):
        batch_rows = [_row_or_reason(batch.slice(row, 1)) for row in range(batch.num_rows)]
    for values in batch_rows:
        yield _with_names(values, names) if names and not isinstance(values, str) else values


def _row_or_reason(batch: Any) -> Mapping[str, Any] | str:
    try:
        values: Mapping[str, Any] = batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return f"not valid UTF-8: {error}"
    except (ValueError, OverflowError) as error:  # a date after the year 9999, a time in parts of a microsecond
        wrong = [name for name in batch.schema.names if not _is_readable(batch.column(name))]
        return f"column {', '.join(map(repr, wrong))}: a value that cannot be read: {error}"
    return values


def _is_readable(column: Any) -> bool:
    try:
        column.to_pylist()
    except (ValueError, OverflowError):
        return False
    return True


def _class_names(schema: Any) -> Mapping[str, Any]:
    """Label names of the columns of whole numbers that the datasets library declared as class labels.

    A column of objects has a mapping of its fields; lists of labels have the names of one label.
    """
    try:
        features = orjson.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    names = _label_names(features) if isinstance(features, dict) else None
    return names if isinstance(names, dict) else {}


def _label_names(feature: Any) -> Any:
    """The names of a feature's labels, by field in an object; None for a feature without labels."""
    if isinstance(feature, list) and len(feature) == 1:  # a list, as older versions declare it
        return _label_names(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names")
        return names if isinstance(names, list) else None
    if "_type" in feature and "feature" in feature:
        return _label_names(feature["feature"])
    return {name: names for name, item in feature.items() if (names := _label_names(item))} or None


def _with_names(value: Any, names: Any) -> Any:
    """A value with names in the place of label numbers; -1 is no label."""
    if isinstance(value, list):
        return [_with_names(item, names) for item in value]
    if isinstance(names, dict):
        if isinstance(value, dict):
            value |= {name: _with_names(value[name], names[name]) for name in names.keys() & value.keys()}
    elif isinstance(value, int) and -1 <= value < len(names):
        return names[value] if value >= 0 else None
    return value


def _cocoqa(folder: Path) -> Iterator[Mapping[str, Any] | str]:
    """COCO-QA as published: parallel text files, one line a question."""
    names = {name: folder / file for name, file in _COCOQA_FILES.items() if (folder / file).is_file()}
    columns = {name: file.read_text(encoding="utf-8", errors="replace").splitlines() for name, file in names.items()}
    if len({len(lines) for lines in columns.values()}) > 1:
        sizes = ", ".join(f"{names[name].name} {len(lines)}" for name, lines in columns.items())
        raise DataError(f"{folder}: the COCO-QA files have different numbers of lines: {sizes}")
    for cells in zip(*columns.values(), strict=True):
        yield dict(zip(columns, cells, strict=True))


READERS: Mapping[str, Any] = {
    "jsonl": jsonl,
    PACKED_LINES: jsonl,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "cocoqa": _cocoqa,
}
