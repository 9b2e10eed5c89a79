"""Questions and their images in two tables of Parquet files, as in GQA: the questions have ids of images."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.data import guessed_columns, sources
from distill.data.sources import SourceRow, SourceTable
from distill.data.tables.table_rows import write_rows

_IMAGE_ID = re.compile(r"(im(a)?ge?|picture|photo)", re.IGNORECASE)
"""In the name of a column of questions: a plain `id` may be that of the question."""
_Places = dict[Any, list[dict[str, Any]]]


def write_joined(table: SourceTable, folder: Path, out: Path) -> str | None:
    """Write the rows of a table of questions with their images from another table below a folder; how, in words.

    None unless one column leads each row to one image.
    """
    if not table.files[0].is_relative_to(folder):
        return None
    items = list(sources.rows(table))
    rows = [item.values for item in items if isinstance(item, SourceRow)]
    split = sources.split_of(table.files[0], folder)
    files = [file for file in guessed_columns.files_below(folder, {".parquet"}) if file not in table.files]
    files = [file for file in files if sources.split_of(file, folder) == split]
    names = [name for name in (rows[0] if rows else ()) if _IMAGE_ID.search(name)]
    found = {
        (name, key, column): [places[row[name]][0] for row in rows]
        for key, column, places in _images(files, folder)
        for name in names
        if all(isinstance(row.get(name), str | int) and len(places.get(row[name], ())) == 1 for row in rows)
    }
    if len(found) != 1 or len(items) != len(rows):
        return None
    ((name, _, column), cells) = found.popitem()
    try:
        write_rows(out, ({**row, "image": cell} for row, cell in zip(rows, cells, strict=True)))
    except TypeError:  # bytes
        return None
    return f"images: of the column {column!r} in {Path(cells[0]['path']).parent}, by the column {name!r}"


def _images(files: Sequence[Path], folder: Path) -> Iterator[tuple[str, str, _Places]]:
    """Columns of ids and of images in these files, and the image cells of each id."""
    found: dict[tuple[str, str], _Places] = defaultdict(lambda: defaultdict(list))
    for file in files:
        schema = pq.read_schema(file)
        ids = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_integer(field.type)]
        for column in [field.name for field in schema if _holds_images(field.type)]:
            for key, values in pq.read_table(file, columns=ids).to_pydict().items():
                for row, value in enumerate(values):
                    cell = {"path": str(file.relative_to(folder)), "column": column, "row": row}
                    found[key, column][value].append(cell)
    yield from ((key, column, places) for (key, column), places in found.items())


def _holds_images(kind: Any) -> bool:
    return bool(pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0)
