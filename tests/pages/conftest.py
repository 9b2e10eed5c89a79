"""A filtered run whose texts hold markup, for the pages of `distill view`."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pages.browser import HOSTILE
from worlds.run_fixtures import generate_folder, recipe, small_world

from filters.apply import apply


@pytest.fixture(scope="session")
def filtered_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, never written to."""
    folder = tmp_path_factory.mktemp("pages")
    samples, traces = small_world(folder / "pictures", questions=8)
    hostile = [replace(trace, reasoning=HOSTILE + trace.reasoning) for trace in traces]
    asked = [replace(sample, question=sample.question + HOSTILE) for sample in samples]
    generate_folder(folder / "run", asked, hostile)
    settings = recipe(folder)
    apply(settings, folder / "run")
    (folder / "run" / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    return folder / "run"


@pytest.fixture
def run(filtered_run: Path, tmp_path: Path) -> Path:
    """A copy of the run for one test."""
    return Path(shutil.copytree(filtered_run, tmp_path / "run"))
