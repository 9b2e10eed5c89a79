"""`distill plan --diff` compares what lies at unchanged paths with what each finished stage noted of it."""

from pathlib import Path

import pytest

from distill.artifacts.files import directory_sha256, file_sha256
from distill.artifacts.manifest import Manifest, flatten
from distill.planning.redo import compare_recipes
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe

RECIPE = """
[data.questions]
source = "questions.jsonl"
[data.test]
source = "test.jsonl"
[[teachers]]
name = "small"
model = "owner/small"
[filter]
signals = ["answer", "contamination", "sensitive"]
sensitive.words = "words.txt"
[student]
model = "student"
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[eval]
data = "test"
"""
ROW = '{"question": "How many?", "answer": "4"}\n'


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A recipe with a run whose stages noted what lies at its paths, apart from an evaluation."""
    for name, text in (("questions.jsonl", ROW), ("test.jsonl", ROW), ("words.txt", "bad\n"), ("mine.toml", RECIPE)):
        (tmp_path / name).write_text(text)
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "config.json").write_text("{}")
    note(tmp_path, "filter", extractors={"sensitive": {"words_sha256": file_sha256(tmp_path / "words.txt")}})
    note(tmp_path, "train/reason", student={"model": f"sha256:{directory_sha256(tmp_path / 'student')}"})
    return load(tmp_path / "mine.toml")


def note(folder: Path, stage: str, **fields: dict[str, object]) -> None:
    inputs = {"data.test.content": file_sha256(folder / "test.jsonl")}
    made = Manifest(stage=stage.partition("/")[0], fingerprint="", fields=flatten(fields), inputs=inputs)
    made.write(folder / "run" / stage)


def causes(recipe: Recipe) -> dict[str, list[str]]:
    return dict(compare_recipes(recipe, recipe, recipe.path.parent / "run").causes)


def test_an_edited_list_of_words_is_a_change(recipe: Recipe) -> None:
    assert causes(recipe) == {}
    (recipe.path.parent / "words.txt").write_text("worse\n")
    assert causes(recipe)["signals:sensitive"] == ["filter.sensitive.words"] and "train:reason" in causes(recipe)


def test_an_edited_test_set_is_a_change_of_the_filter_before_anything_is_evaluated(recipe: Recipe) -> None:
    (recipe.path.parent / "test.jsonl").write_text(ROW.replace("4", "5"))
    assert causes(recipe)["filter"] == ["data.test.source"]


def test_a_stage_that_ran_again_with_an_edited_source_is_not_stale_and_another_one_is(recipe: Recipe) -> None:
    folder = recipe.path.parent
    (folder / "test.jsonl").write_text(ROW.replace("4", "5"))
    note(folder, "eval", data={"test": {"content": file_sha256(folder / "test.jsonl")}})
    assert causes(recipe)["filter"] == ["data.test.source"] and causes(recipe)["eval"] == ["train"]
    note(folder, "filter")
    assert causes(recipe) == {}


def test_an_edited_checkpoint_at_the_same_path_is_a_change(recipe: Recipe) -> None:
    (recipe.path.parent / "student" / "config.json").write_text("{ }")
    assert causes(recipe)["train:reason"] == ["student.model"]
