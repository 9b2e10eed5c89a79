"""check, train, eval and filter of recipes whose rows and images lie in a store: as those of a folder."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from servers import store_servers, stub_server
from servers.store_servers import BUCKET
from typer.testing import CliRunner
from worlds import student_worlds as worlds
from worlds.store_worlds import dataset, put_data, small_world

from distill.artifacts.journal import read_jsonl
from distill.cli import app
from distill.data import reader
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.types import Sample
from filters.apply import apply

STAGES = (
    worlds.stage("align", "questions", train='["projector"]', steps=3),
    worlds.stage("reason", steps=3, more="replay = { questions = 0.25 }\n"),
)
_WITH_PATHS = ("teachers", "--run", "disk")
EVAL = '[eval]\ndata = "test"\nallow_overlap = true\nmax_new_tokens = 8\ngallery = 2\n[eval.arms]\nlast = "reason"\n'


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    store_servers.set_keys(monkeypatch)
    monkeypatch.delenv("DISTILL_STORED_FILES", raising=False)
    with store_servers.s3_server() as server:
        yield server


@pytest.fixture
def bucket(endpoint: str) -> ObjectStore:
    return open_store(f"s3://{BUCKET}", config=store_servers.config(endpoint))


def call(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done.output


def stored(place: Path, bucket: ObjectStore, endpoint: str) -> Path:
    """The recipe of the world with all rows and images in a store."""
    for path in (*place.glob("*.jsonl"), *(place / "images").iterdir()):
        bucket.put(f"data/{path.relative_to(place)}", path)
    text = (place / "recipe.toml").read_text()
    for name in ("questions.jsonl", "test.jsonl", "images"):
        text = text.replace(f'"{name}"', f'"s3://{BUCKET}/data/{name}"')
    path = place / "stored.toml"
    path.write_text(f'{text}[engine]\nscratch = "scratch"\n{store_servers.recipe_section(endpoint)}')
    return path


@pytest.mark.timeout(600)
def test_students_of_rows_in_a_store_are_those_of_rows_in_a_folder(
    place: Path, bucket: ObjectStore, endpoint: str
) -> None:
    worlds.recipe(place, *STAGES, more=EVAL)
    recipe, run, other = stored(place, bucket, endpoint), place / "run", place / "other"
    shutil.copytree(run / "filter", other / "filter")
    checked = check(place / "recipe.toml", run)
    call("train", str(place / "recipe.toml"), "--run", str(run))
    call("eval", str(place / "recipe.toml"), "--run", str(run))
    for moved in ("images", "questions.jsonl", "test.jsonl"):
        (place / moved).rename(place / f"away-{moved}")
    found = check(recipe, other)
    assert found.pop("engine.scratch")[0] == "ok" and found == checked
    call("train", str(recipe), "--run", str(other))
    call("eval", str(recipe), "--run", str(other))
    for stage in ("align", "reason"):
        first, second = (read_jsonl(folder / "train" / stage / "metrics.jsonl") for folder in (run, other))
        assert [line["loss"] for line in first] == [line["loss"] for line in second]
    first, second = (read_jsonl(folder / "eval" / "predictions.jsonl") for folder in (run, other))
    replies = [(line["sample_id"], line["text"]) for line in first]
    assert len(replies) == 12 and replies == [(line["sample_id"], line["text"]) for line in second]


def check(recipe: Path, run: Path) -> dict[str, tuple[str, str]]:
    """State and message by key."""
    output = CliRunner().invoke(app, ["check", str(recipe), "--run", str(run), "--json"]).output
    results = json.loads(output)["results"]
    return {each["key"]: (each["state"], each["message"]) for each in results if each["key"] not in _WITH_PATHS}


def test_a_filter_with_test_questions_in_a_store_gives_the_dataset_of_those_in_a_folder(
    tmp_path: Path, bucket: ObjectStore, endpoint: str
) -> None:
    with stub_server.serve() as url:
        world = small_world(tmp_path / "world", url)
        world.recipe()
        rows = (world.folder / "rows.jsonl").read_bytes().splitlines(keepends=True)
        (world.folder / "test.jsonl").write_bytes(b"".join(rows[:5]))
        local = '[data.test]\nsource = "test.jsonl"\n[filter.contamination]\nsources = ["test"]\n'
        world.head = local
        world.generate()
        apply(world.recipe(), world.run)
        expected = dataset(world.run)
        put_data(world, bucket)
        bucket.put("data/test.jsonl", world.folder / "test.jsonl")
        world.head = local.replace("test.jsonl", f"s3://{BUCKET}/data/test.jsonl")
        world.head += f'[engine]\nscratch = "scratch"\n{store_servers.recipe_section(endpoint)}'
        for path in world.folder.glob("*.png"):
            path.unlink()
        world.run = world.folder / "stored"
        world.generate()
        apply(world.recipe(), world.run)
        assert dataset(world.run) == expected != {}
        card = world.run / "filter" / "dataset" / "README.md"
        assert "rows.jsonl" in card.read_text() and BUCKET not in card.read_text(), "its name is not for others"
        assert len(pq.read_table(world.run / "filter" / "dataset" / "train")) == 75, "15 of 90 traces are of the test"


def test_rows_of_a_store_are_split_and_their_images_stay_there(
    tmp_path: Path, bucket: ObjectStore, endpoint: str
) -> None:
    world = small_world(tmp_path / "world", "http://127.0.0.1:9")
    put_data(world, bucket)
    world.head = f'[engine]\nscratch = "scratch"\n{store_servers.recipe_section(endpoint)}'
    world.recipe()
    output = call("split", str(world.folder / "recipe.toml"), "--out", str(tmp_path / "parts"))
    assert f'images_root = "s3://{BUCKET}/data"' in output
    (world.folder / "parts.toml").write_text(
        f'[data.questions]\nsource = "{tmp_path}/parts/train.jsonl"\nimages_root = "s3://{BUCKET}/data"\n'
        f'[engine]\nscratch = "scratch"\n{store_servers.recipe_section(endpoint)}'
    )
    read = list(reader.read(load(world.folder / "parts.toml")))
    assert len(read) > 20 and all(isinstance(item, Sample) for item in read)
