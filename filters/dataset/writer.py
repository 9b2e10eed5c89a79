"""The dataset: selected traces with their images, as Parquet.

`datasets.load_dataset` opens the folder and decodes the images; TRL reads `images` and `messages` as they are. Rows
are written in the order of the curriculum, then of question and trace, a row group at a time, so memory holds one.
"""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill.artifacts.files import Output, atomic_path, describe, storage_errors
from distill.artifacts.layout import dataset_file_rows, part_path
from distill.data.images import image_files
from distill.data.source_answer_types import load_answer_types
from distill.errors import ImageError
from distill.rationale import Style, join
from distill.recipe.recipe import Recipe
from distill.recipe.sections.filter import Select
from distill.types import Sample, Trace
from filters.decisions.rules import faulty_expression
from filters.signals.families.answer import accepted_answer
from filters.signals.schema import FACTS, WEIGHT
from filters.tables.id_columns import tables_of_rows
from filters.tables.signal_database import Tables, order, text
from filters.tables.trace_index import Location, PlannedTraces, read_samples_at, read_traces
from filters.tables.workers import SERIAL, Workers

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

Row = dict[str, Any]
"""An example by the names of SCHEMA."""

_FILE_BYTES = 500_000_000
_GROUP_BYTES = 8_000_000
_GROUP_ROWS = 1000
_PLAIN = Select()
SELECTED = "SELECT id, sample_id FROM decisions WHERE selected"
_SORTED_ROWS = 20_000
"""Traces that are sorted at once, with all their columns: 100,000 of them take 200 MB."""
_BATCH = 4096


@dataclass(slots=True, kw_only=True)
class Written:
    files: dict[str, Output] = field(default_factory=dict)
    """The files by their path below the dataset's folder."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Questions left out because an image of theirs can no longer be read, with the reason."""

    @property
    def rows(self) -> int:
        return sum(file.count or 0 for file in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """Everything that a process needs to make rows."""

    signals: pa.Table
    """Signals of the selected traces, in their order."""
    journals: list[Path]
    traces: list[Location]
    sample_files: list[Path]
    samples: list[Location]
    style: Style
    max_pixels: int
    relative_tolerance: float


class Writing(Protocol):
    """A dataset that is being written."""

    def result(self) -> Written:
        """Wait until it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetTask:
    """The dataset of a filter stage that has decided."""

    open_database: Callable[[], duckdb.DuckDBPyConnection]
    """A new connection to `signals` and `decisions`, for one thread."""
    tables: Tables
    decisions: Path
    index: PlannedTraces
    folder: Path
    """It is new."""
    workers: Workers
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Questions that were dropped because an image of theirs cannot be read, with the reason."""


class DatasetWriter(Protocol):
    """Writes the dataset of a filter stage, while the rest of its result is made."""

    def start(self, task: DatasetTask) -> Writing:
        """Begin to write what the decisions select."""

    def bring_images(self, samples: Sequence[Sample]) -> None:
        """Make the images of some samples readable on this machine."""


@dataclass(frozen=True, slots=True)
class LocalDataset:
    """Processes of this machine write the dataset."""

    recipe: Recipe

    def start(self, task: DatasetTask) -> Writing:
        select, workers = self.recipe.filter.select, task.workers
        # With a separate database, because other threads read the same decisions at the same time.
        return workers.beside(
            lambda: write(task.open_database(), task.index, task.folder, self.recipe, select=select, workers=workers)
        )

    def bring_images(self, samples: Sequence[Sample]) -> None:
        """They are where the recipe says."""


def write(
    database: duckdb.DuckDBPyConnection,
    index: PlannedTraces,
    folder: Path,
    recipe: Recipe,
    *,
    select: Select = _PLAIN,
    chosen: str = SELECTED,
    workers: Workers = SERIAL,
) -> Written:
    """Write the chosen traces of a database with `signals` below `folder`, which must be new.

    `chosen` is a query of their ids and samples; `select` has the signals they are ordered by, and an expression of
    their weight.
    The number of rows alone says which rows are in a file, and not the number of `workers`.
    """
    written = Written()
    folder.mkdir(parents=True, exist_ok=True)
    tables = file_tables(database, index, recipe, select=select, chosen=chosen)
    tasks = ((folder, number, rows_task(index, recipe, table)) for number, table in enumerate(tables))
    for part in workers.map(_write_task, tasks):
        for name, file in part.files.items():
            path = folder / file_name(len(written.files))
            path.parent.mkdir(exist_ok=True)
            (folder / name).rename(path)
            written.files[file_name(len(written.files))] = file
        written.unreadable |= part.unreadable
    return written


def file_name(number: int) -> str:
    """The path of a file of the dataset below its folder."""
    return part_path(Path("train"), number, ".parquet").as_posix()


def file_tables(
    database: duckdb.DuckDBPyConnection,
    index: PlannedTraces,
    recipe: Recipe,
    *,
    select: Select = _PLAIN,
    chosen: str = SELECTED,
) -> Iterator[pa.Table]:
    """The signals of the chosen traces and what each row counts, in their order: a table for each file.

    A file whose rows are very large is cut in several.
    """
    load_answer_types(recipe)
    ((count,),) = database.execute(f"SELECT count(*) FROM signals SEMI JOIN ({chosen}) USING (id)").fetchall()
    return tables_of_rows(_chosen(database, index, chosen, select, "signals.*"), dataset_file_rows(count))


def ordered_ids(
    database: duckdb.DuckDBPyConnection, index: PlannedTraces, select: Select
) -> Iterator[pa.RecordBatch]:
    """The id of each selected trace and what its row counts, in the order of the rows."""
    return _chosen(database, index, SELECTED, select, "signals.id")


def rows_task(index: PlannedTraces, recipe: Recipe, table: pa.Table) -> RowsTask:
    """What a process needs for the rows of a table that `file_tables` gave."""
    sample_files, samples = index.sample_locations(table["sample_id"].to_pylist())
    return RowsTask(
        signals=table,
        journals=index.files,
        traces=index.locations(index.rows_of(table["id"].to_pylist())),
        sample_files=sample_files,
        samples=samples,
        style=recipe.filter.rationale,
        max_pixels=recipe.max_pixels,
        relative_tolerance=recipe.filter.answer.relative_tolerance,
    )


def _write_task(task: tuple[Path, int, RowsTask]) -> Written:
    folder, number, rows = task
    unreadable: dict[str, str] = {}
    return Written(files=write_files(read_rows(rows, unreadable), folder, number), unreadable=unreadable)


def write_files(rows: Iterator[Row], folder: Path, number: int) -> dict[str, Output]:
    """Write rows as one file, or several if they are very large; they have names of their own in `folder`."""
    files: dict[str, Output] = {}
    groups = row_groups(rows)
    group = next(groups, None)
    while group is not None:
        path = folder / f"rows-{number:05d}-{len(files):05d}.parquet"
        size = count = 0
        with (
            atomic_path(path) as temporary,
            pq.ParquetWriter(temporary, SCHEMA, compression="zstd", store_schema=True) as writer,
        ):
            while group is not None and (not size or size + group[1] <= _FILE_BYTES):
                writer.write_table(pa.Table.from_pylist(group[0], schema=SCHEMA), row_group_size=_GROUP_ROWS)
                size, count = size + group[1], count + len(group[0])
                group = next(groups, None)
        files[path.name] = describe(path, count)
    return files


def replace(new: Path, folder: Path) -> None:
    """Replace a folder by a finished one."""
    with storage_errors(folder):
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def row(
    sample: Sample,
    trace: Trace,
    images: list[dict[str, Any]],
    signals: dict[str, Any],
    style: Style,
    weight: float = 1.0,
    relative_tolerance: float = 0.0,
) -> Row:
    """One example: the plain question, and the assistant's turn with its rationale."""
    # The student learns a correct answer in the spelling of the gold answer, because teachers spell it in different
    # ways. Of several gold answers it is the one that the rationale leads to.
    is_correct = signals.get("answer_verdict") == "correct" and sample.answers
    answer = accepted_answer(sample, trace, relative_tolerance) if is_correct else trace.answer.strip()
    rationale = trace.reasoning.strip()
    return {
        "images": images,
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
    database: duckdb.DuckDBPyConnection, index: PlannedTraces, chosen: str, select: Select, columns: str
) -> Iterator[pa.RecordBatch]:
    """These signals of the chosen traces and what each counts, in their order.

    Without a curriculum that is the order of the samples, so that never more than a part of them has to be sorted.
    """
    ordered = order([*select.curriculum, "sample_id", "id"], table="signals")
    for low, high in index.ranges(index.planned if select.curriculum else _SORTED_ROWS):
        within = f"sample_id >= {text(low)} AND sample_id < {text(high)}"
        try:
            yield from database.sql(
                f"""SELECT {columns}, CAST((\n{select.weight}\n) AS DOUBLE) AS {WEIGHT}
                FROM signals SEMI JOIN (SELECT id FROM ({chosen}) WHERE {within}) USING (id)
                WHERE {within} ORDER BY {ordered}"""
            ).to_arrow_reader(_BATCH)
        except duckdb.Error as error:
            raise faulty_expression(database, [("filter.select.weight", select.weight)], error) from None


def read_rows(task: RowsTask, unreadable: dict[str, str]) -> Iterator[Row]:
    """The rows of a task. Questions with an image that cannot be read are left out, and go to `unreadable`."""
    shown: tuple[str, list[dict[str, Any]] | None] = ("", None)
    names, values = _signals_of(task.signals)
    samples = read_samples_at(task.sample_files, task.samples)
    traces = read_traces(task.journals, task.traces)
    for trace, asked, row_values in zip(traces, task.signals[WEIGHT].to_pylist(), values, strict=True):
        sample = samples[trace.sample_id]
        if shown[0] != sample.id:
            shown = (sample.id, _images(sample, task.max_pixels, unreadable))
        if shown[1] is not None:
            weight = max(0.0, asked) if asked is not None and math.isfinite(asked) else 1.0
            signals = {name: value for name, value in zip(names, row_values, strict=True) if value is not None}
            yield row(sample, trace, shown[1], signals, task.style, weight, task.relative_tolerance)


def _signals_of(table: pa.Table) -> tuple[list[str], Iterable[tuple[Any, ...]]]:
    """The names of the signals that a table has values of, and the values of each row."""
    # FACTS.names is a new list at each look.
    no_signals = {*FACTS.names, WEIGHT}
    names = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name not in no_signals and column.null_count < len(column)
    ]
    columns = [table[name].to_pylist() for name in names]
    return names, zip(*columns, strict=True) if columns else [()] * len(table)


def _images(sample: Sample, max_pixels: int, unreadable: dict[str, str]) -> list[dict[str, Any]] | None:
    """The encoded images of a sample, in a form that all decoders read in the same way; None for unreadable ones."""
    images = []
    try:
        for ref in sample.images:
            data, mime = image_files.portable(image_files.read_bytes(ref), max_pixels=max_pixels)
            images.append({"bytes": data, "path": f"{image_files.sha256(data)[:16]}.{mime.removeprefix('image/')}"})
    except ImageError as error:
        unreadable[sample.id] = error.reason
        return None
    return images


def row_groups(rows: Iterable[Row]) -> Iterator[tuple[list[Row], int]]:
    """Row groups with their size in bytes."""
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(image["bytes"]) for image in row["images"])
        size += 2 * len(row["rationale"]) + len(row["signals"]) + len(row["messages"][0]["content"])
        if len(group) == _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group, size
            group, size = [], 0
    if group:
        yield group, size
