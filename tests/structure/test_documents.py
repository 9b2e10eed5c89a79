"""The generated parts of the documents are up to date: measured figures, and the layers of the code."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from distill.ablation.power import state_power
from distill.recipe.loading import load
from distill.recipe.reference import reference

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "project" / "documents.py"), run_name="documents")


def test_the_results_page_is_what_the_results_say(documents: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "results.md").read_text(encoding="utf-8") == documents["results_page"]()


def test_the_figures_of_the_readme_are_what_the_results_say(documents: dict[str, Any]) -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8") == documents["readme"]()


def test_the_result_of_the_pocket_world_among_the_recipes_is_what_its_metrics_say(documents: dict[str, Any]) -> None:
    assert (ROOT / "recipes" / "README.md").read_text(encoding="utf-8") == documents["recipes"]()


def test_the_layers_of_the_architecture_page_are_the_contracts(documents: dict[str, Any]) -> None:
    assert (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8") == documents["architecture"]()


def test_every_study_has_two_seeds_or_more_and_at_least_600_questions_an_arm(documents: dict[str, Any]) -> None:
    results = documents["json"].loads(documents["STUDIES"].read_text(encoding="utf-8"))
    assert set(results["studies"]) == {"stages", "teachers", "filtering", "traces", "fit", "scaling"}
    for arm in results["arms"].values():
        assert arm["n"] >= 600
        assert len(arm["seeds"]) >= 2


def test_results_of_fewer_seeds_than_planned_are_shown_as_partial(documents: dict[str, Any]) -> None:
    results = documents["json"].loads(documents["STUDIES"].read_text(encoding="utf-8"))
    study = results["studies"]["filtering"]
    for name in study["arms"]:
        results["arms"][name]["seeds"] = {number: results["arms"][name]["seeds"][number] for number in ("0", "1")}
    assert "Partial" not in documents["_study"]("filtering", study, results, 2)
    del results["arms"]["random"]["seeds"]["1"]
    study["claims"][1]["effect"]["by_seed"] = {"0": study["claims"][1]["effect"]["by_seed"]["0"]}
    assert "Seeds done so far: `random` 0." in documents["_study"]("filtering", study, results, 2)
    assert documents["_claims"](results, 2).count("(partial: 1 of 2 seeds)") == 1
    most = max(len(arm["seeds"]) for arm in results["arms"].values())
    assert documents["_seeds"](results, 6) == f"1 to {most} of 6 planned seeds"


def test_corrected_p_values_and_the_statement_of_power_are_on_the_page(documents: dict[str, Any], tmp_path) -> None:
    results = documents["json"].loads(documents["STUDIES"].read_text(encoding="utf-8"))
    for study in results["studies"].values():
        for claim in study["claims"]:
            claim["p_adjusted"] = 0.0421
    statement = state_power(load("tiny-studies"), tmp_path, ["distilled", "random"], [0, 1])
    results["power"] = [statement | {"before": [0, 1]}]
    page = documents["_claims"](results, 3)
    assert "p after Holm" in page and "| 0.042 |" in page
    assert "- all questions: 3,600 questions, half width" in page


def test_the_page_of_the_studies_is_small_enough_to_be_sent(documents: dict[str, Any]) -> None:
    assert documents["PAGE"].stat().st_size <= 5_000_000


def test_the_citation_names_the_version_and_licence_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["title"], citation["version"], citation["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )


def test_the_reference_of_recipe_keys_is_that_of_the_models() -> None:
    page = (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8")
    assert page == f"{reference()}\n", "run: distill recipes reference > docs/recipe.md"


def test_the_documents_say_image_and_not_picture() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "recipes").glob("*.md")]
    texts = {
        page.name: page.read_text(encoding="utf-8") for page in pages if page.name not in ("log.md", "results.md")
    }
    assert [name for name, text in texts.items() if re.search(r"\bpictures?\b", text, re.IGNORECASE)] == []
