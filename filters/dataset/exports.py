"""The dataset in the files that other trainers read: LLaVA/ShareGPT, LLaMA-Factory, ms-swift, WebDataset.

An export is made from the finished dataset, a batch at a time, so memory holds one batch. Images lie beside the
records under names made from their content, once for all formats; every path is relative to the export's folder. The
folder is built under a temporary name and replaces the last export; unchanged images are linked, not copied.
"""

import dataclasses
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from distill import redact
from distill.artifacts.files import new_folder, storage_errors
from distill.artifacts.integrity import require_finished
from distill.artifacts.layout import ARM_DATASETS, DATASET, PAIRS_TABLE, by_number
from distill.artifacts.manifest import Manifest
from distill.data.images.image_cells import cell_bytes
from distill.data.images.image_files import portable
from distill.errors import DataError, ImageError, RecipeError, StaleError
from distill.extensions import EXPORT_FORMATS, FAILURES, call, describe, problem
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import MAX_PIXELS
from distill.recipe.sections.filter import PAIRS
from distill.word_tables import counted
from filters.dataset.export_formats import (
    DATASET_INFO,
    DATASET_INFO_FILE,
    FORMATS,
    PAIR_FORMATS,
    PAIRS_INFO,
    ROLES,
    DatasetRow,
    ExportFormat,
    ExportImage,
    chosen_formats,
    is_altered,
)
from filters.dataset.webdataset import SHARD_BYTES, Shards
from filters.dataset.writer import replace

FOLDER = "exports"
IMAGES = "images"
_BATCH = 256
_SUFFIXES = {".jpeg": ".jpg"}
_REQUIRED = ("images", "messages", "trace_id")


def write_stage_exports(recipe: Recipe, folder: Path) -> tuple[dict[str, int | None], RecipeError | None]:
    """Write the exports that a recipe asks for, from the dataset in a filter folder; returns what `write` does.

    Images are taken over from the stage's last result where that has been set aside. If the format of a user fails
    on all examples, there are no exports, and its error is returned: the dataset is right without them.
    """
    before = (folder / FOLDER, folder.with_name(f"{folder.name}.previous") / FOLDER)
    formats = chosen_formats(recipe.filter.exports, recipe.path.parent)
    try:
        counts = write(folder / DATASET, folder / FOLDER, formats, name=recipe.name, before=before)
    except RecipeError as error:
        return {}, error
    return {f"{FOLDER}/{name}": count for name, count in counts.items()}, None


def export(run: Path, formats: Sequence[str], destination: Path) -> dict[str, int | None]:
    """Write the dataset of a run's finished filter stage to a new folder; returns what `write` does.

    Raises DataError when there is something at `destination` or a format has no such name, StaleError when the filter
    stage is not finished.
    """
    known = {**FORMATS, **PAIR_FORMATS}
    unknown = [name for name in formats if problem(EXPORT_FORMATS, name, known)]
    if unknown or not formats:
        raise DataError(
            f"formats of the dataset: {', '.join(sorted(set(unknown))) or 'none'}; name one or more of "
            f"{', '.join(known)}, FILE.py:NAME, or the entry point of a package"
        )
    pairs = {name: PAIR_FORMATS[name] for name in PAIR_FORMATS if name in formats}
    singles = chosen_formats([name for name in formats if name not in pairs], Path.cwd())
    if pairs and singles:
        raise DataError(f"{', '.join(pairs)}: pairs and single traces are two datasets; give each its own --out")
    filtered = require_finished(run, "filter", next_step="run `distill filter` first")
    source = _pairs_folder(run, filtered) if pairs else run / "filter" / DATASET
    with new_folder(destination) as folder:
        return _write(source, folder, pairs or singles, run.resolve().name)


def _pairs_folder(run: Path, filtered: Manifest) -> Path:
    """The folder of a run's pairs. Raises StaleError if the filter stage has no pairs."""
    folder = run / "filter" / ARM_DATASETS / PAIRS
    made = Manifest.read(folder)
    if made is None or made.inputs["filter"] != filtered.fingerprint:
        raise StaleError(
            f"{folder}: there are no pairs of this filter stage; `distill train` makes them before it trains a stage "
            "with [stages.preference]"
        )
    return folder


def write(
    dataset: Path,
    folder: Path,
    formats: Mapping[str, ExportFormat],
    *,
    name: str,
    before: Sequence[Path] = (),
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, int | None]:
    """Replace the export in `folder` by a new one of a dataset's folder; without a format remove it.

    `name` is what LLaMA-Factory calls the dataset; `before` are older exports, whose images are used again. Returns
    the number of examples of each file besides images, by its path below `folder`. Raises DataError when the
    dataset cannot be read.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    with storage_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        if not formats:
            shutil.rmtree(folder, ignore_errors=True)
            return {}
        try:
            temporary.mkdir(parents=True)
            counts = _write(dataset, temporary, formats, name, before, shard_bytes)
            replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return counts


def read(dataset: Path) -> Iterator[DatasetRow]:
    """The examples of a dataset's folder in their order. Raises DataError."""
    files = sorted((dataset / "train").glob("*.parquet"), key=by_number)
    if not files:
        raise DataError(f"{dataset / 'train'}: holds no *.parquet; run the filter stage again")
    for file in files:
        try:
            # Read ahead, the whole file would end up in memory: 413 MiB instead of 202 at 40,000 examples.
            with pq.ParquetFile(file, pre_buffer=False) as table:
                if missing := [name for name in _REQUIRED if name not in table.schema_arrow.names]:
                    raise DataError(f"{file}: no dataset, for it has no column {', '.join(missing)}; add it")
                for number, row in enumerate(chain.from_iterable(map(_rows, table.iter_batches(_BATCH))), start=1):
                    try:
                        example = _example(row)
                    except (TypeError, AttributeError, KeyError, ValueError, ImageError) as error:
                        raise DataError(
                            f"{file}: row {number} is no example: {describe(error)}; messages need role and content, "
                            "images need bytes: correct it, or run the filter stage again"
                        ) from None
                    yield example
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{file}: cannot be read as a dataset: {error}; run the filter stage again") from None


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def read_pairs(folder: Path) -> Iterator[DatasetRow]:
    """The pairs in the folder of an arm: the messages of the right trace, then the reply of the wrong one."""
    chosen = set(pq.read_table(folder / PAIRS_TABLE, columns=["chosen"])["chosen"].to_pylist())
    waiting: dict[str, DatasetRow] = {}
    for row in read(folder):
        other = waiting.pop(row.values["sample_id"], None)
        if other is None:
            waiting[row.values["sample_id"]] = row
            continue
        right, wrong = (row, other) if row.id in chosen else (other, row)
        yield dataclasses.replace(right, messages=[*right.messages, wrong.messages[-1]])


def _example(row: dict[str, Any]) -> DatasetRow:
    """An example of a row, which may come from another program: without `weight`, or with images without names."""
    messages = row.pop("messages")
    for message in messages:
        if message["role"] not in ROLES or not isinstance(message["content"], str):
            raise ValueError(f"a message of the role {message['role']!r} with the content {message['content']!r:.40}")
    images = []
    for cell in row.pop("images"):
        data, name = cell_bytes(cell), cell.get("path") if isinstance(cell, dict) else None
        suffix = Path(name or "").suffix
        if not suffix:
            data, mime = portable(data, max_pixels=MAX_PIXELS)
            suffix = f".{mime.removeprefix('image/')}"
        images.append(ExportImage(data=data, suffix=_SUFFIXES.get(suffix, suffix)))
    return DatasetRow(messages=messages, pictures=tuple(images), values=row)


def _write(
    dataset: Path,
    folder: Path,
    formats: Mapping[str, ExportFormat],
    name: str,
    before: Sequence[Path] = (),
    shard_bytes: int = SHARD_BYTES,
) -> dict[str, int | None]:
    """Write the export to an empty folder; arguments and result as in `write`."""
    images = _ImageFiles(folder, before)
    lines = {
        name: _Records(folder, name, export_format)
        for name, export_format in formats.items()
        if export_format.record is not None
    }
    shards = Shards(folder / formats["webdataset"].file, shard_bytes=shard_bytes) if "webdataset" in formats else None
    changed = dict.fromkeys(formats, 0)
    count = weighted = 0
    pairs = any(export_format.pairs for export_format in formats.values())
    for example in read_pairs(dataset) if pairs else read(dataset):
        paths = [images.add(image) for image in example.pictures] if lines else []
        for records in lines.values():
            records.add(example, paths)
        if shards is not None:
            shards.add(example)
        for format_name, export_format in formats.items():
            changed[format_name] += is_altered(example, export_format.tags)
        weighted += example.values.get("weight") not in (1.0, None)
        count += 1
    counts: dict[str, int | None] = {}
    for format_name, records in lines.items():
        counts[formats[format_name].file] = records.close()
    if shards is not None:
        shards.close()
        counts |= {f"{formats['webdataset'].file}/{tar}": examples for tar, examples in shards.files.items()}
    for form, info in (("llama-factory", DATASET_INFO), ("llama-factory-pairs", PAIRS_INFO)):
        if form not in formats:
            continue
        entry = {"file_name": formats[form].file, **info}
        (folder / DATASET_INFO_FILE).write_bytes(orjson.dumps({name: entry}, option=orjson.OPT_INDENT_2) + b"\n")
        counts[DATASET_INFO_FILE] = None
    failures = {form: records.failures for form, records in lines.items() if records.failed}
    guide = _readme(name, count, formats, changed, weighted, failures)
    (folder / "README.md").write_text(guide, encoding="utf-8", newline="\n")
    # One for all: an fsync for each image would cost more than everything else.
    if hasattr(os, "sync"):
        os.sync()
    return counts | {"README.md": None}


def _readme(
    name: str,
    count: int,
    formats: Mapping[str, ExportFormat],
    changed: Mapping[str, int],
    weighted: int,
    failures: Mapping[str, str],
) -> str:
    pairs = any(made.pairs for made in formats.values())
    parts = [
        f"# {name}: {count:,} {'pairs' if pairs else 'examples'} for other trainers",
        f"Made by `distill` from {'right and wrong traces' if pairs else 'the dataset'} of a run; the README.md of "
        "its folder `filter/dataset` says where the data comes from. All paths are relative to this folder.",
    ]
    unweighted = [f"`{made.file}`" for form, made in formats.items() if form in FORMATS and made.record is not None]
    if weighted and unweighted:
        parts.append(
            "Examples with another `weight` in the student's loss than 1 (`filter.select.weight`): "
            f"{weighted:,}. {', '.join(unweighted)} hold no weights, for their readers know none: all examples count "
            "the same there."
        )
    for form, made in formats.items():
        parts.append(made.guide.replace("{name}", name) or f"## `{made.file}`")
        parts.extend([f"The file lacks examples: {failures[form]}."] if form in failures else [])
        if changed[form]:
            parts.append(
                f"In {counted(changed[form], 'example')} a question or rationale contains a text that this trainer "
                "reads as a placeholder, such as `<image>`; the export writes it with a space after the bracket."
            )
    return "\n\n".join(parts) + "\n"


def record_of(made: ExportFormat, example: DatasetRow, paths: Sequence[str]) -> bytes:
    """The JSON of an example. Raises what the format raises, and TypeError for what is no record."""
    assert made.record is not None
    record = call(made.record, example, paths)
    if not isinstance(record, Mapping):
        raise TypeError(f"the record is {type(record).__name__}, not a table of keys and values")
    data = redact.dumps(record)
    if b"null" in data:
        _require_finite(record)
    return data


def _require_finite(record: Mapping[str, Any]) -> None:
    """Raise ValueError for NaN and infinity, which orjson writes as null."""
    try:
        json.dumps(record, allow_nan=False, default=str)
    except ValueError:
        raise ValueError("a number is NaN or infinite, which JSON cannot hold; write None, or leave it out") from None


class _Records:
    """One file of records: JSON lines, or a JSON array of them where the name ends in .json.

    An example on which a format from outside fails is left out and counted.
    """

    def __init__(self, folder: Path, name: str, made: ExportFormat) -> None:
        self._name, self._made = name, made
        array = made.file.endswith(".json")
        self._file: IO[bytes] = (folder / made.file).open("wb")
        self._file.write(b"[" if array else b"")
        self._between, self._end = (b",\n", b"\n]\n") if array else (b"\n", b"\n")
        self._before = b"\n" if array else b""
        self._written = self.failed = 0
        self._first_failure = ""

    @property
    def failures(self) -> str:
        return (
            f"export {self._name!r} failed on {self.failed:,} of "
            f"{counted(self._written + self.failed, 'trace')}; the first: "
            f"{self._first_failure}"
        )

    def add(self, example: DatasetRow, paths: Sequence[str]) -> None:
        if self._name in FORMATS:
            record = record_of(self._made, example, paths)
        else:
            try:
                record = record_of(self._made, example.copy(), list(paths))
            except FAILURES as error:
                self.failed += 1
                self._first_failure = self._first_failure or f"trace {example.id}: {describe(error)}"
                return
        self._file.write(self._before + record)
        self._before = self._between
        self._written += 1

    def close(self) -> int:
        """End the file; returns the number of its records. Raises RecipeError where the format failed on all."""
        self._file.write(self._end)
        self._file.close()
        if self.failed and not self._written:
            raise RecipeError(f"{self.failures}; correct its record")
        if self.failed:
            logging.getLogger(__name__).warning(f"{self.failures}; they are left out of {self._made.file}")
        return self._written


class _ImageFiles:
    """Files of images by their content."""

    def __init__(self, folder: Path, before: Sequence[Path]) -> None:
        self._folder, self._before = folder, [path for path in before if (path / IMAGES).is_dir()]

    def add(self, image: ExportImage) -> str:
        """The path of an image below the folder; it is written unless it is there."""
        digest = hashlib.sha256(image.data).hexdigest()[:32]
        name = f"{IMAGES}/{digest[:2]}/{digest}{image.suffix}"
        path = self._folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not any(_linked(folder / name, path, image.data) for folder in self._before):
                path.write_bytes(image.data)
        return name


def _linked(old: Path, new: Path, data: bytes) -> bool:
    """Whether an older file with the same content has been given a second name."""
    try:
        if old.stat().st_size != len(data) or old.read_bytes() != data:
            return False
        new.hardlink_to(old)
    except OSError:  # there is none, or the file system has no such links
        return False
    return True
