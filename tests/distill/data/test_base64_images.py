"""Images in base64 within tables: read from the place where the table holds them, with the ids of image files."""

import csv
import gzip
import io
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds.source_rows import folder_of_images, make_image, read_rows, recipe_for

from distill.commands import split
from distill.data import reader
from distill.data.images import image_files
from distill.errors import ImageError
from distill.types import BadRow, Sample

TEXTS = [b64encode(make_image(number)).decode() for number in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_images(tmp_path)


def as_tsv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), delimiter="\t")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue().encode()


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def with_escaped_slashes(rows: list[dict[str, Any]]) -> bytes:
    return as_lines(rows).replace(b"/", rb"\/")


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), written)
    return written.getvalue()


WRITTEN: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "q.tsv": as_tsv,
    "lines.jsonl": as_lines,
    "escaped.jsonl": with_escaped_slashes,
    "q.json": lambda rows: json.dumps({"data": rows}, indent=1).encode(),
    "q.parquet": as_parquet,
}


@pytest.mark.parametrize("begin", ["", "data:image/png;base64,"])
@pytest.mark.parametrize("name", WRITTEN)
def test_ids_are_those_of_the_same_images_in_files_and_the_images_are_read_again(
    folder: Path, name: str, begin: str
) -> None:
    asked = [f"What is {number}?" for number in range(3)]
    rows = [{"question": text, "image": begin + image} for text, image in zip(asked, TEXTS, strict=True)]
    (folder / name).write_bytes(WRITTEN[name](rows))
    found = list(reader.read(recipe_for(folder, name)))
    files = read_rows(folder, [{"question": text, "image": f"{number}.png"} for number, text in enumerate(asked)])
    for number, (sample, same) in enumerate(zip(found, files, strict=True)):
        assert isinstance(sample, Sample) and isinstance(same, Sample) and sample.id == same.id
        assert image_files.read_bytes(sample.images[0]) == make_image(number)


def test_an_image_that_several_rows_hold_and_lists_of_images_are_found_at_their_places(folder: Path) -> None:
    rows = [{"question": f"{number}?", "image": [TEXTS[0], TEXTS[number % 2]]} for number in range(4)]
    (folder / "q.jsonl").write_bytes(as_lines(rows))
    found = list(reader.read(recipe_for(folder, "q.jsonl")))
    places = [ref.row for sample in found if isinstance(sample, Sample) for ref in sample.images]
    assert places == sorted(set(places)) and len(places) == 8
    assert {image_files.sha256(make_image(number)) for number in (0, 1)} == {
        ref.sha256 for sample in found if isinstance(sample, Sample) for ref in sample.images
    }


def test_a_struct_with_bytes_in_base64_is_read(folder: Path) -> None:
    found = read_rows(folder, [{"question": "What?", "image": {"bytes": TEXTS[1], "path": None}}])[0]
    assert isinstance(found, Sample) and image_files.read_bytes(found.images[0]) == make_image(1)


def test_an_image_that_the_table_no_longer_holds_is_noticed(folder: Path) -> None:
    (folder / "q.tsv").write_bytes(as_tsv([{"question": "What?", "image": TEXTS[0]}]))
    (found,) = reader.read(recipe_for(folder, "q.tsv"))
    assert isinstance(found, Sample)
    (folder / "q.tsv").write_bytes(as_tsv([{"question": "What?", "image": TEXTS[1]}]))
    with pytest.raises(ImageError) as error:
        image_files.read_bytes(found.images[0])
    assert error.value.reason == "changed_image"


def test_damaged_base64_costs_its_row_alone(folder: Path) -> None:
    rows = [{"question": f"{number}?", "image": text} for number, text in enumerate([TEXTS[0][:-5], *TEXTS[1:]])]
    bad, *good = read_rows(folder, rows)
    assert isinstance(bad, BadRow) and bad.reason == "unreadable_image" and "base64 of" in bad.detail
    assert all(isinstance(sample, Sample) for sample in good)


def test_a_packed_file_with_base64_says_what_to_do(folder: Path) -> None:
    (folder / "q.jsonl.gz").write_bytes(gzip.compress(as_lines([{"question": "What?", "image": TEXTS[0]}])))
    (found,) = reader.read(recipe_for(folder, "q.jsonl.gz"))
    assert isinstance(found, BadRow) and found.reason == "unsupported_image_cell"
    assert "unpack the file" in found.detail and TEXTS[0] not in found.detail


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "{}"}},
        {"type": "image_url", "image_url": "{}"},
        {"type": "image", "image": "{}"},
        {"type": "image", "path": "{}"},
    ],
)
@pytest.mark.parametrize("image", ["1.png", f"data:image/png;base64,{TEXTS[1]}"], ids=["path", "base64"])
def test_images_within_the_parts_of_a_turn_are_read(folder: Path, part: dict[str, Any], image: str) -> None:
    shown = json.loads(json.dumps(part).replace("{}", image))
    turns = [
        {"role": "user", "content": [shown, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "1"},
    ]
    (folder / "q.jsonl").write_bytes(as_lines([{"messages": turns}]))
    (found,) = reader.read(recipe_for(folder, "q.jsonl", format="llava", images_root="images"))
    assert isinstance(found, Sample), found
    assert image_files.read_bytes(found.images[0]) == make_image(1)
    assert (found.question, found.answers) == ("What?", ("1",))


@pytest.mark.parametrize("name", ["q.tsv", "q.json"])
def test_split_keeps_images_in_base64(folder: Path, name: str) -> None:
    photo = Image.linear_gradient("L")
    rows = []
    for number in range(10):
        photo.rotate(36 * number, fillcolor=9 * number).save(encoded := io.BytesIO(), "PNG")
        rows.append({"question": f"What is {number}?", "image": b64encode(encoded.getvalue()).decode()})
    (folder / name).write_bytes(WRITTEN[name](rows))
    recipe = recipe_for(folder, name)
    before = {item.id for item in reader.read(recipe) if isinstance(item, Sample)}
    divided = split.split_source(recipe, folder / "parts", test=0.3, seed=0)
    after = [
        item.id
        for path in divided.files.values()
        for item in reader.read(recipe_for(folder / "parts", path.name))
        if isinstance(item, Sample)
    ]
    assert len(before) == 10 and sorted(after) == sorted(before)
