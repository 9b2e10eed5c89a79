"""Validation through whole recipes: what it leaves, what it decides, and that a kill changes none of it."""

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from faults import killed
from safetensors.torch import load_file
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, RecipeError, StaleError
from distill.recipe.loading import load
from distill.types import Progress
from student.train import train
from student.training.checkpoints.checkpoint_files import DIGESTS

WILD = 0.1
"""A learning rate at which the loss of the rows kept out rises after a while."""
LORA = "[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n"
WATCHED = """[stages.validation]
every_steps = 2
data = "test"
questions = 5
max_new_tokens = 12
hold_out = 6
gallery = 2
{more}
"""


def reason(more: str = "", *, steps: int = 8, save: int = 200, stage: str = "") -> str:
    return worlds.stage("reason", steps=steps, save=save, more=stage + LORA + WATCHED.format(more=more))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "run" / "train" / "reason" / "model" / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], value) for name, value in second.items())


def lines(folder: Path) -> list[dict[str, Any]]:
    """The measurements, what depends on the clock left out."""
    clock = ("seconds", "time_share")
    found = read_jsonl(folder / "run" / "train" / "reason" / "validation.jsonl")
    return [{key: value for key, value in line.items() if key not in clock} for line in found]


def test_measuring_changes_nothing_about_what_is_learned(place: Path, tmp_path: Path):
    other = Path(shutil.copytree(place, tmp_path / "other"))
    rarely = reason().replace("every_steps = 2", "every_steps = 8")
    train(worlds.recipe(place, reason()), place / "run")
    train(worlds.recipe(other, rarely), other / "run")
    assert [line["step"] for line in lines(place)] == [2, 4, 6, 8] and [line["step"] for line in lines(other)] == [8]
    assert same(weights(place), weights(other)) and lines(place)[-1]["loss"] == lines(other)[-1]["loss"]


def test_a_stage_leaves_its_measurements_a_page_and_their_counts(place: Path):
    seen: list[Progress] = []
    manifest = train(worlds.recipe(place, reason()), place / "run", stage="reason", on_progress=seen.append)
    assert manifest.counts["rows"] == 34 and manifest.counts["held_out"] == 6
    assert {"validation.jsonl", "samples.html"} <= set(manifest.outputs)
    for line in lines(place):
        assert line["n"] == 5 and line["response_tokens"] > 0 and line["steps"] == 8
        assert line["ci95"][0] <= line["accuracy"] <= line["ci95"][1]
    assert 'aria-label="loss over ' in (place / "run" / "train" / "reason" / "samples.html").read_text()
    told = [progress for progress in seen if progress.stage == "validate reason"]
    assert [progress.done for progress in told] == [2, 4, 6, 8]
    assert set(told[0].facts) == {"accuracy", "loss", "time_share"}
    (read,) = [progress for progress in seen if progress.stage == "read reason"]
    assert read.facts["held_out"] == 6
    assert not list((place / "run" / "train" / "reason").glob("checkpoints*"))


def test_rows_kept_out_are_not_trained_on(place: Path):
    """Their responses are nonsense that only learning them could make likely."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from student.validation.measure import choose_held_out

    file = place / "run" / "filter" / "dataset" / "train" / "part-00000.parquet"
    rows = pq.read_table(file).to_pylist()
    chosen = choose_held_out([row["sample_id"] for row in rows], 6)
    for number, row in enumerate(rows):
        row["messages"][1]["content"] = "blue blue blue" if number in chosen else "row 1: red"
    pq.write_table(pa.Table.from_pylist(rows), file)
    train(worlds.recipe(place, reason(stage="", steps=40)), place / "run")
    found = lines(place)
    assert found[-1]["loss"] > found[0]["loss"]


def test_a_stage_stops_when_nothing_gets_better_and_leaves_the_best_weights(place: Path, tmp_path: Path):
    decided = 'metric = "loss"\npatience = 2\nkeep = "best"\n'
    other = Path(shutil.copytree(place, tmp_path / "other"))

    def steady(more: str, steps: int) -> str:
        schedule = 'schedule = "constant"\nwarmup_share = 0.0\n'
        return reason(more, steps=steps, stage=schedule).replace("learning_rate = 5e-3", f"learning_rate = {WILD}")

    manifest = train(worlds.recipe(place, steady(decided, 60)), place / "run", stage="reason")
    found = lines(place)
    best = max(line["step"] for line in found if line["best"])
    assert manifest.counts["steps"] == found[-1]["step"] == best + 4 < 60
    assert min(found, key=lambda line: line["loss"])["step"] == best == manifest.counts["kept_step"]
    # A run that ends at the best step leaves the same weights.
    train(worlds.recipe(other, steady("", best)), other / "run")
    assert same(weights(place), weights(other))


WORK = """
from student.validation import early_stopping
def nth(module, name, number):
    done, calls = getattr(module, name), []
    def counted(*args, **kwargs):
        calls.append(args)
        die() if len(calls) == number else None
        return done(*args, **kwargs)
    setattr(module, name, counted)
def work(where, moment, number):
    where, number = Path(where), int(number)
    if moment == "marking":
        nth(checkpoints, "write_text", number)
    if moment == "noting":
        nth(early_stopping, "write_jsonl", number)
    if moment == "weighing":
        nth(checkpoints, "save_file", number)
    def note(progress):
        if moment == "training" and progress.stage == "train reason" and progress.done == number:
            die()
    train(load(where / "recipe.toml"), where / "run", on_progress=note)
"""


@pytest.mark.slow
def test_a_killed_run_decides_and_ends_as_an_unbroken_one(place: Path, tmp_path: Path):
    decided = 'metric = "loss"\npatience = 3\nkeep = "best"\n'
    wild = reason(decided, steps=60, save=3).replace("learning_rate = 5e-3", f"learning_rate = {WILD}")
    worlds.recipe(place, wild)
    other = Path(shutil.copytree(place, tmp_path / "other"))
    first = train(load(place / "recipe.toml"), place / "run", stage="reason")
    assert first.counts["steps"] < 60
    # Within steps, while a checkpoint or the best weights are written, and while a measurement is noted.
    moments = (("training", 5), ("weighing", 3), ("noting", 4), ("marking", 2))
    killed.die_in_turn(WORK, *((other, *moment) for moment in moments))
    second = train(load(other / "recipe.toml"), other / "run", stage="reason")
    assert lines(place) == lines(other)
    assert same(weights(place), weights(other))
    assert first.counts == second.counts and first.tokens == second.tokens


@pytest.mark.slow
def test_best_weights_that_are_damaged_are_named_with_a_way_out(place: Path):
    recipe = worlds.recipe(place, reason('keep = "best"\n', steps=4, save=2))

    def kill(progress: Progress) -> None:
        if progress.stage == "train reason" and progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe, place / "run", on_progress=kill)
    checkpoints = place / "run" / "train" / "reason" / "checkpoints"
    (best,) = checkpoints.glob("best-*")
    (best / "trainable.safetensors").unlink()
    state = checkpoints / "checkpoint-2" / "watch.json"
    state.write_bytes(orjson.dumps({**orjson.loads(state.read_bytes()), "best_value": -1.0}))  # nothing gets better
    (state.parent / DIGESTS).unlink()
    with pytest.raises(DataError, match=r"best-2: this checkpoint is damaged .* remove the folder /") as error:
        train(recipe, place / "run")
    shutil.rmtree(str(error.value).partition("remove the folder ")[2].partition(" ")[0])
    assert train(recipe, place / "run", stage="reason").counts["steps"] == 4


def test_a_stage_that_has_stopped_and_was_killed_trains_no_further(place: Path, monkeypatch: pytest.MonkeyPatch):
    from student.training.checkpoints import saved_model

    decided = 'metric = "loss"\npatience = 1\nkeep = "best"\n'
    wild = reason(decided, steps=40).replace("learning_rate = 5e-3", f"learning_rate = {WILD}")
    recipe = worlds.recipe(place, wild)
    with monkeypatch.context() as patched:
        patched.setattr(
            saved_model, "save_stage_model", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            train(recipe, place / "run")
    before = lines(place)
    steps: list[str] = []
    train(recipe, place / "run", on_progress=lambda progress: steps.append(progress.stage))
    assert "train reason" not in steps and "validate reason" not in steps
    assert lines(place) == before and Manifest.read(place / "run" / "train" / "reason") is not None


def test_what_only_watches_may_be_changed_and_what_decides_may_not(place: Path):
    recipe = worlds.recipe(place, reason())
    train(recipe, place / "run")
    train(load(recipe.path, {"stages.reason.validation.max_new_tokens": "7"}), place / "run")
    with pytest.raises(StaleError, match=r"stage.validation.hold_out: 6 -> 7"):
        train(load(recipe.path, {"stages.reason.validation.hold_out": "7"}), place / "run")
    with pytest.raises(StaleError, match=r"stage.validation.patience: '\(not set\)' -> 2"):
        train(load(recipe.path, {"stages.reason.validation.patience": "2"}), place / "run")


def test_figures_reach_the_trackers_that_the_trainer_reports_to(place: Path, monkeypatch: pytest.MonkeyPatch):
    from transformers import TrainerCallback
    from transformers.integrations import integration_utils

    told: list[dict[str, float]] = []

    class Tracker(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
            told.append({"step": state.global_step, **logs})

    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "trackio", Tracker)
    monkeypatch.setattr(integration_utils, "is_trackio_available", lambda: True)
    train(worlds.recipe(place, reason(stage='report_to = ["trackio"]\n')), place / "run")
    measured = [log for log in told if "eval_loss" in log]
    assert [log["step"] for log in measured] == [2, 4, 6, 8]
    assert [log["eval_accuracy"] for log in measured] == [line["accuracy"] for line in lines(place)]
    assert {"eval_format_rate", "eval_truncation_rate", "eval_mean_rationale_tokens", "eval_time_share"} <= set(
        measured[0]
    )
    assert all(isinstance(value, int | float) for value in measured[0].values())
    assert [log["step"] for log in told if "loss" in log] == [*range(1, 9)]


def test_traces_of_a_question_are_kept_out_together_and_replayed_rows_stay(place: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = place / "run" / "filter" / "dataset" / "train" / "part-00000.parquet"
    rows = pq.read_table(file).to_pylist()
    twice = [{**row, "trace_id": f"{row['trace_id']}-{k}"} for row in rows for k in range(2)]
    pq.write_table(pa.Table.from_pylist(twice), file)
    recipe = worlds.recipe(place, reason(stage="replay = { questions = 0.2 }\n", steps=2))
    manifest = train(recipe, place / "run", stage="reason")
    assert manifest.counts["held_out"] == 6 and manifest.counts["rows"] == 2 * 40 - 6 + 40


def test_all_rows_kept_out_and_no_question_to_ask_are_said_before_training(place: Path):
    with pytest.raises(DataError, match=r"validation.hold_out = 99 keeps out all 40 rows; lower it"):
        train(worlds.recipe(place, reason().replace("hold_out = 6", "hold_out = 99")), place / "run")
    replaying = reason(stage="replay = { questions = 0.2 }\n").replace("hold_out = 6", "hold_out = 99")
    with pytest.raises(DataError, match=r"validation.hold_out = 99 keeps out all 40 rows; lower it"):
        train(worlds.recipe(place, replaying), place / "run")
    lines = [orjson.loads(line) for line in (place / "test.jsonl").read_bytes().splitlines()]
    for line in lines:
        del line["answer"]
    (place / "test.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    with pytest.raises(DataError, match=r"validation.data = 'test': no question can be asked \(none has an answer\)"):
        train(worlds.recipe(place, reason()), place / "run")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "validation measures nothing"),
        ('data = "test"\npatience = 3\n', "metric = 'loss' needs hold_out"),
        ('hold_out = 5\nmetric = "accuracy"\nkeep = "best"\n', "metric = 'accuracy' needs data"),
        ('data = "tset"\n', "did you mean 'test'"),
        ("hold_out = 1.5\n", "less than 1"),
        ("hold_out = 5\nevry_steps = 3\n", "did you mean 'every_steps'"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings: str, message: str, place: Path):
    with pytest.raises(RecipeError, match=message):
        worlds.recipe(place, worlds.stage("reason", more=f"[stages.validation]\n{settings}"))
