"""A change of a recipe that changes no student trains nothing again, also in a run of an earlier version."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from worlds import student_worlds as worlds

from distill.artifacts.manifest import Manifest, fingerprint
from distill.errors import StaleError
from distill.planning.outdated import outdated
from distill.planning.redo_text import redo_text
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import Progress
from student.evaluate import evaluate
from student.train import stage_fields, train
from student.training.noted_fields import decisive

ALIGN = worlds.stage("align", "questions", train='["projector"]', steps=2, more="epochs = 2.0\n")
REASON = worlds.stage("reason", steps=2, more='[stages.validation]\ndata = "test"\nhold_out = 4\n')
SAME_WORK = {
    "stages.align.epochs": "3.0",
    "stages.reason.epochs": "7.5",
    "data.questions.columns.domain": '"kind"',
    "data.questions.columns.difficulty": '"kind"',
    "data.questions.domain": '"squares"',
    "data.questions.max_bad_share": "0.5",
}


@pytest.fixture(scope="module")
def trained(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(world, tmp_path_factory.mktemp("noted") / "w"))
    recipe = worlds.recipe(folder, ALIGN, REASON)
    train(recipe, folder / "run")
    (folder / "run" / "recipe.toml").write_text(recipe.to_toml())
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "w"))


def written(place: Path, stage: str) -> int:
    return (place / "run" / "train" / stage / "model" / "model.safetensors").stat().st_mtime_ns


def then(plan: str) -> dict[str, str]:
    """What a plan says becomes of each stage of training."""
    rows = [line.removeprefix("train ").split("  ") for line in plan.splitlines() if line.startswith("train ")]
    return {cells[0]: cells[2] for cells in ([cell.strip() for cell in row if cell.strip()] for row in rows)}


def renamed(place: Path) -> Recipe:
    """The recipe with other names for both stages."""
    text = (place / "recipe.toml").read_text()
    for before, now in (("align", "first"), ("reason", "second")):
        text = text.replace(f'"{before}"', f'"{now}"')
    (place / "renamed.toml").write_text(text)
    return load(place / "renamed.toml")


@pytest.mark.parametrize("key", [*SAME_WORK, ""])
def test_a_key_that_decides_nothing_trains_nothing_again_and_the_plan_says_so(trained: Path, key: str) -> None:
    changed = {key: SAME_WORK[key]} if key else SAME_WORK
    before, now = load(trained / "recipe.toml"), load(trained / "recipe.toml", changed)
    times = [written(trained, name) for name in ("align", "reason")]
    manifests = [Manifest.read(trained / "run" / "train" / name) for name in ("align", "reason")]
    assert train(now, trained / "run").counts["stages"] == 2
    assert [written(trained, name) for name in ("align", "reason")] == times
    assert [Manifest.read(trained / "run" / "train" / name) for name in ("align", "reason")] == manifests
    text = redo_text(before, now, trained / "run")
    # The teachers are asked the same questions, so traces are sorted by domain, and the dataset may be another one.
    of_reason = "stays" if key.startswith("stages") else "may run again"
    assert then(text) == {"align": "stays", "reason": of_reason} and "distill train" not in text
    assert not any(stage.startswith("train") for stage in outdated(trained / "run", now))


def test_a_key_that_decides_again_is_refused_and_names_what_differs(trained: Path) -> None:
    for changed in ({"stages.align.max_steps": "3"}, {"data.questions.columns.answer_type": '"kind"'}):
        now = load(trained / "recipe.toml", SAME_WORK | changed)
        with pytest.raises(StaleError, match=next(iter(changed)).rpartition(".")[2]):
            train(now, trained / "run")
        text = redo_text(load(trained / "recipe.toml"), now, trained / "run")
        assert "distill train" in text


def test_epochs_decide_where_nothing_overrides_them() -> None:
    fields = {"stage.epochs": 2.0, "stage.max_steps": None, "stage.batch_size": 8, "stage.batch_tokens": 100}
    assert "stage.epochs" in decisive(fields) and "stage.batch_size" not in decisive(fields)
    assert "stage.epochs" not in decisive(fields | {"stage.max_tokens": 5})
    assert "stage.max_steps" not in decisive(fields | {"stage.max_steps": 3, "stage.max_tokens": 5})


def test_a_stage_that_starts_from_another_now_is_another_stage(trained: Path) -> None:
    now = load(trained / "recipe.toml", {"stages.reason.start": '"base"'})
    with pytest.raises(StaleError, match="start_fingerprint"):
        train(now, trained / "run")


def test_fresh_notes_the_settings_of_the_recipe(place: Path) -> None:
    made = train(load(place / "recipe.toml", SAME_WORK), place / "run", stage="reason", fresh=True)
    assert made.fields["stage.epochs"] == 7.5
    assert Manifest.read(place / "run/train/align").fields["stage.epochs"] == 2.0


def test_a_stage_that_was_stopped_goes_on_with_other_keys_that_decide_nothing(place: Path) -> None:
    shutil.rmtree(place / "run" / "train")
    recipe = worlds.recipe(place, worlds.stage("align", "questions", train='["projector"]', steps=4, save=2))

    def kill(progress: Progress) -> None:
        if progress.stage == "train align" and progress.done == 3:
            raise OSError

    with pytest.raises(OSError):
        train(recipe, place / "run", on_progress=kill)
    changed = load(recipe.path, {"stages.align.epochs": "9.0", "data.questions.domain": '"squares"'})
    assert train(changed, place / "run", stage="align").fields["stage.epochs"] == 1.0


def test_renamed_stages_keep_their_students_under_their_new_names(place: Path) -> None:
    now, times = renamed(place), [written(place, name) for name in ("align", "reason")]
    text = redo_text(load(place / "recipe.toml"), now, place / "run")
    assert then(text) == {"first": "stays", "second": "stays"}
    assert "--fresh" not in text and f"distill train {now.path} --run {place / 'run'}" in text
    said: list[Any] = []
    assert train(now, place / "run", on_progress=said.append).counts["stages"] == 2
    assert [written(place, name) for name in ("first", "second")] == times
    assert "stage 'align' has the same settings and is renamed" in [report.facts.get("now") for report in said]
    assert sorted(path.name for path in (place / "run/train").glob("*/")) == ["first", "second"]
    assert [Manifest.read(place / "run/train" / name).stage for name in ("first", "second")] == [
        "train first",
        "train second",
    ]
    train(load(place / "recipe.toml"), place / "run")
    assert written(place, "align") == times[0], "the old names come back, too"


def test_a_stage_that_is_renamed_and_changed_is_trained(place: Path) -> None:
    recipe = renamed(place)
    now = load(recipe.path, {"stages.second.learning_rate": "1e-4"})
    before = load(place / "recipe.toml")
    assert then(redo_text(before, now, place / "run")) == {"first": "stays", "second": "runs"}
    train(now, place / "run")
    assert Manifest.read(place / "run/train/second").fields["stage.learning_rate"] == 1e-4
    assert Manifest.read(place / "run/train/reason") is not None, "the student of the earlier recipe stays"


def test_a_second_stage_of_the_same_settings_takes_no_folder_of_a_stage_that_the_recipe_has(place: Path) -> None:
    text = (place / "recipe.toml").read_text() + REASON.replace('"reason"', '"twin"') + 'start = "align"\n'
    (place / "recipe.toml").write_text(text.replace('start = "align"\n', ""))
    assert train(load(place / "recipe.toml"), place / "run").counts["stages"] == 3
    assert {path.name for path in (place / "run/train").glob("*/")} == {"align", "reason", "twin"}


def test_the_replies_of_a_renamed_stage_stay(place: Path) -> None:
    arms = {"eval.arms": '{mine = "reason"}', "eval.max_new_tokens": "4"}
    evaluate(load(place / "recipe.toml", arms), place / "run")
    journal = (place / "run/eval/replies.jsonl").read_bytes()
    now = load(renamed(place).path, arms | {"eval.arms": '{mine = "second"}'})
    text = redo_text(load(place / "recipe.toml", arms), now, place / "run")
    assert "keeps" in text and "distill eval" in text and "--fresh" not in text
    train(now, place / "run")
    evaluate(now, place / "run")
    assert (place / "run/eval/replies.jsonl").read_bytes() == journal
    assert orjson.loads((place / "run/eval/metrics.json").read_bytes())["arms"]["mine"]["stage"] == "second"


def test_the_fields_of_a_new_stage_are_those_of_earlier_versions(place: Path) -> None:
    """A fingerprint of a run without any such change is what it was before fields were compared in part."""
    shutil.rmtree(place / "run" / "train")
    fields = stage_fields(load(place / "recipe.toml"), place / "run")
    assert fields["align"]["stage.epochs"] == 2.0 and "data.questions.columns.domain" in fields["align"]
    assert fields["reason"]["start"] == "align"
    assert fields["reason"]["start_fingerprint"] == fingerprint(fields["align"])


def test_a_damaged_record_of_an_earlier_stage_stops_no_renamed_one(place: Path) -> None:
    manifest = Manifest.read(place / "run/train/align")
    replace(manifest, stage="other").write(place / "run/train/alike")
    (place / "run/train/alike/manifest.json").write_text("{")
    train(renamed(place), place / "run")
    assert (place / "run/train/first/manifest.json").is_file()
