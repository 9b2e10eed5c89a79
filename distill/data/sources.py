"""Where the rows of a data source are, and reading them one by one.

A source is a file, a directory or a hub name; each becomes a `SourceTable`: files of one kind, read
in order. Rows come out as plain mappings; what their columns mean is `distill.data.formats`' business. A row that
cannot be read is a BadRow; a source that cannot be read is a DataError.
"""

import codecs
import csv
import difflib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.data.exact_json import parse_json
from distill.data.hub_datasets import dataset_files, is_hub_name
from distill.data.images.image_files import open_arrow
from distill.data.images.lfs_pointers import explain_pointers
from distill.data.table_kinds import KINDS, PACKED_LINES, open_lines, stem_of, suffix_of
from distill.errors import DataError
from distill.local_paths import real_path
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import DataSource
from distill.types import BadRow

_COCOQA_FILES = {"question": "questions.txt", "answer": "answers.txt", "image_id": "img_ids.txt", "type": "types.txt"}
_BATCH_ROWS = 32
"""Rows of a columnar file in memory at once: rows may carry whole pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """The files of one source. `root` is the folder image paths are relative to, symbolic links resolved."""

    label: str
    kind: str
    files: tuple[Path, ...]
    root: Path
    hub: str = ""
    """Hub name when the files are a cache of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One row. `number` counts from 1 over the source; `table` and `table_row` (from 0) are set when image bytes lie
    in the file itself and can be referred to."""

    number: int
    values: Mapping[str, Any]
    table: str = ""
    table_row: int = 0


def settings(recipe: Recipe, name: str) -> DataSource:
    """The source named `name` in the recipe. Raises DataError naming the nearest one."""
    if name in recipe.data:
        return recipe.data[name]
    names = ", ".join(recipe.data) or "none"
    raise DataError(f"{recipe.path}: no data source [data.{name}]{nearest(name, recipe.data)} (known: {names})")


def nearest(name: str, candidates: Iterable[str]) -> str:
    """A hint at the most similar of the known names, or nothing."""
    matches = difflib.get_close_matches(name, [str(item) for item in candidates], n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def locate(recipe: Recipe, name: str) -> SourceTable:
    """The files a source consists of. Raises DataError with the next step when there are none."""
    source = settings(recipe, name)
    path = recipe.local(source.source)
    where = f"[data.{name}] source = {source.source!r}"
    if path.is_file():
        table = SourceTable(label=str(path), kind=_kind(path, where), files=(path,), root=path.parent)
    elif path.is_dir():
        table = _directory(path, source, where)
    elif is_hub_name(source):
        files = tuple(dataset_files(source, path, where, _nearest_path(path)))
        table = SourceTable(label=source.source, kind="arrow", files=files, root=files[0].parent, hub=source.source)
    else:
        raise DataError(f"{where}: {path} does not exist{_nearest_path(path)}; paths are relative to the recipe")
    return _with_root(table, recipe, source, name)


def _with_root(table: SourceTable, recipe: Recipe, source: DataSource, name: str) -> SourceTable:
    root = table.root if source.images_root is None else recipe.local(source.images_root)
    if not root.is_dir():
        raise DataError(
            f"[data.{name}] images_root = {source.images_root!r}: {root} is not a directory{_nearest_path(root)}; "
            "paths are relative to the recipe"
        )
    return SourceTable(label=table.label, kind=table.kind, files=table.files, root=real_path(root), hub=table.hub)


def _nearest_path(path: Path) -> str:
    try:
        return nearest(path.name, [item.name for item in path.parent.iterdir()])
    except OSError:
        return f" (nor does its folder {path.parent})"


def _kind(path: Path, where: str) -> str:
    kind = KINDS.get(suffix_of(path))
    if kind is None:
        raise DataError(f"{where}: cannot read a {suffix_of(path) or 'suffixless'} file; known: {', '.join(KINDS)}")
    return kind


def _directory(path: Path, source: DataSource, where: str) -> SourceTable:
    """The table inside a directory: a saved datasets directory, Parquet files, or an image folder's table."""
    base = path / source.subset if source.subset and (path / source.subset).is_dir() else path
    if (base / "dataset_dict.json").is_file():
        splits = orjson.loads((base / "dataset_dict.json").read_bytes()).get("splits", [])
        if source.split not in splits:
            raise DataError(f"{where}: {base} has no split {source.split!r} (splits: {', '.join(splits)})")
        base = base / source.split
    if (base / "state.json").is_file():
        files = [base / item["filename"] for item in orjson.loads((base / "state.json").read_bytes())["_data_files"]]
        return SourceTable(label=str(base), kind="arrow", files=tuple(files), root=base)
    folders = [folder for folder in (base / source.split, base) if folder.is_dir()]
    if source.format == "cocoqa":
        for folder in folders:
            if all((folder / file).is_file() for file in ("questions.txt", "answers.txt", "img_ids.txt")):
                return SourceTable(label=str(folder), kind="cocoqa", files=(folder,), root=folder)
    for suffix in ("jsonl", "jsonl.gz", "jsonl.zst", "csv", "parquet"):
        for folder in folders:
            file = folder / f"metadata.{suffix}"
            if file.is_file():
                return SourceTable(label=str(file), kind=KINDS[suffix_of(file)], files=(file,), root=folder)
    shards = _of_split([file for file in sorted(base.rglob("*.parquet")) if _is_visible(file, base)], source, where)
    if shards:
        return SourceTable(label=str(base), kind="parquet", files=tuple(shards), root=base)
    tables = [file for folder in folders[-1:] for file in sorted(folder.iterdir()) if suffix_of(file) in KINDS]
    split_tables = [file for file in tables if stem_of(file) == source.split] or tables
    if len(split_tables) == 1:
        return SourceTable(
            label=str(split_tables[0]), kind=_kind(split_tables[0], where), files=(split_tables[0],), root=base
        )
    problem = f"several tables ({', '.join(file.name for file in split_tables)})" if split_tables else "no table"
    raise DataError(
        f"{where}: {base} holds {problem}; name one file as source, or add metadata.jsonl with one row an image"
    )


def _is_visible(file: Path, base: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(base).parts)


def _of_split(files: list[Path], source: DataSource, where: str) -> list[Path]:
    """The files of the wanted split, by hub conventions: `train-00000-of-00001.parquet` or a folder `train`."""
    splits = {file: _split_of(file) for file in files}
    split_names = sorted({split for split in splits.values() if split})
    if not split_names:
        return files
    chosen = [file for file in files if splits[file] == source.split]
    if not chosen:
        raise DataError(f"{where}: no files of split {source.split!r}; found: {', '.join(split_names)}")
    return chosen


def _split_of(file: Path) -> str | None:
    for name in (file.stem, file.parent.name):
        match = re.match(r"(train|training|validation|valid|val|dev|test|testmini)(?=$|[-_.\d])", name)
        if match:
            return match[1]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStart:
    """The rows at the start of a table that are not read: whole files, and bytes of the one after them."""

    rows: int = 0
    files: int = 0
    bytes: int = 0


def rows(table: SourceTable, start: SourceStart = SourceStart()) -> Iterator[SourceRow | BadRow]:
    """The rows of a table in order, from `start` on. Raises DataError when a file cannot be read at all."""
    number = start.rows
    for position, file in enumerate(table.files[start.files :]):
        if pointer := explain_pointers(file):
            raise DataError(f"{file}: {pointer}")
        try:
            grown = start.bytes and not position
            items: Iterator[Any] = _jsonl(file, start.bytes) if grown else _READERS[table.kind](file)
            for item in items:
                number += 1
                if isinstance(item, str):
                    yield BadRow(source=str(file), row=number, reason="malformed_row", detail=item)
                elif table.kind in ("parquet", "arrow"):
                    values, table_row = item
                    yield SourceRow(number=number, values=values, table=str(file), table_row=table_row)
                else:
                    yield SourceRow(number=number, values=item)
        except (OSError, pa.ArrowException, csv.Error) as error:
            raise DataError(f"{file}: cannot be read after row {number}: {error}") from None


def _jsonl(file: Path, begin: int = 0) -> Iterator[Mapping[str, Any] | str]:
    with open_lines(file) as lines:
        if begin:
            lines.seek(begin)
        for number, line in enumerate(lines):
            text = line.removeprefix(b"\xef\xbb\xbf").strip() if number == begin == 0 else line.strip()
            if text:
                yield _parsed(text)


def _parsed(text: bytes) -> Mapping[str, Any] | str:
    try:
        value = parse_json(text)
    except orjson.JSONDecodeError as error:
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            return f"not valid UTF-8 ({wrong.reason} at byte {wrong.start} of the line); convert the file with iconv"
        return f"not valid JSON: {error}"
    return value if isinstance(value, dict) else f"a JSON object is needed, not {type(value).__name__}"


def _json(file: Path) -> Iterator[Mapping[str, Any] | str]:
    """A JSON array of objects, or an object holding one; many tools also write JSON lines under this suffix."""
    data = file.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        value = parse_json(data)
    except orjson.JSONDecodeError as error:
        if isinstance(_parsed(data.strip().split(b"\n", 1)[0]), str):
            raise DataError(f"{file}: not valid JSON: {error}") from None
        yield from _jsonl(file)
        return
    if isinstance(value, dict):
        lists = [key for key, item in value.items() if isinstance(item, list)]
        if len(lists) > 1:
            raise DataError(f"{file}: holds several lists ({', '.join(lists)}); write the rows as JSON lines")
        value = value[lists[0]] if lists else [value]
    if not isinstance(value, list):
        raise DataError(f"{file}: a JSON array of objects is needed, not {type(value).__name__}")
    for item in value:
        yield item if isinstance(item, dict) else f"a JSON object is needed, not {type(item).__name__}"


def _csv(file: Path) -> Iterator[Mapping[str, Any] | str]:
    csv.field_size_limit(sys.maxsize)
    with file.open("rb") as opened:
        begins_utf16 = opened.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # Excel's "Unicode text"
    encoding = "utf-16" if begins_utf16 else "utf-8-sig"
    with file.open(encoding=encoding, errors="surrogateescape", newline="") as lines:
        delimiter = "\t" if file.suffix.lower() == ".tsv" else _delimiter(lines.readline())
        lines.seek(0)
        table = csv.DictReader(lines, delimiter=delimiter, restkey="\0", restval="\0", strict=True)
        twice = [name for name, count in Counter(table.fieldnames or ()).items() if count > 1]
        if twice:
            yield f"the header has more than one column {twice[0]!r}; rename them"
            return
        while True:
            begin = table.reader.line_num + 1
            try:
                item = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                # Lenient reading would put all lines up to the next quotation mark into one cell.
                yield f"lines {begin} to {table.reader.line_num} are no CSV row: {error}"
                continue
            if "\0" in item or "\0" in item.values():
                yield "the row has not as many cells as the header"
            elif any(isinstance(cell, str) and not _is_text(cell) for cell in item.values()):
                yield "not valid UTF-8; convert the file with iconv"
            else:
                yield item


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
        names = _class_names(table.schema_arrow)
        row = 0
        for batch in table.iter_batches(batch_size=_BATCH_ROWS):
            for values in _batch_rows(batch, names):
                yield values if isinstance(values, str) else (values, row)
                row += 1


def _arrow(file: Path) -> Iterator[tuple[Mapping[str, Any], int] | str]:
    table = open_arrow(str(file))
    names = _class_names(table.schema)
    row = 0
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        for values in _batch_rows(batch, names):
            yield values if isinstance(values, str) else (values, row)
            row += 1


def _batch_rows(batch: Any, names: Mapping[str, list[str]]) -> Iterator[Mapping[str, Any] | str]:
    try:
        batch_rows: list[Any] = batch.to_pylist()
    except UnicodeDecodeError:
        batch_rows = [_row_or_reason(batch.slice(row, 1)) for row in range(batch.num_rows)]
    for values in batch_rows:
        if not isinstance(values, str):
            for column, labels in names.items():
                label = values.get(column)
                if isinstance(label, int) and 0 <= label < len(labels):
                    values[column] = labels[label]
        yield values


def _row_or_reason(batch: Any) -> Mapping[str, Any] | str:
    try:
        values: Mapping[str, Any] = batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return f"not valid UTF-8: {error}"
    return values


def _class_names(schema: Any) -> dict[str, list[str]]:
    """Label names of the integer columns that the datasets library declared as class labels."""
    try:
        features = orjson.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    labels = {name: item for name, item in features.items() if isinstance(item, dict)}
    return {
        name: item["names"] for name, item in labels.items() if item.get("_type") == "ClassLabel" and "names" in item
    }


def _cocoqa(folder: Path) -> Iterator[Mapping[str, Any] | str]:
    """COCO-QA as published: parallel text files, one line a question."""
    names = {name: folder / file for name, file in _COCOQA_FILES.items() if (folder / file).is_file()}
    columns = {name: file.read_text(encoding="utf-8", errors="replace").splitlines() for name, file in names.items()}
    if len({len(lines) for lines in columns.values()}) > 1:
        sizes = ", ".join(f"{names[name].name} {len(lines)}" for name, lines in columns.items())
        raise DataError(f"{folder}: the COCO-QA files have different numbers of lines: {sizes}")
    for cells in zip(*columns.values(), strict=True):
        yield dict(zip(columns, cells, strict=True))


_READERS: Mapping[str, Any] = {
    "jsonl": _jsonl,
    PACKED_LINES: _jsonl,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "cocoqa": _cocoqa,
}
