"""What a training stage reads: a question, the response to learn, references to the images.

A stage's data is the filtered dataset ("traces"), an arm of it ("traces:random") or a named source; it may replay
other sources, also filtered datasets. Does not cover tokens (student/data/encode.py) or how often a row is drawn
(student/data/mixture.py).
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from distill.artifacts.integrity import dataset_digest
from distill.artifacts.layout import by_number, rollouts_folder, train_data_folder
from distill.artifacts.manifest import Manifest, flatten, require
from distill.data import reader, sources
from distill.data.images import image_cells, image_files
from distill.errors import DataError, ImageError
from distill.local_paths import run_command
from distill.rationale import NO_THINK, Style, join
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import MAX_PIXELS
from distill.recipe.sections.stages import TRACES, Stage, is_traces, sources_of
from distill.trace_records import scores
from distill.types import BadRow, ImageRef, row_value

NO_ANSWER = "no_answer"
MALFORMED = "malformed_row"
"""A trace without a required field, for example after an edit of the dataset by hand."""
_NAMED_BY_CONTENT = re.compile(r"[0-9a-f]{16}")
_READ_ROWS = 256
_COLUMNS = ("images", "messages", "answer", "rationale", "sample_id", "trace_id", "teacher", "weight", "signals")


@row_value
class Smaller(ImageRef):
    """An image whose sides are divided, so that students of variable resolution spend fewer tokens on it."""

    original: ImageRef
    divisor: int


def smaller(ref: ImageRef, divisor: int) -> Smaller:
    """The same image with sides `divisor` times shorter, under a name of its own."""
    name = image_files.sha256(f"{ref.sha256} / {divisor}".encode())
    return Smaller(sha256=name, path=ref.path, original=ref, divisor=divisor)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One conversation of one question and one response."""

    id: str
    images: tuple[ImageRef, ...]
    question: str
    response: str
    rationale: tuple[int, int] = (0, 0)
    """Characters of the response; what is neither rationale nor answer is format."""
    answer: tuple[int, int] = (0, 0)
    sample_id: str = ""
    """The question that the row is about; several traces may be."""
    source: str = ""
    teacher: str = ""
    weight: float = 1.0
    rejected: bool = False
    """Whether it is the wrong trace of a pair."""
    difficulty: float = 0.5
    """Share of the question's traces that are wrong; a half where it is unknown."""


def fields(recipe: Recipe, run: Path, stage: Stage) -> dict[str, Any]:
    """What identifies the data of a stage: the content of the filter's dataset, or of the sources."""
    result: dict[str, Any] = {}
    if is_traces(stage):
        upstream = require(run, "filter", next_step=f"run {run_command('filter', recipe.path, run)} first")
        result[f"data.{stage.data}"] = dataset_digest(upstream, stage.data.partition(":")[2])
    if stage.visual is not None or stage.rollouts is not None:
        noted = scores.settings(run, stage.name) or {"journals": {}}
        result |= {f"{scores.FIELD}{teacher}": journal for teacher, journal in noted["journals"].items()}
    for name in sources_of(stage):
        result |= flatten(reader.source_fields(recipe, name), f"data.{name}")
    return result


def has_rationales(recipe: Recipe, stage: Stage) -> bool:
    """Whether a stage learns rationales: from this run's traces, or from a source with traces of another run."""
    held = any(recipe.data[name].format == TRACES for name in sources_of(stage))
    return stage.target == "rationale" and (held or is_traces(stage))


def max_pixels(recipe: Recipe, stage: Stage) -> int:
    """The pixel limit of a stage's images; traces hold images of any source, so the largest limit applies."""
    names = recipe.data if is_traces(stage) else sources_of(stage)
    limits = [recipe.data[name].max_pixels for name in names]
    return max(limits, default=MAX_PIXELS)


def read(recipe: Recipe, run: Path, stage: Stage, dropped: Counter[str]) -> Iterator[TrainingRow]:
    """The rows of a stage in order, replayed ones last; reasons for rows left out are added to `dropped`."""
    if is_traces(stage):
        own = _traces(_files_of_traces(run, stage), stage.data, recipe, stage, dropped)
    else:
        own = _of_source(recipe, stage.data, stage, dropped)
    yield from islice(own, stage.limit and stage.limit * stage.group_rows)
    for name in stage.replay:
        yield from _of_source(recipe, name, stage, dropped)


def _of_source(recipe: Recipe, name: str, stage: Stage, dropped: Counter[str]) -> Iterator[TrainingRow]:
    """The rows of a named source; of one that holds traces with their rationales."""
    if recipe.data[name].format != TRACES:
        return _samples(recipe, name, dropped)
    table = sources.locate(recipe, name)
    table.fetch()
    return _traces(table.files, name, recipe, stage, dropped)


def _samples(recipe: Recipe, name: str, dropped: Counter[str]) -> Iterator[TrainingRow]:
    def count(row: BadRow) -> None:
        dropped[row.reason] += 1

    for sample in reader.samples(recipe, name, on_bad=count):
        if sample.answer is None:
            dropped[NO_ANSWER] += 1
            continue
        yield TrainingRow(
            id=sample.id,
            images=sample.images,
            question=sample.question,
            response=sample.answer,
            answer=(0, len(sample.answer)),
            sample_id=sample.id,
            source=name,
        )


def data_folder(run: Path, stage: Stage) -> Path:
    """Where the rows lie of a stage that learns from the dataset, an arm of it or its student's replies."""
    if stage.rollouts is not None:
        return rollouts_folder(run, stage.name) / "train"
    return train_data_folder(run, stage.data.partition(":")[2])


def _files_of_traces(run: Path, stage: Stage) -> list[Path]:
    """The files of the folder that a stage learns from."""
    folder = data_folder(run, stage)
    files = sorted(folder.glob("*.parquet"), key=by_number)
    if not files:
        raise DataError(f"{folder}: holds no *.parquet; run the filter stage again")
    if stage.rollouts is None:
        _require_written(run / "filter", files)
    return files


def _traces(
    files: Sequence[Path], source: str, recipe: Recipe, stage: Stage, dropped: Counter[str]
) -> Iterator[TrainingRow]:
    """The rows of filtered traces that lie in these files, named as the rows of `source`."""
    for file in files:
        for position, values in enumerate(_values(file)):
            try:
                row = _trace(values, file, position, source, stage, recipe.filter.rationale)
            except ImageError as error:
                dropped[error.reason] += 1
                continue
            except (TypeError, ValueError, AttributeError, IndexError):
                dropped[MALFORMED] += 1
                continue
            except KeyError as error:  # it is missing in the whole file
                raise _unreadable(file, f"it has no column or field {error}") from None
            if row.response.strip():
                yield row
            else:
                dropped[NO_ANSWER] += 1


def _values(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of the dataset. Raises DataError where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            there = [name for name in _COLUMNS if name in table.schema_arrow.names]
            for batch in table.iter_batches(batch_size=_READ_ROWS, columns=there):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception | str) -> DataError:
    return DataError(f"{file}: cannot be read as filtered traces: {error}; run the filter stage again")


def _require_written(stage_folder: Path, files: list[Path]) -> None:
    """Raise DataError for files that the filter did not write: they would change the training data without a
    record."""
    manifest = Manifest.read(stage_folder)
    written = {stage_folder / name for name in manifest.outputs} if manifest is not None else set()
    others = [file for file in files if file not in written]
    if others and len(others) < len(files):
        raise DataError(
            f"{others[0]}: the filter stage did not write this file, so it is no part of the dataset; move it away"
        )


def _trace(values: dict[str, Any], file: Path, position: int, source: str, stage: Stage, style: Style) -> TrainingRow:
    question = "\n".join(message["content"] for message in values["messages"] if message["role"] == "user")
    answer, identity = values["answer"], values["trace_id"]
    # A student's own reply may begin with blanks, which a tokenizer would join to the end of the prompt.
    response = values["messages"][-1]["content"].lstrip() if stage.target == "rationale" else answer
    if stage.target == "rationale" and _share(identity) < stage.no_think:
        question, response = question + NO_THINK, join("", answer, style)
    rationale = values.get("rationale") or ""
    begin = response.find(rationale) if rationale else -1
    end = response.rfind(answer)  # a student's own reply may have blanks after it
    signals = orjson.loads(values.get("signals") or "{}")
    pass_rate = signals.get("question_pass_rate")
    refs = tuple(
        ImageRef(sha256=_digest(cell), path=str(file), column="images", row=position, index=index)
        for index, cell in enumerate(values["images"])
    )
    return TrainingRow(
        id=identity,
        images=refs,
        question=question,
        response=response,
        rationale=(begin, begin + len(rationale)) if begin >= 0 else (0, 0),
        answer=(end, end + len(answer)) if end >= 0 else (0, 0),
        sample_id=values.get("sample_id") or identity,
        source=source,
        teacher=values.get("teacher") or "",
        weight=_weight(values.get("weight")),
        rejected=stage.preference is not None and signals.get("answer_verdict") == "wrong",
        difficulty=0.5 if pass_rate is None else 1 - float(pass_rate),
    )


def _digest(cell: Any) -> str:
    """The sha256 of an image of a trace. Raises ImageError for another image than the teacher was asked about: the
    filter names each by its digest."""
    digest = image_files.sha256(image_cells.cell_bytes(cell))
    path = (cell.get("path") if isinstance(cell, dict) else None) or ""
    name = Path(path).stem
    if _NAMED_BY_CONTENT.fullmatch(name) and not digest.startswith(name):
        raise ImageError("changed_image", f"{path}: this image differs from the image of the trace")
    return digest


def _weight(value: float | None) -> float:
    """What a row counts; one without a weight counts 1. Raises ValueError for what is no finite number from 0 on."""
    weight = 1.0 if value is None else float(value)
    if not 0 <= weight < math.inf:
        raise ValueError(f"weight {value}")
    return weight


def _share(identity: str) -> float:
    """A number from 0 to 1 that every run gives the same row."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8]) / 2**64
