"""`distill plan --diff` compares what lies at unchanged paths with what each finished stage noted of it."""

from pathlib import Path

import pytest
from PIL import Image
from worlds.source_rows import note_read_images

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


def with_own_images(recipe: Recipe) -> Recipe:
    """Two stages that learn from a source of images and code of its own, and an evaluation of another one."""
    folder = recipe.path.parent
    for name in ("captions", "seen"):
        for number in range(3):
            Image.new("RGB", (8, 8), (number, len(name), 7)).save(folder / f"{name}{number}.png")
        rows = [f'{{"image": "{name}{number}.png", "question": "Which?", "answer": "4"}}\n' for number in range(3)]
        (folder / f"{name}.jsonl").write_text("".join(rows))
    (folder / "mine.py").write_text(
        "from distill.data import formats\n\n\ndef rows(row, columns):\n    return [row]\n"
    )
    recipe.path.write_text(
        RECIPE.replace("[[teachers]]", SOURCES, 1).replace('"test"\n', '"seen"\n').replace("[eval]", STAGES)
    )
    return load(recipe.path)


SOURCES = """[data.captions]
source = "captions.jsonl"
format = "mine.py:rows"
answer_type = "mine.py:own"
[data.seen]
source = "seen.jsonl"
[[teachers]]"""
STAGES = """[[stages]]
name = "first"
data = "captions"
train = ["projector"]
start = "base"
[[stages]]
name = "second"
data = "captions"
train = ["projector"]
start = "base"
[eval]"""


def test_images_replaced_in_place_are_a_change_of_the_stages_that_saw_the_former_ones(recipe: Recipe) -> None:
    now, run = with_own_images(recipe), recipe.path.parent / "run"
    now = load(now.path, {"data.captions.format": "plain", "data.captions.answer_type": "number"})
    for stage, name in (("train/first", "captions"), ("train/second", "captions"), ("eval", "seen")):
        Manifest(stage=stage[:5], fingerprint="", fields={}).write(run / stage)
        note_read_images(run / stage, now, name)
    assert causes(now) == {}
    Image.new("RGB", (8, 8), (9, 9, 9)).save(recipe.path.parent / "captions2.png")
    assert causes(now) == {
        "train:first": ["data.captions.images_root"],
        "train:second": ["data.captions.images_root"],
        "eval": ["train"],
    }
    note_read_images(run / "train/second", now, "captions")
    assert "train:second" not in causes(now)
    (recipe.path.parent / "seen0.png").write_bytes((recipe.path.parent / "captions2.png").read_bytes())
    assert causes(now)["eval"] == ["data.seen.images_root", "train"]


@pytest.mark.parametrize("key", ["format", "answer_type"])
def test_edited_code_of_a_source_is_a_change_of_the_stages_that_read_it_with_the_former_code(
    recipe: Recipe, key: str
) -> None:
    now, folder = with_own_images(recipe), recipe.path.parent
    code = folder / "mine.py"
    digest = file_sha256(code)
    noted = {"format": f"sha256:{digest}", "answer_type": f"own@{digest[:16]}"}  # as reader.source_fields does
    for stage in ("train/first", "train/second"):
        note(folder, stage, data={"captions": noted})
    assert causes(now) == {}
    code.write_text("# edited\n")
    edited = {f"data.captions.{name}" for name in noted}
    assert {*causes(now)["train:first"]} == {*causes(now)["train:second"]} == edited
    digest = file_sha256(code)
    note(
        folder, "train/second", data={"captions": {"format": f"sha256:{digest}", "answer_type": f"own@{digest[:16]}"}}
    )
    assert f"data.captions.{key}" in causes(now)["train:first"] and "train:second" not in causes(now)
