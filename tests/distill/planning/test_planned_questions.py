"""`distill plan --diff` says when `generate` reads the questions again although no key of the recipe differs."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.stub_server import serve
from students import tiny_models
from typer.testing import CliRunner
from worlds.generate_world import World, asked_of

from distill.cli import app
from distill.planning.redo_text import redo_text
from distill.recipe.loading import load
from distill.trace_records.human_labels import LabelJournal

FILTER = """
[filter]
signals = ["format"]
rules = [{ name = "wild", drop = "outcome = 'refusal'" }]
workers = 1
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve() as found:
        yield found


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    made = World(tmp_path / "work")
    made.folder.mkdir()
    made.head += FILTER
    made.add_rows(5)
    made.add_teacher(url)
    return made


def plan(world: World) -> str:
    return redo_text(load(world.run / "recipe.toml"), load(world.folder / "recipe.toml"), world.run)


def distill(*arguments: str) -> str:
    said = CliRunner().invoke(app, [*arguments])
    assert said.exit_code == 0, said.output
    return said.output


def begun(world: World, *options: str) -> None:
    world.recipe()
    for verb, more in (("generate", options), ("filter", ())):
        distill(verb, str(world.folder / "recipe.toml"), "--run", str(world.run), *more)


def test_a_run_that_moved_with_its_images_goes_on_by_the_commands_of_the_plan(
    world: World, tmp_path: Path, url: str
) -> None:
    begun(world)
    assert "every finished stage stays as it is" in plan(world)
    world.folder = world.folder.rename(tmp_path / "elsewhere")
    world.run, asked = world.folder / "run", asked_of(url)
    world.head = world.head.replace("refusal", "malformed")
    world.recipe()
    text = plan(world)
    assert "runs again  notes where the images are now; asks nothing" in text
    said = CliRunner().invoke(app, ["filter", str(world.folder / "recipe.toml"), "--run", str(world.run), "--fresh"])
    assert said.exit_code == 2 and "if they moved, run `distill generate` again, which notes where" in said.output
    commands = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("  distill ")]
    assert [command.split()[0] for command in commands] == ["generate", "filter"] and "--fresh" not in commands[0]
    assert all(distill(*shlex.split(command)) for command in commands)
    assert "every finished stage stays as it is" in plan(world)
    assert asked_of(url) == asked


def test_a_limit_of_the_last_command_is_named_while_it_leaves_questions_out(world: World) -> None:
    begun(world, "--limit", "2")
    assert "warning: generate was limited to 2 questions (--limit)" in plan(world)
    begun(world)
    assert "every finished stage stays as it is" in plan(world)


def test_labels_that_were_given_since_the_filter_are_named(world: World) -> None:
    world.head = world.head.replace('["format"]', '["format", "human"]')
    begun(world)
    assert "every finished stage stays" in plan(world)
    labels = LabelJournal(world.run)
    labels.add({"trace": world.ids()[0], "label": "wrong"})
    labels.close()
    assert "filter is outdated: labels were given or changed" in plan(world)
    begun(world)
    assert "every finished stage stays" in plan(world)


def test_images_that_were_written_again_or_deleted_are_named(world: World) -> None:
    begun(world)
    tiny_models.make_image(world.folder / "1.png", 77, size=16)
    assert "warning: images of the questions were written again or deleted" in plan(world)
    begun(world)
    assert "every finished stage stays as it is" in plan(world)
