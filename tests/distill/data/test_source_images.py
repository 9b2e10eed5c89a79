"""Pictures exchanged under a recipe are noticed, though no fingerprint of a stage digests them."""

from pathlib import Path

import orjson
import pytest
from PIL import Image

from distill.data.source_images import pictures_digest, pictures_of, require_same_pictures
from distill.errors import StaleError
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from teacher.store import question_plan


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    for shade, name in enumerate(("images", "others")):
        (tmp_path / name).mkdir()
        for number in range(12):
            Image.new("RGB", (8, 8), (shade, number, 7)).save(tmp_path / name / f"{number}.png")
    rows = [orjson.dumps({"question": f"What is in {n}?", "image": f"{n}.png"}) for n in range(12)]
    (tmp_path / "questions.jsonl").write_bytes(b"\n".join(rows))
    (tmp_path / "mine.toml").write_text(
        '[data.questions]\nsource = "questions.jsonl"\nimages_root = "images"\n'
        '[[teachers]]\nname = "t"\nmodel = "owner/name"\nbackend = "embedded"\n'
    )
    return load(tmp_path / "mine.toml")


def with_root(recipe: Recipe, root: str) -> Recipe:
    return load(recipe.path, {"data.questions.images_root": root})


def test_a_finished_stage_refuses_other_pictures_and_takes_the_same_ones_from_elsewhere(recipe: Recipe) -> None:
    before = pictures_of(recipe, ["questions"])
    require_same_pictures(recipe, ["questions"], before, "train/align")
    with pytest.raises(StaleError, match=r"train/align was made from other images of \[data.questions\].*others"):
        require_same_pictures(with_root(recipe, "others"), ["questions"], before, "train/align")
    (recipe.path.parent / "images").rename(recipe.path.parent / "moved")
    require_same_pictures(with_root(recipe, "moved"), ["questions"], before, "train/align")


def test_a_manifest_without_the_digest_and_pictures_that_are_away_are_taken_as_they_are(recipe: Recipe) -> None:
    before = pictures_of(recipe, ["questions"])
    require_same_pictures(with_root(recipe, "others"), ["questions"], {}, "train/align")
    (recipe.path.parent / "images" / "3.png").unlink()
    assert pictures_digest(recipe, "questions") == ""
    require_same_pictures(recipe, ["questions"], before, "train/align")


def test_another_folder_of_pictures_has_the_questions_planned_again(recipe: Recipe, tmp_path: Path) -> None:
    def planned(chosen: Recipe) -> bool:
        folder = tmp_path / "run" / "generate"
        fields = question_plan.result_settings(chosen, question_plan.check_teachers(chosen))
        now = question_plan.plan_inputs(chosen, folder, fields, None)
        if question_plan.is_current(folder, now):
            return False
        pending = question_plan.write_pending_plan(chosen, folder, limit=None)
        question_plan.install_plan(pending, folder, now)
        return True

    assert planned(recipe) and not planned(recipe)
    ids = {sample.id for sample in question_plan.read_plan(tmp_path / "run" / "generate").read()}
    assert planned(with_root(recipe, "others"))
    assert ids.isdisjoint(sample.id for sample in question_plan.read_plan(tmp_path / "run" / "generate").read())
