"""Writes Parquet files whose rows hold their images, so that they need no other file."""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path
from distill.data.images import image_files
from distill.types import ImageRef

IMAGE_CELLS = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
"""The type of a column of images."""
_ROW_GROUP = 256


def cells_of_images(refs: Iterable[ImageRef]) -> list[dict[str, Any]]:
    """A cell of such a column. The bytes are as they are: ids of questions come from them. Raises ImageError."""
    return [{"bytes": image_files.read_bytes(ref), "path": ref.sha256[:16]} for ref in refs]


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to a file that appears only when complete."""
    remaining = iter(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        while group := list(islice(remaining, _ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
