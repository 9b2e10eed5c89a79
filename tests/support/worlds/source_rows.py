"""Small data sources for tests: a folder of images, rows of questions, and the recipe that reads them."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from distill.data import reader
from distill.data.source_images import ImagesRead
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample

Rows = Sequence[dict[str, Any]]


def make_image(number: int, size: int = 6) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (number % 256, number // 256, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def folder_of_images(folder: Path) -> Path:
    """Eight small images in `folder`/images."""
    (folder / "images").mkdir()
    for number in range(8):
        (folder / "images" / f"{number}.png").write_bytes(make_image(number))
    return folder


def plain_rows(count: int = 4) -> list[dict[str, Any]]:
    return [
        {"image": f"{number}.png", "question": f"What is {number}?", "answer": str(number)} for number in range(count)
    ]


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe_for(folder: Path, source: str = "q.jsonl", columns: str = "", **settings: Any) -> Recipe:
    """A recipe in `folder` whose questions come from `source`."""
    values = {"source": source, **settings}
    lines = ["[data.questions]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "r.toml").write_text("\n".join([*lines, "[data.questions.columns]", columns]))
    return loading.load(folder / "r.toml")


def read_rows(folder: Path, rows: Rows, **settings: Any) -> list[Sample | BadRow]:
    write_jsonl(folder / "q.jsonl", rows)
    return list(reader.read(recipe_for(folder, **{"images_root": "images", **settings})))


def read_one(folder: Path, row: dict[str, Any], **settings: Any) -> Sample | BadRow:
    (row_or_sample,) = read_rows(folder, [row], **settings)
    return row_or_sample


def write_table(folder: Path, kind: str, rows: list[dict[str, Any]]) -> str:
    path = folder / f"q.{kind}"
    if kind.startswith("jsonl"):
        write_jsonl(path, rows)
        if kind != "jsonl":
            content = path.read_bytes()
            with pa.output_stream(str(path), compression={"gz": "gzip", "zst": "zstd"}[kind.split(".")[1]]) as packed:
                packed.write(content)
    elif kind == "json":
        path.write_text(json.dumps(rows))
    elif kind in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path.name


def note_read_images(folder: Path, recipe: Recipe, name: str = "questions") -> Path:
    """What a stage leaves in its folder that has read the images of a source."""
    folder.mkdir(parents=True, exist_ok=True)
    images = ImagesRead(recipe)
    for row in reader.samples(recipe, name):
        images.add(name, row.images)
    images.write(folder)
    return folder
