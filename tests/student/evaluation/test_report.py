"""The page of an evaluation shows what metrics.json holds, and what an older one does not hold is left out."""

import json
from pathlib import Path
from typing import Any

import pytest
from pages.stylesheet import Element, parse
from worlds import report_worlds as worlds
from worlds.student_worlds import recipe

from distill.recipe.recipe import Recipe
from student.evaluation import report

TEACHERS = """
[[teachers]]
name = "reader"
model = "m"
domains = ["documents"]
[[teachers]]
name = "analyst"
model = "m"
"""
OLD = ("n", "accuracy", "ci95", "domains")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[list, list[dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("pictures")
    asked = worlds.samples([worlds.drawing(folder, number) for number in range(4)], 90)
    return asked, worlds.predictions(asked, words=20), folder


def page(
    folder: Path, lines: tuple, metrics: dict[str, Any] | None = None, settings: Recipe | None = None
) -> Element:
    asked, said, _ = lines
    found = settings or recipe(folder, more="[eval]\ngallery = 6\n")
    # As evaluate does: tuples become lists on their way through the file.
    known = json.loads(json.dumps(metrics or worlds.metrics(said)))
    (folder / "run/eval").mkdir(parents=True, exist_ok=True)
    report.write_report(found, folder / "run/eval/report.html", known, said, asked)
    return parse((folder / "run/eval/report.html").read_text())


def rows(root: Element, label: str) -> list[list[str]]:
    regions = [element for element in root.walk() if element.attributes.get("aria-label") == label]
    return [[cell.words() for cell in row.children] for region in regions for row in region.walk() if row.tag == "tr"]


def test_the_headline_names_quality_and_cost_of_every_arm(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines)
    head, *arms = rows(root, "Headline figures of every arm")
    assert head == [
        "arm",
        "accuracy",
        "hallucination",
        "consistency",
        "rationale, tokens",
        "tokens an answer",
        "seconds an answer",
        "training tokens",
        "training seconds",
    ]
    assert [row[0] for row in arms] == [f"{arm} reason" for arm in worlds.ARMS]
    metrics = worlds.metrics(lines[1])["arms"]["distilled"]
    assert arms[-1][1].startswith(f"{100 * metrics['accuracy']:.1f} [")
    assert arms[-1][2].startswith(f"{100 * metrics['hallucination_rate']:.1f} [")
    assert arms[-1][4:] == ["20.0", "24.0", "0.2", "1,370,118", "162"]


def test_the_page_says_how_replies_were_drawn(tmp_path: Path, lines: tuple):
    assert "held-out questions once, greedily." in page(tmp_path, lines).words()
    drawn = recipe(tmp_path, more="[eval]\ngallery = 6\ntemperature = 0.7\n")
    assert "held-out questions once, at temperature 0.7." in page(tmp_path, lines, settings=drawn).words()


def test_accuracy_is_shaded_by_domain_and_by_difficulty(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines)
    for label, columns in (("domain", list(worlds.DOMAINS)), ("difficulty", ["easy", "medium", "hard"])):
        head, *body = rows(root, f"Accuracy by arm and {label}")
        assert head == ["arm", *columns] and body[-1] == ["questions", "30", "30", "30"]
    part = worlds.metrics(lines[1])["arms"]["distilled"]["domains"]["charts"]
    assert rows(root, "Accuracy by arm and domain")[4][1].startswith(f"{100 * part['accuracy']:.1f} [")


def test_learning_curves_come_from_the_log_of_every_arms_stage(tmp_path: Path, lines: tuple):
    folder = tmp_path / "run/train/reason"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 4.0}\n{"step": 9, "loss": 1.0}\n')
    (folder / "validation.jsonl").write_text('{"step": 5, "loss": null, "accuracy": 0.5, "ci95": [0.4, 0.6]}\n')
    root = page(tmp_path, lines)
    # `loss` of metrics.jsonl is a mean of the losses of steps, in which tokens have weights.
    assert "Mean over the steps since the last line of the log, weighted as the loss" in root.words()
    assert rows(root, "The numbers of Training loss")[1:] == [["1", *["4"] * 4], ["9", *["1"] * 4]]
    assert rows(root, "The numbers of Accuracy while training")[1] == ["5", *["50.0 %"] * 4]
    assert rows(root, "The numbers of Loss of rows kept out") == []


def test_the_running_accuracy_ends_at_the_accuracy(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines)
    last = rows(root, "The numbers of Running accuracy")[-1]
    arms = worlds.metrics(lines[1])["arms"]
    assert last == ["90", *(f"{100 * arms[arm]['accuracy']:.1f} %" for arm in worlds.ARMS)]


def test_every_pair_of_arms_has_its_effect(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines)
    found = rows(root, "Differences between arms")
    delta = worlds.metrics(lines[1])["deltas"]["distilled-instruct"]
    (row,) = [row for row in found if row[0] == "distilled − instruct"]
    assert row[1].startswith(f"{100 * delta['delta']:+.1f}".replace("-", "−")) and len(found) == 7
    assert row[3:5] == [str(delta["only_first"]), str(delta["only_second"])]


def test_a_file_of_an_older_version_has_a_page(tmp_path: Path, lines: tuple):
    arms = worlds.metrics(lines[1])["arms"]
    root = page(tmp_path, lines, {"arms": {arm: {key: arms[arm][key] for key in OLD} for arm in arms}})
    assert rows(root, "Headline figures of every arm")[0] == ["arm", "accuracy"]
    assert "None" not in root.words()


def test_the_tiles_of_the_last_arm_are_its_own_also_where_another_name_begins_like_it() -> None:
    arms = {"base": {"accuracy": 0.2}, "sft-long": {"accuracy": 0.3}, "sft": {"accuracy": 0.5}}
    deltas = {"sft-long-base": {"delta": 0.1}, "sft-base": {"delta": 0.3}, "sft-sft-long": {"delta": 0.2}}
    tiles = report._metric_tiles(arms, deltas)
    assert tiles[3:] == [("points over base", "+30.0"), ("points over sft-long", "+20.0")]


def test_one_arm_alone_has_a_page(tmp_path: Path, lines: tuple):
    asked, said, folder = lines
    alone = [line for line in said if line["arm"] == "distilled"]
    root = page(tmp_path, (asked, alone, folder))
    names = [element.attributes["name"] for element in root.walk() if "name" in element.attributes]
    assert "of" not in names and "arm" not in names and "verdict" in names


def test_teachers_of_a_domain_can_be_filtered_by(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines, settings=recipe(tmp_path, more=f"{TEACHERS}[eval]\ngallery = 6\n"))
    (select,) = [element for element in root.walk() if element.attributes.get("name") == "teacher"]
    options = [option.words() for option in select.children]
    assert set(options[1:]) >= {"analyst", "reader"}
    cards = [element for element in root.walk() if "entry" in element.classes]
    places = {str(place): name for place, name in enumerate(options[1:])}
    for card in cards:
        taught = {places[place] for place in card.attributes["data-teachers"].split()}
        assert ("reader" in taught) == ("documents" in card.words()) and "analyst" in taught


def test_a_gallery_of_none_has_neither_script_nor_filters(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines, settings=recipe(tmp_path, more="[eval]\ngallery = 0\n"))
    assert not [element for element in root.walk() if element.tag in ("script", "form", "article")]


def test_causes_of_wrong_replies_are_counted_by_arm_and_the_limit_is_a_sentence(tmp_path: Path, lines: tuple):
    root = page(tmp_path, lines)
    head, *arms = rows(root, "Causes of replies that are not correct by arm")
    assert head == ["arm", "no rationale", "perception", "arithmetic"]
    known = worlds.metrics(lines[1])["arms"]
    for name, *cells in arms:
        for cause, cell in zip(("no_rationale", "perception", "arithmetic"), cells, strict=True):
            part = known[name]["error_causes"].get(cause)
            assert (cell == "") if part is None else cell.startswith(f"{part['n']} {100 * part['share']:.1f} [")
    sentences = [element.words() for element in root.walk() if element.tag == "p"]
    assert any(known["distilled"]["limited_by"] in sentence and "distilled" in sentence for sentence in sentences)


def test_an_evaluation_without_causes_has_no_such_table(tmp_path: Path, lines: tuple):
    asked, said, folder = lines
    old = [{key: value for key, value in line.items() if key != "error_cause"} for line in said]
    assert rows(page(tmp_path, (asked, old, folder)), "Causes of replies that are not correct by arm") == []
