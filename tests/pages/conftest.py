"""A filtered run whose texts hold markup, for the pages of `distill view`."""

from dataclasses import replace
from pathlib import Path

import pytest
from browser import HOSTILE
from run_fixtures import generate_folder, recipe, small_world

from filters.apply import apply


@pytest.fixture
def run(tmp_path: Path) -> Path:
    samples, traces = small_world(tmp_path / "pictures", questions=8)
    hostile = [replace(trace, reasoning=HOSTILE + trace.reasoning) for trace in traces]
    asked = [replace(sample, question=sample.question + HOSTILE) for sample in samples]
    generate_folder(tmp_path / "run", asked, hostile)
    settings = recipe(tmp_path)
    apply(settings, tmp_path / "run")
    (tmp_path / "run" / "recipe.toml").write_text(settings.to_toml(), encoding="utf-8")
    return tmp_path / "run"
