"""Pictures exchanged under a recipe are noticed, though no fingerprint of a stage digests them."""

import os
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds.source_rows import note_read_images

from distill.artifacts.layout import COMPARED_IMAGES, IMAGES
from distill.data.images import image_files
from distill.data.source_images import compare_images, require_same_images
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


def test_a_finished_stage_refuses_other_images_and_takes_the_same_ones_from_elsewhere(
    recipe: Recipe, tmp_path: Path
) -> None:
    stage = note_read_images(tmp_path / "align", recipe)
    require_same_images(recipe, stage)
    with pytest.raises(
        StaleError, match=r"align was made from other images of \[data.questions\]: 12 of the 12 .*others"
    ):
        require_same_images(with_root(recipe, "others"), stage)
    (tmp_path / "images").rename(tmp_path / "moved")
    require_same_images(with_root(recipe, "moved"), stage)
    (tmp_path / "images").symlink_to("moved")
    require_same_images(recipe, stage)
    (tmp_path / "images").unlink()
    (tmp_path / "images").symlink_to("others")
    with pytest.raises(StaleError, match="other images"):
        require_same_images(recipe, stage)


def test_images_that_are_away_and_a_damaged_record_are_no_other_images(recipe: Recipe, tmp_path: Path) -> None:
    stage = note_read_images(tmp_path / "align", recipe)
    (tmp_path / "images" / "3.png").unlink()
    require_same_images(recipe, stage)
    assert compare_images(recipe, stage)["questions"].missing == 1
    (stage / IMAGES).write_bytes(b"PAR1")
    assert compare_images(recipe, stage) == {}


def test_only_files_of_another_size_or_time_are_read_again_and_only_once(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, read_bytes = [], image_files.read_bytes
    stage = note_read_images(tmp_path / "align", recipe)
    monkeypatch.setattr(image_files, "read_bytes", lambda ref: read.append(Path(ref.path).name) or read_bytes(ref))
    require_same_images(recipe, stage)
    assert len(read) == 12, "they came just before they were noted: another one may have taken their place since"
    require_same_images(recipe, stage)
    assert len(read) == 12
    os.utime(tmp_path / "images" / "5.png")
    assert compare_images(recipe, stage)["questions"].are_same
    require_same_images(recipe, stage)
    require_same_images(recipe, stage)
    assert read[12:] == ["5.png", "5.png"], "a look remembers nothing, a stage does"
    note_read_images(stage, recipe)
    assert not (stage / COMPARED_IMAGES).exists()


def test_images_that_a_file_of_several_holds_are_compared_one_by_one(recipe: Recipe, tmp_path: Path) -> None:
    images = [{"bytes": (tmp_path / "images" / f"{number}.png").read_bytes()} for number in range(12)]
    shared = tmp_path / "images" / "shared.parquet"
    pq.write_table(pa.table({"image": images}), shared)
    rows = [
        orjson.dumps({"question": f"{n}?", "image": {"path": "shared.parquet", "column": "image", "row": n}})
        for n in range(12)
    ]
    (tmp_path / "questions.jsonl").write_bytes(b"\n".join(rows))
    stage = note_read_images(tmp_path / "align", recipe)
    require_same_images(recipe, stage)
    images[10] = {"bytes": (tmp_path / "others" / "10.png").read_bytes()}
    pq.write_table(pa.table({"image": images}), shared)
    assert compare_images(recipe, stage)["questions"].changed == [str(shared)]


def test_a_source_whose_table_holds_its_images_needs_no_record(recipe: Recipe, tmp_path: Path) -> None:
    """The fingerprint of a stage covers the table."""
    images = [{"bytes": (tmp_path / "images" / f"{number}.png").read_bytes()} for number in range(12)]
    pq.write_table(pa.table({"image": images, "question": [f"{n}?" for n in range(12)]}), tmp_path / "all.parquet")
    inside = load(recipe.path, {"data.questions.source": "all.parquet"})
    assert not (note_read_images(tmp_path / "align", inside) / IMAGES).exists()


def test_another_folder_of_images_has_the_questions_planned_again(recipe: Recipe, tmp_path: Path) -> None:
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
    (tmp_path / "linked").symlink_to("images")
    assert planned(with_root(recipe, "linked")) and not planned(with_root(recipe, "images"))
    (tmp_path / "linked").unlink()
    (tmp_path / "linked").symlink_to("others")
    assert planned(with_root(recipe, "linked")), "the path is the same, and it leads to other images"


def test_a_look_at_some_images_is_spread_over_the_record(recipe: Recipe, tmp_path: Path) -> None:
    stage = note_read_images(tmp_path / "align", recipe)
    for number in range(6, 12):
        Image.new("RGB", (8, 8), (9, number, 7)).save(tmp_path / "images" / f"{number}.png")
    compared = compare_images(recipe, stage, looked=4)["questions"]
    assert compared.noted == 4 and len(compared.changed) == 2
    assert compare_images(recipe, stage, looked=12)["questions"].noted == 12
