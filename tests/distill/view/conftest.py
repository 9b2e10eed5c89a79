"""A filtered run that the tests of `distill view` look at."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.view_servers import Visitor, viewed
from worlds.run_fixtures import generate_folder, recipe, small_world

from filters.apply import apply


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filtered run."""
    folder = tmp_path_factory.mktemp("view")
    generate_folder(folder / "run", *small_world(folder / "pictures", questions=8))
    settings = recipe(folder)
    apply(settings, folder / "run")
    (folder / "run" / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    return folder / "run"


@pytest.fixture
def visitor(run: Path) -> Iterator[Visitor]:
    with viewed(run) as (visitor, _):
        yield visitor
    shutil.rmtree(run / "labels", ignore_errors=True)
