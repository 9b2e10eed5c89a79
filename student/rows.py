"""What a training stage reads: a question, the response to learn, references to the images.

A stage's data is the filtered dataset ("traces"), an arm of it ("traces:random") or a named source. Does not cover
tokens (student/encode.py).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill import data, images
from distill.artifacts import flatten, require
from distill.errors import DataError
from distill.recipe import DataSource, Recipe, Stage
from distill.types import BadRow, ImageRef

TRACES = "traces"
NO_ANSWER = "no_answer"
_READ_ROWS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One conversation of one question and one response."""

    id: str
    images: tuple[ImageRef, ...]
    question: str
    response: str


def is_traces(stage: Stage) -> bool:
    """Whether a stage learns from what the teachers wrote."""
    return stage.data.partition(":")[0] == TRACES


def fields(recipe: Recipe, run: Path, stage: Stage) -> dict[str, Any]:
    """What identifies the data of a stage: the filter's fingerprint, or the source's content."""
    if is_traces(stage):
        upstream = require(run, "filter", next_step=f"run `distill filter {recipe.path}` first")
        return {f"data.{stage.data}": upstream.fingerprint}
    return flatten(data.source_fields(recipe, stage.data), f"data.{stage.data}")


def max_pixels(recipe: Recipe, stage: Stage) -> int:
    """The pixel limit of a stage's images; traces hold images of any source, so the largest limit applies."""
    if not is_traces(stage):
        return recipe.data[stage.data].max_pixels
    limits = [source.max_pixels for source in recipe.data.values()]
    return max(limits, default=int(DataSource.model_fields["max_pixels"].default))


def read(recipe: Recipe, run: Path, stage: Stage, dropped: Counter[str]) -> Iterator[Row]:
    """The rows of a stage in order; reasons for rows left out are added to `dropped`."""
    found = _traces(run, stage) if is_traces(stage) else _samples(recipe, stage.data, dropped)
    for position, row in enumerate(found):
        if stage.limit is not None and position >= stage.limit:
            return
        yield row


def _samples(recipe: Recipe, name: str, dropped: Counter[str]) -> Iterator[Row]:
    def count(row: BadRow) -> None:
        dropped[row.reason] += 1

    for sample in data.samples(recipe, name, on_bad=count):
        if sample.answer is None:
            dropped[NO_ANSWER] += 1
            continue
        yield Row(id=sample.id, images=sample.images, question=sample.question, response=sample.answer)


def _traces(run: Path, stage: Stage) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, _, arm = stage.data.partition(":")
    folder = run / "filter" / (f"arms/{arm}" if arm else "dataset") / "train"
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise DataError(f"{folder}: holds no *.parquet; run the filter stage again")
    for file in files:
        position = 0
        try:
            with pq.ParquetFile(file) as table:
                for batch in table.iter_batches(
                    batch_size=_READ_ROWS, columns=["images", "messages", "answer", "trace_id"]
                ):
                    for values in batch.to_pylist():
                        yield _trace(values, file, position, stage)
                        position += 1
        except (OSError, KeyError, pa.ArrowException) as error:
            raise DataError(
                f"{file}: cannot be read as filtered traces: {error}; run the filter stage again"
            ) from None


def _trace(values: dict[str, Any], file: Path, position: int, stage: Stage) -> Row:
    question = "\n".join(message["content"] for message in values["messages"] if message["role"] == "user")
    response = values["messages"][-1]["content"] if stage.target == "rationale" else values["answer"]
    refs = tuple(
        ImageRef(
            sha256=images.sha256(images.cell_bytes(cell)), path=str(file), column="images", row=position, index=index
        )
        for index, cell in enumerate(values["images"])
    )
    return Row(id=values["trace_id"], images=refs, question=question, response=response)
