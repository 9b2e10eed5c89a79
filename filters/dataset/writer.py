"""The dataset: selected traces with their pictures, as Parquet.

`datasets.load_dataset` opens the folder and decodes the pictures; TRL reads `images` and `messages` as they are. Rows
are written in the order of the curriculum, then of question and trace, a row group at a time, so memory holds one.
"""

import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import atomic_path, storage_errors
from distill.artifacts.layout import part_path
from distill.data import images
from distill.errors import ImageError
from distill.rationale import Style, join
from distill.types import Sample, Trace
from filters.decisions.rules import faulty_expression
from filters.signals.schema import FACTS
from filters.tables.signal_database import order, text
from filters.tables.trace_index import PlannedTraces

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_TEXTS = ("sample_id", "trace_id", "teacher", "domain", "rationale", "answer")
_STRING = {"dtype": "string", "_type": "Value"}
_FEATURES = {
    "images": {"feature": {"_type": "Image"}, "_type": "List"},
    "messages": {"feature": {"role": _STRING, "content": _STRING}, "_type": "List"},
    **dict.fromkeys(_TEXTS, _STRING),
    "weight": {"dtype": "float64", "_type": "Value"},
    "signals": _STRING,
}
SCHEMA = pa.schema(
    [
        ("images", pa.list_(_IMAGE)),
        ("messages", pa.list_(_MESSAGE)),
        *((name, pa.string()) for name in _TEXTS),
        ("weight", pa.float64()),
        ("signals", pa.string()),
    ],
    metadata={"huggingface": orjson.dumps({"info": {"features": _FEATURES}}).decode()},
)

FILE_BYTES = 500_000_000
_GROUP_BYTES = 8_000_000
_GROUP_ROWS = 1000
SELECTED = "SELECT id FROM decisions WHERE selected"
_WEIGHT = "row_weight"
_SORTED_ROWS = 20_000
"""Traces that are sorted at once, with all their columns: 100,000 of them take 200 MB."""
_BATCH = 4096
"""Selected traces whose texts and questions are read at once."""


@dataclass(slots=True, kw_only=True)
class Written:
    rows: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """Rows of each file, by its path below the dataset's folder."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Questions left out because an image of theirs can no longer be read, with the reason."""


def write(
    database: duckdb.DuckDBPyConnection,
    index: PlannedTraces,
    folder: Path,
    *,
    style: Style,
    max_pixels: int,
    chosen: str = SELECTED,
    curriculum: Sequence[str] = (),
    weight: str = "1.0",
    file_bytes: int = FILE_BYTES,
) -> Written:
    """Write the chosen traces of a database with `signals` below `folder`, which must be new.

    `chosen` is a query of their ids, `curriculum` the signals they are ordered by, `weight` an expression over them.
    """
    written = Written()
    batches = _chosen(database, index, chosen, curriculum, weight)
    rows = _rows(batches, index, written, style=style, max_pixels=max_pixels)
    groups = _groups(rows)
    group = next(groups, None)
    while group is not None:
        name = f"train/{part_path(folder, len(written.files), '.parquet').name}"
        size = count = 0
        with (
            atomic_path(folder / name) as temporary,
            pq.ParquetWriter(temporary, SCHEMA, compression="zstd", store_schema=True) as writer,
        ):
            while group is not None and (not size or size + group[1] <= file_bytes):
                writer.write_table(pa.Table.from_pylist(group[0], schema=SCHEMA), row_group_size=_GROUP_ROWS)
                size, count = size + group[1], count + len(group[0])
                group = next(groups, None)
        written.files[name] = count
        written.rows += count
    return written


def replace(new: Path, folder: Path) -> None:
    """Put a finished folder in the place of another."""
    with storage_errors(folder):
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def row(
    sample: Sample,
    trace: Trace,
    pictures: list[dict[str, Any]],
    signals: dict[str, Any],
    style: Style,
    weight: float = 1.0,
) -> dict[str, Any]:
    """One example: the plain question, and the assistant's turn with its rationale."""
    # A correct answer is taught in the gold's spelling: one way to say it, whatever the teachers' ways are.
    answer = sample.answer if signals.get("answer_verdict") == "correct" and sample.answer else trace.answer.strip()
    rationale = trace.reasoning.strip()
    return {
        "images": pictures,
        "messages": [
            {"role": "user", "content": sample.question},
            {"role": "assistant", "content": join(rationale, answer, style)},
        ],
        "sample_id": sample.id,
        "trace_id": trace.id,
        "teacher": trace.teacher,
        "domain": sample.domain,
        "rationale": rationale,
        "answer": answer,
        "weight": weight,
        "signals": orjson.dumps(signals, option=orjson.OPT_SORT_KEYS).decode(),
    }


def _chosen(
    database: duckdb.DuckDBPyConnection, index: PlannedTraces, chosen: str, curriculum: Sequence[str], weight: str
) -> Iterator[pa.RecordBatch]:
    """The signals of the chosen traces and what each counts, in their order.

    Without a curriculum that is the order of the samples, so that never more than a part of them has to be sorted.
    """
    ordered = order([*curriculum, "sample_id", "id"], table="signals")
    for low, high in index.ranges(index.planned if curriculum else _SORTED_ROWS):
        try:
            yield from database.sql(
                f"""SELECT signals.*, CAST((\n{weight}\n) AS DOUBLE) AS {_WEIGHT}
                FROM signals SEMI JOIN ({chosen}) USING (id)
                WHERE signals.sample_id >= {text(low)} AND signals.sample_id < {text(high)} ORDER BY {ordered}"""
            ).to_arrow_reader(_BATCH)
        except duckdb.Error as error:
            raise faulty_expression(database, [("filter.select.weight", weight)], error) from None


def _rows(
    batches: Iterable[pa.RecordBatch], index: PlannedTraces, written: Written, *, style: Style, max_pixels: int
) -> Iterator[dict[str, Any]]:
    shown: tuple[str, list[dict[str, Any]] | None] = ("", None)
    for batch in batches:
        names, values = _signals_of(batch)
        samples = index.samples_of(batch["sample_id"].to_pylist())
        traces = index.traces(batch["id"].to_pylist())
        for trace, asked, row_values in zip(traces, batch[_WEIGHT].to_pylist(), values, strict=True):
            sample = samples[trace.sample_id]
            if shown[0] != sample.id:
                shown = (sample.id, _pictures(sample, max_pixels, written))
            if shown[1] is not None:
                weight = max(0.0, asked) if asked is not None and math.isfinite(asked) else 1.0
                signals = {name: value for name, value in zip(names, row_values, strict=True) if value is not None}
                yield row(sample, trace, shown[1], signals, style, weight)


def _signals_of(batch: pa.RecordBatch) -> tuple[list[str], Iterable[tuple[Any, ...]]]:
    """The names of the signals that a batch has values of, and the values of each row."""
    # FACTS.names is a new list at each look.
    no_signals = {*FACTS.names, _WEIGHT}
    names = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if name not in no_signals and column.null_count < len(column)
    ]
    columns = [batch[name].to_pylist() for name in names]
    return names, zip(*columns, strict=True) if columns else [()] * len(batch)


def _pictures(sample: Sample, max_pixels: int, written: Written) -> list[dict[str, Any]] | None:
    """The encoded images of a sample in a form that every decoder reads alike; None when one cannot be read."""
    pictures = []
    try:
        for ref in sample.images:
            data, mime = images.portable(images.read_bytes(ref), max_pixels=max_pixels)
            pictures.append({"bytes": data, "path": f"{images.sha256(data)[:16]}.{mime.removeprefix('image/')}"})
    except ImageError as error:
        written.unreadable[sample.id] = error.reason
        return None
    return pictures


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Row groups with their size in bytes."""
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(picture["bytes"]) for picture in row["images"])
        size += 2 * len(row["rationale"]) + len(row["signals"]) + len(row["messages"][0]["content"])
        if len(group) == _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group, size
            group, size = [], 0
    if group:
        yield group, size
