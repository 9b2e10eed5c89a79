"""The page of an ablation shows what results.json holds."""

import copy
from pathlib import Path

import pytest
from pages.accessibility import problems
from pages.stylesheet import Element, parse
from worlds import report_worlds as worlds

from distill.ablation import report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Element:
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.write(path, worlds.results(), [])
    return parse(path.read_text())


def rows(root: Element, label: str) -> list[list[str]]:
    """The cells of the table with this label."""
    (region,) = [element for element in root.walk() if element.attributes.get("aria-label") == label]
    return [[cell.words() for cell in row.children] for row in region.walk() if row.tag == "tr"]


def test_every_arm_has_its_accuracy_effect_and_cost(whole: Element):
    head, reference, unfiltered, *_ = rows(whole, "Headline figures of every arm")
    assert head[:3] == ["arm", "accuracy", "effect"] and "training tokens" in head
    assert reference[1:3] == ["54.0 [51.0, 57.0]", "reference"]
    assert unfiltered[0].startswith("unfiltered") and "one sentence about unfiltered" in unfiltered[0]
    assert unfiltered[2] == "−4.0 [−6.5, −1.5] p = 0.001"


def test_seeds_of_arms_with_different_numbers_of_them_are_a_range(tmp_path: Path):
    results = copy.deepcopy(worlds.results())
    seeds = results["arms"]["unfiltered"]["seeds"]
    del seeds[next(iter(seeds))]
    report.write(tmp_path / "report.html", results, [])
    tiles = [tile for tile in parse((tmp_path / "report.html").read_text()).walk() if "tile" in tile.classes]
    assert {tile.children[1].words(): tile.children[0].words() for tile in tiles}["seeds an arm"] == "2 to 3"


def test_effects_are_sorted_and_every_seed_is_a_dot(whole: Element):
    (figure,) = [
        element
        for element in whole.walk()
        if element.tag == "figure" and element.words().startswith("Effects against distilled")
    ]
    labels = [element.words() for element in figure.walk() if "label" in element.classes]
    assert labels == ["unfiltered", "answers_only", "traces_1", "traces_4"]
    assert sum("seed" in element.classes for element in figure.walk()) == 4 * 3
    assert any("zero" in element.classes for element in figure.walk())


def test_claims_carry_their_verdict_in_words_and_their_figures(whole: Element):
    claims = next(element for element in whole.walk() if "claims" in element.classes)
    said = [item.words() for item in claims.children]
    assert [text.split(" Filtering")[0].split(" It")[0] for text in said] == [
        "✓ holds",
        "? undecided",
        "✗ does not hold",
    ]
    assert "+4.0 points [+1.5, +6.5], p = 0.001" in said[0] and "distilled against unfiltered" in said[0]
    tiles = {tile.children[1].words(): tile.children[0].words() for tile in whole.walk() if "tile" in tile.classes}
    assert tiles["claims hold"] == "1 of 3"


def test_a_study_shows_its_arms_only(whole: Element):
    table = rows(whole, "Figures of the study filtering")
    assert [row[0].split()[0] for row in table[1:]] == ["distilled", "unfiltered", "answers_only"]


def test_a_fit_is_drawn_with_its_points_and_listed_in_a_table(whole: Element):
    assert rows(whole, "Measured points of scaling & fit")[1] == ["traces_375", "375", "30.0 %", "[27.0, 33.0]"]
    (figure,) = [
        element
        for element in whole.walk()
        if element.tag == "figure" and element.words().startswith("Accuracy over traces")
    ]
    assert any("bars" in element.classes for element in figure.walk())
    assert any("series" in element.classes and element.tag == "polyline" for element in figure.walk())


def test_rankings_stand_side_by_side(whole: Element):
    assert rows(whole, "Rankings of scaling & fit")[1] == ["structured", "1", "2", "1.4", "41.0 %"]
    assert "Spearman’s rank correlation 0.5 [−1, 1]; Kendall’s 0.33" in whole.words()


def test_every_arm_says_what_it_changes_and_leads_to_its_own_pages(whole: Element):
    links = [element.attributes["href"] for element in whole.walk() if element.tag == "a"]
    assert "arms/unfiltered/seed-2/eval/report.html" in links
    assert "stages.reason.data = traces:random" in whole.words()
    assert "no teacher stores log-probabilities" in whole.words()


def test_a_fit_that_could_not_be_made_says_why(tmp_path: Path):
    results = worlds.results()
    empty = {
        "x_name": "traces",
        "points": [],
        "curve": [],
        "curve_ci95": [],
        "formula": None,
        "text": "Too few sizes.",
    }
    results["studies"]["scaling & fit"]["fit"] = empty
    results["studies"]["scaling & fit"]["ranks"] = {"signal": "nll", "rows": [], "spearman": None, "text": "Too few."}
    report.write(tmp_path / "report.html", results, [])
    text = (tmp_path / "report.html").read_text()
    assert "Too few sizes." in text and "Too few." in text and problems(text) == []


def test_cards_put_the_reference_first_and_compare_it_with_the_student_before():
    asked = worlds.samples([worlds.ImageRef(sha256="a", path="a")], 30)
    lines = worlds.predictions(asked, ("untouched", "unfiltered", "distilled"), words=3)
    named = {
        arm: [{**line, "arm": "student"} for line in lines if line["arm"] == arm]
        for arm in ("unfiltered", "untouched", "distilled")
    }
    found = report.cards(named, asked, 30, reference="distilled", arm_teachers={"distilled": ["reader"]})
    assert len(found) == 30
    assert [reply.arm for reply in found[0].replies] == ["distilled", "unfiltered", "untouched"]
    assert found[0].replies[0].teachers == ("reader",)
    lost = next(card for card in found if card.kind == "lost")
    verdicts = {reply.arm: reply.verdict for reply in lost.replies}
    assert verdicts["untouched"] == "correct" and verdicts["distilled"] != "correct"
