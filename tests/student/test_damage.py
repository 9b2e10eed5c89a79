"""The student of a finished stage that was changed, shortened or deleted is noticed wherever it would be used."""

from pathlib import Path

import pytest
from worlds import student_worlds as worlds

from distill.artifacts.manifest import Manifest
from distill.commands.repair import repair_run
from distill.commands.stages import train_stage
from distill.errors import DataError
from student.evaluation import students
from student.export.convert import export
from student.train import train

ALIGN = worlds.stage("align", "questions", train='["projector"]', steps=2)
REASON = worlds.stage("reason", steps=2)


def damage(path: Path, fate: str) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if fate == "deleted":
        path.unlink()
    else:
        path.write_bytes(bytes(data if fate == "changed" else data[:-100]))


@pytest.mark.parametrize("fate", ["changed", "shortened", "deleted"])
def test_a_damaged_student_is_noticed_repaired_and_trained_again(fate: str, place: Path) -> None:
    recipe, run = worlds.recipe(place, ALIGN, REASON), place / "run"
    (run / "recipe.toml").write_text(recipe.to_toml())
    first = train(recipe, run)
    path = run / "train" / "align" / "model" / "model.safetensors"
    before = path.read_bytes()
    damage(path, fate)
    if fate != "changed":  # sizes are compared at every start, bytes where they are used
        with pytest.raises(
            DataError, match=r"model.safetensors: it (is missing|has).*(?s:.)*distill repair .* --apply"
        ):
            train(recipe, run)
        with pytest.raises(DataError, match="finished files were damaged"):
            students._student_of_stage(recipe, run, "align", "align")
    else:
        with pytest.raises(DataError, match="its content was changed after it was written"):
            students.require_loadable(recipe, students._student_of_stage(recipe, run, "align", "align"))
    with pytest.raises(DataError, match="finished files were damaged"):
        export(run, place / "out", stage="align", native=False)
    (run / "train" / "reason" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"model.safetensors: it.*(?s:.)*2 steps"):
        train(recipe, run, stage="reason")
    assert "the stage is trained again: 2 steps" in repair_run(run, apply=True)
    assert Manifest.read(run / "train" / "align") is None
    assert train(recipe, run).counts == first.counts and path.read_bytes() == before


def test_a_lost_record_of_training_costs_no_training(place: Path) -> None:
    recipe, run = worlds.recipe(place, ALIGN), place / "run"
    (run / "recipe.toml").write_text(recipe.to_toml())
    train(recipe, run)
    metrics, model = run / "train/align/metrics.jsonl", run / "train/align/model/model.safetensors"
    written = model.stat().st_mtime_ns
    metrics.write_bytes(b"nonsense\n" + metrics.read_bytes())
    (run / "train/align/parts.json").unlink()
    said = repair_run(run, apply=True)
    assert "metrics.jsonl: 1 damaged line" in said and "parts.json: it is missing; nothing is made from it" in said
    assert "nothing is damaged" in repair_run(run)
    assert train(recipe, run).counts["stages"] == 1 and model.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["parts.json", "diagnosis.json"])
def test_a_damaged_record_is_named_by_the_command_that_shows_it(name: str, place: Path) -> None:
    recipe, run = worlds.recipe(place, ALIGN, more="[eval]\nallow_overlap = true\n"), place / "run"
    train(recipe, run)
    (run / "train" / "align" / name).write_bytes(b'{"parts": [')
    with pytest.raises(DataError, match=rf"1 damaged file, such as train/align/{name}.*`distill repair"):
        train_stage(recipe, run)
