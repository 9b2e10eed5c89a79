"""Numbers in README.md and docs/results.md are those that were measured."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "documents.py"), run_name="documents")


def test_the_results_page_is_what_the_results_say(documents: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == documents["results_page"]()


def test_the_figures_of_the_readme_are_what_the_results_say(documents: dict[str, Any]) -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8") == documents["readme"]()


def test_every_study_has_three_seeds_and_at_least_600_questions_an_arm(documents: dict[str, Any]) -> None:
    results = documents["json"].loads(documents["STUDIES"].read_text(encoding="utf-8"))
    assert set(results["studies"]) == {"stages", "teachers", "filtering", "traces", "fit", "scaling"}
    for arm in results["arms"].values():
        assert arm["n"] >= 600
        assert len(arm["seeds"]) == 3


def test_the_page_of_the_studies_is_small_enough_to_be_sent(documents: dict[str, Any]) -> None:
    assert documents["PAGE"].stat().st_size <= 5_000_000
