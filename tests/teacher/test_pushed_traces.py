"""`distill push`: a run that begins in a folder goes on in a store, and no finished trace is asked again."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from servers import stub_server
from typer.testing import CliRunner
from worlds.generate_world import World, asked_of
from worlds.store_worlds import lines_of, small_world

from distill.artifacts.layout import ENGINES
from distill.cli import app
from distill.errors import StaleError
from distill.object_store.open_store import open_store
from distill.units.stored_run import pull_generate
from teacher.pushed_traces import push_traces
from teacher.store_run import generate_in_store


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.03) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    made = small_world(tmp_path, url)
    made.head = '[engine]\nscratch = "scratch"\nunit_rows = 8\nseal_s = 0.05\n[generate]\npatience_s = 2.0'
    return made


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket/run"


def test_a_run_that_goes_on_in_a_store_asks_only_for_what_it_lacks(
    world: World, address: str, url: str, tmp_path: Path
) -> None:
    world.generate(limit=20)
    asked = asked_of(url)
    pushed = push_traces(world.recipe(), world.run, address, tmp_path / "scratch-a")
    assert sum(pushed.values()) == asked > 0
    assert asked_of(url) == asked, "a push asks nothing"
    assert push_traces(world.recipe(), world.run, address, tmp_path / "scratch-b") == pushed
    generate_in_store(world.recipe(), address, tmp_path / "scratch-a")

    elsewhere = asked_of(url)
    world.generate()
    assert asked_of(url) - elsewhere == elsewhere - asked > 0, "the rest, as in the folder"
    pulled = tmp_path / "pulled"
    pull_generate(open_store(address), pulled)
    assert lines_of(world, pulled) == lines_of(world, world.run)
    for teacher in world.recipe().teachers:
        known = orjson.loads((pulled / "generate" / teacher.name / ENGINES).read_bytes())
        assert known.keys() == orjson.loads((world.run / "generate" / teacher.name / ENGINES).read_bytes()).keys()
    with pytest.raises(StaleError, match="its traces are finished"):
        push_traces(world.recipe(), world.run, address, tmp_path / "scratch-a")


def test_traces_of_other_settings_are_not_pushed(world: World, address: str, tmp_path: Path) -> None:
    world.generate(limit=20)
    world.sampling["temperature"] = 0.123
    assert push_traces(world.recipe(), world.run, address, tmp_path / "scratch-a") == {"stub": 0}


def test_errors_of_the_folder_are_asked_again(world: World, address: str, tmp_path: Path) -> None:
    world.rows = [*world.rows[:4], world.rows[4] | {"question": "fault=500x3"}]
    world.teachers[0]["max_retries"] = 0
    assert world.generate().counts["errors_to_ask_again"] == 3
    assert push_traces(world.recipe(), world.run, address, tmp_path / "scratch-a") == {"stub": 12}
    assert generate_in_store(world.recipe(), address, tmp_path / "scratch-a").counts["complete"] == 15


def test_the_command_says_how_many_traces_it_keeps(world: World, address: str, tmp_path: Path) -> None:
    world.generate(limit=20)
    done = CliRunner().invoke(app, ["push", str(world.run), address, "--recipe", str(world.recipe().path)])
    assert done.exit_code == 0, done.output
    assert "traces are not asked again" in done.output and f"--run {address}" in done.output
    done = CliRunner().invoke(app, ["push", str(tmp_path / "no-run"), address, "--recipe", str(world.recipe().path)])
    assert done.exit_code == 2 and "no-run: no traces" in done.output.replace("\n", "")
    assert not (tmp_path / "no-run").exists()
