"""Folders whose names other programs read as an address or as a home folder."""

from pathlib import Path

import pytest
from typer.testing import CliRunner
from worlds import run_fixtures as fixtures

from distill.artifacts.manifest import Manifest
from distill.cli import app
from distill.local_paths import given_path


@pytest.mark.parametrize(("given", "folder"), [("r:1", "r:1"), ("~odd name", "~odd name"), ("~/run", "home/run")])
def test_a_run_lies_where_its_name_says(
    given: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    fixtures.recipe(tmp_path)
    fixtures.generate_folder(tmp_path / folder, *fixtures.small_world(tmp_path / "pictures"))
    there = set(tmp_path.iterdir())
    said = CliRunner().invoke(app, ["filter", "recipe.toml", "--run", given])
    assert (said.exit_code, said.exception) == (0, None), said.output
    assert Manifest.read(tmp_path / folder / "filter") is not None
    assert set(tmp_path.iterdir()) == there


def test_other_paths_stay_as_they_are_given() -> None:
    for path in (Path("runs/a:b"), Path("/a:b"), Path("run"), Path("a~b")):
        assert given_path(path) == path
