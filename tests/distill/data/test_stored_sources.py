"""A source whose rows or images lie in a store is read as one on this machine is: same ids, same reasons."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import store_servers
from servers.store_servers import BUCKET, StoreFaults
from students import tiny_models

from distill.data import reader, sources
from distill.data.images import image_files, stored_images
from distill.errors import DataError, ImageError, RecipeError, StorageError
from distill.object_store import recipe_stores
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample


@pytest.fixture
def faults() -> StoreFaults:
    return StoreFaults()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, faults: StoreFaults) -> Iterator[str]:
    store_servers.set_keys(monkeypatch)
    monkeypatch.delenv("DISTILL_STORED_FILES", raising=False)
    with store_servers.s3_server() as server, store_servers.faulty_proxy(server, faults) as proxy:
        yield proxy


@pytest.fixture
def bucket(endpoint: str) -> ObjectStore:
    return open_store(f"s3://{BUCKET}", config=store_servers.config(endpoint))


ROWS: list[dict[str, Any]] = [
    {"image": f"pictures/{number % 4}.png", "question": f"How many? {number}", "answer": str(number)}
    for number in range(12)
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Questions about four images, on this machine."""
    folder = tmp_path / "data"
    (folder / "pictures").mkdir(parents=True)
    for number in range(4):
        tiny_models.make_image(folder / "pictures" / f"{number}.png", number, size=16)
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in ROWS))
    return folder


def put(bucket: ObjectStore, folder: Path, there: str = "data") -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            bucket.put(f"{there}/{path.relative_to(folder).as_posix()}", path)


def recipe(endpoint: str, tmp_path: Path, **source: object) -> Recipe:
    lines = [
        f'[engine]\nscratch = "{tmp_path}/scratch"',
        store_servers.recipe_section(endpoint),
        "[data.questions]",
        *(f"{key} = {orjson.dumps(value).decode()}" for key, value in source.items()),
    ]
    (tmp_path / "recipe.toml").write_text("\n".join(lines))
    return load(tmp_path / "recipe.toml")


def ids(recipe: Recipe) -> list[str]:
    return [item.id for item in reader.read(recipe) if isinstance(item, Sample)]


ADDRESS = f"s3://{BUCKET}/data"


def test_rows_and_images_in_a_store_are_the_samples_of_a_folder(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path, faults: StoreFaults
) -> None:
    put(bucket, folder)
    plain = ids(recipe(endpoint, tmp_path, source=str(folder / "rows.jsonl")))
    assert len(plain) == 12
    places = [
        {"source": f"{ADDRESS}/rows.jsonl"},
        {"source": f"{ADDRESS}/rows.jsonl", "images_root": ADDRESS},
        {"source": str(folder / "rows.jsonl"), "images_root": ADDRESS},
        {"source": f"{ADDRESS}/rows.jsonl", "images_root": str(folder)},
        {"source": ADDRESS},
    ]
    for place in places:
        faults.seen.clear()
        assert ids(recipe(endpoint, tmp_path, **place)) == plain, place
        assert faults.seen["GET"] <= 4 + 1 + 1, "an image is fetched once, a table once, and a folder listed once"
    sample = next(iter(reader.samples(recipe(endpoint, tmp_path, **places[0]))))
    assert sample.images[0].path == f"{ADDRESS}/pictures/0.png"
    faults.seen.clear()
    assert image_files.read_bytes(sample.images[0]) == (folder / "pictures" / "0.png").read_bytes()
    assert not faults.seen, "it is on this machine since the source was read"


def test_images_inside_a_table_of_a_store_are_those_of_a_folder(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path, faults: StoreFaults
) -> None:
    tables = tmp_path / "tables"
    tables.mkdir()
    for part in range(2):
        rows = ROWS[part::2]
        cells = [{"bytes": (folder / row["image"]).read_bytes(), "path": row["image"]} for row in rows]
        table = pa.table({"image": cells} | {key: [row[key] for row in rows] for key in ("question", "answer")})
        pq.write_table(table, tables / f"train-{part:05d}-of-00002.parquet")
    put(bucket, tables, "tables")
    stored = recipe(endpoint, tmp_path, source=f"s3://{BUCKET}/tables")
    items = list(reader.samples(stored))
    assert [item.id for item in items] == ids(recipe(endpoint, tmp_path, source=str(tables)))
    ref = items[-1].images[0]
    assert ref.path == f"s3://{BUCKET}/tables/train-00001-of-00002.parquet" and ref.column == "image"
    data = image_files.read_bytes(ref)
    stored_images.forget([ref.sha256])
    faults.seen.clear()
    assert image_files.read_bytes(ref) == data and not faults.seen["GET"], "the table is on this machine"


def test_a_table_is_fetched_again_only_when_its_object_is_another_one(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path, faults: StoreFaults
) -> None:
    put(bucket, folder)
    stored = recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl", images_root=str(folder))
    faults.seen.clear()
    fields = reader.source_fields(stored)
    assert not faults.seen["GET"], "what a source holds is known without reading it"
    first = ids(stored)
    faults.seen.clear()
    assert ids(stored) == first and not faults.seen["GET"]
    assert reader.source_fields(stored) == fields
    bucket.put("data/rows.jsonl", orjson.dumps(ROWS[0] | {"question": "Another one?"}))
    assert reader.source_fields(stored) != fields and len(ids(stored)) == 1


def test_what_is_wrong_in_a_store_is_the_reason_of_a_row(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    (folder / "pictures" / "1.png").unlink()
    (folder / "pictures" / "2.png").write_bytes(b"no picture")
    (folder / "pictures" / "3.png").write_bytes(b"")
    rows = [*ROWS[:4], ROWS[4] | {"image": "../secret.png"}, ROWS[5] | {"image": "s3://other/1.png"}]
    rows += [ROWS[6] | {"image": f"{ADDRESS}/pictures/0.png"}]
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    put(bucket, folder)
    items = list(reader.read(recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl")))
    assert [item.reason if isinstance(item, BadRow) else "" for item in items] == [
        "",
        "missing_image",
        "unreadable_image",
        "empty_image",
        "path_outside_root",
        "path_outside_root",
        "",
    ]
    bad = items[1]
    assert isinstance(bad, BadRow) and bad.source == f"{ADDRESS}/rows.jsonl"
    assert bad.detail == f"{ADDRESS}/pictures/1.png: no such object"
    looked = list(reader.read(recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl"), decode=lambda _: False))
    assert [isinstance(item, Sample) for item in looked] == [True, False, True, False, False, False, True]


def test_an_outage_while_images_are_read_is_waited_for_and_is_no_rows_fault(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path, faults: StoreFaults
) -> None:
    put(bucket, folder)
    stored = recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl")
    plain = ids(stored)
    stored_images.forget(ref.sha256 for item in reader.samples(stored) for ref in item.images)
    faults.statuses["GET"] = [503, 500, 429, 503]
    assert ids(stored) == plain and not faults.statuses["GET"]


def test_an_image_that_was_replaced_is_not_taken_for_the_one_that_was_planned(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    put(bucket, folder)
    ref = next(reader.samples(recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl"))).images[0]
    planned = image_files.read_bytes(ref)
    bucket.put("data/pictures/0.png", folder / "pictures" / "1.png")
    assert image_files.read_bytes(ref) == planned
    stored_images.file_of(ref.sha256).write_bytes(planned[: len(planned) // 2])
    with pytest.raises(ImageError) as caught:
        image_files.read_bytes(ref)
    assert caught.value.reason == "changed_image"
    bucket.put("data/pictures/0.png", planned)
    assert image_files.read_bytes(ref) == planned, "half of a file, which a lost machine left, is no image"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (f"{ADDRESS}/none.jsonl", "no such object"),
        (f"s3://{BUCKET}/none", "no table below this address"),
        ("s3://none/rows.jsonl", "no such bucket|no such object"),
    ],
)
def test_a_source_that_the_store_does_not_have_is_named(
    endpoint: str, tmp_path: Path, source: str, problem: str
) -> None:
    with pytest.raises((DataError, StorageError), match=problem):
        sources.locate(recipe(endpoint, tmp_path, source=source), "questions")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("s3:///rows.jsonl", "no bucket is named"),
        ("s3://key:secret@bucket/rows.jsonl", "credentials do not belong"),
        ("hf://datasets/rows.jsonl", "hub name"),
        ("https://example.org/rows.jsonl", "Download it first"),
    ],
)
def test_an_address_that_cannot_be_a_source_is_refused_with_the_recipe(
    tmp_path: Path, source: str, problem: str
) -> None:
    with pytest.raises(RecipeError, match=problem):
        recipe("http://127.0.0.1:1", tmp_path, source=source)


def test_an_unreachable_store_is_given_up_soon_when_a_source_is_looked_for(
    endpoint: str, tmp_path: Path, faults: StoreFaults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distill.object_store.open_store._FIRST_PATIENCE_S", 0.1)
    faults.away = True
    with pytest.raises(StorageError, match="no request has succeeded"):
        sources.locate(recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl"), "questions")


def test_what_a_process_holds_is_kept_apart_from_what_the_machine_keeps(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path
) -> None:
    put(bucket, folder)
    stored = recipe(endpoint, tmp_path, source=f"{ADDRESS}/rows.jsonl")
    with recipe_stores.files_in(tmp_path / "own", stored):
        assert len(ids(stored)) == 12 and len(list((tmp_path / "own/files/images").rglob("*"))) == 8
    assert not (tmp_path / "own/files").exists()
    with pytest.raises(KeyboardInterrupt), recipe_stores.files_in(tmp_path / "own", stored):
        ids(stored)
        raise KeyboardInterrupt
    assert len(list((tmp_path / "own/files/images").rglob("*"))) == 8, "the same command goes on with them"
    assert not (tmp_path / "scratch").exists() and "DISTILL_STORED_FILES" not in os.environ


@pytest.mark.parametrize("source", [f"s3://{BUCKET}", f"s3://{BUCKET}/", f"s3://{BUCKET}/*.jsonl"])
def test_a_table_may_lie_at_the_root_of_its_bucket(
    endpoint: str, bucket: ObjectStore, folder: Path, tmp_path: Path, source: str
) -> None:
    bucket.put("train.jsonl", (folder / "rows.jsonl").read_bytes())
    put(bucket, folder / "pictures", "pictures")
    expected = ids(recipe(endpoint, tmp_path, source=str(folder / "rows.jsonl")))
    assert ids(recipe(endpoint, tmp_path, source=source, images_root=f"s3://{BUCKET}")) == expected
