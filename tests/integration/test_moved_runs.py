"""A run of an earlier version that was moved: what was made from its traces stays finished, if it can be told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import stub_server
import tiny_models
from generate_world import World, asked_of
from store_worlds import small_world

from distill.artifacts.files import describe
from distill.artifacts.layout import PLAN_STATE, SAMPLES
from distill.artifacts.manifest import MANIFEST, Manifest
from filters.apply import apply


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.0) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    (tmp_path / "here").mkdir()
    world = small_world(tmp_path / "here", url)
    world.generate()
    forget_content(world.run / "generate")
    apply(world.recipe(), world.run)
    return world


def forget_content(folder: Path) -> None:
    """Leave a finished generate stage as a version did that noted no content of the samples."""
    table = pq.read_table(folder / SAMPLES).replace_schema_metadata(None)
    pq.write_table(table, folder / SAMPLES)
    written = describe(folder / SAMPLES)
    manifest = Manifest.read(folder)
    state = orjson.loads((folder / PLAN_STATE).read_bytes())
    assert manifest is not None
    inputs = {name: value for name, value in manifest.inputs.items() if name != SAMPLES}
    samples = replace(manifest.outputs[SAMPLES], sha256=written.sha256, bytes=written.bytes)
    replace(manifest, inputs=inputs, outputs={**manifest.outputs, SAMPLES: samples}).write(folder)
    del state["known_as"]
    state["files"][SAMPLES] = written.sha256
    (folder / PLAN_STATE).write_bytes(orjson.dumps(state))


def moved(world: World, name: str) -> World:
    """The world in another folder; the old one is gone."""
    folder = world.folder.with_name(name)
    world.folder.rename(folder)
    there = World(folder)
    there.rows, there.teachers, there.head = world.rows, world.teachers, world.head
    return there


def filtered(world: World) -> bytes:
    """The manifest of the filter stage after `generate` and `filter`."""
    world.generate()
    apply(world.recipe(), world.run)
    return (world.run / "filter" / MANIFEST).read_bytes()


def test_a_moved_run_of_an_earlier_version_is_not_filtered_again_however_often_it_moves(
    world: World, url: str
) -> None:
    before, asked = (world.run / "filter" / MANIFEST).read_bytes(), asked_of(url)
    there = moved(world, "there")
    assert filtered(there) == before
    state = orjson.loads((there.run / "generate" / PLAN_STATE).read_bytes())
    assert state["made_from"]["root"] == str(there.folder), "it was planned anew"
    assert filtered(moved(there, "elsewhere")) == before
    assert asked_of(url) == asked


@pytest.mark.parametrize("change", ["image", "gold answer", "plan that is gone"])
def test_a_moved_run_of_an_earlier_version_is_filtered_again_where_it_is_not_known_to_be_the_same(
    world: World, change: str
) -> None:
    before = (world.run / "filter" / MANIFEST).read_bytes()
    there = moved(world, "there")
    if change == "image":
        tiny_models.picture(there.folder / "0.png", 99, size=16)
    elif change == "gold answer":
        there.rows[0]["answer"] = "8"
    else:
        (there.run / "generate" / PLAN_STATE).unlink()
    assert filtered(there) != before
