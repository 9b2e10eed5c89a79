"""Ctrl-C and SIGTERM while a stage trains: a checkpoint first, and the resumed run equals an unbroken one."""

import math
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from processes import forked
from safetensors.torch import load_file
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.recipe.recipe import Recipe
from distill.types import Progress
from student.train import train
from student.training.checkpoints import checkpoint_files
from student.training.loop import trainer
from student.training.loop.interrupts import Interrupts
from student.validation import measure

STEPS = 8
WATCHED = """[stages.validation]
every_steps = 4
data = "test"
questions = 4
max_new_tokens = 6
hold_out = 6
gallery = 1
metric = "loss"
keep = "best"
patience = 9
"""


def stage(*, watched: bool = False, steps: int = STEPS) -> str:
    lora = "[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n"
    return worlds.stage("reason", steps=steps, save=200, more=lora + (WATCHED if watched else ""))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "run" / "train" / "reason" / "model" / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    return all(torch.equal(value, weights(other)[name]) for name, value in weights(one).items())


def checkpoints(folder: Path) -> list[str]:
    found = (folder / "run" / "train" / "reason" / "checkpoints").glob("checkpoint-*/complete")
    return sorted((path.parent.name for path in found), key=lambda name: int(name.removeprefix("checkpoint-")))


def measured(folder: Path) -> list[dict[str, Any]]:
    clock = ("seconds", "time_share")
    found = read_jsonl(folder / "run" / "train" / "reason" / "validation.jsonl")
    return [{key: value for key, value in line.items() if key not in clock} for line in found]


def interrupted(recipe: Recipe, folder: Path, number: int, step: int, times: int = 1) -> None:
    """Train until a signal comes while a step's log is being written."""

    def watch(progress: Progress) -> None:
        if progress.stage == "train reason" and progress.done == step:
            for _ in range(times):
                os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        train(recipe, folder / "run", on_progress=watch)


@pytest.fixture(scope="module")
def unbroken(world: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Worlds whose stage was trained without a signal: one that measures nothing, and one that does."""
    folders = {}
    for watched in (False, True):
        folder = Path(shutil.copytree(world, tmp_path_factory.mktemp("unbroken") / "w"))
        train(worlds.recipe(folder, stage(watched=watched)), folder / "run")
        folders[watched] = folder
    return folders


@pytest.mark.parametrize(
    ("number", "steps"), [(signal.SIGINT, (2, 5)), (signal.SIGTERM, (3,)), (signal.SIGHUP, (3,))]
)
def test_a_signal_ends_training_with_a_checkpoint_from_which_the_same_weights_come(
    number: int, steps: tuple[int, ...], place: Path, unbroken: dict[bool, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = worlds.recipe(place, stage())
    before = signal.getsignal(number)
    for step in steps:
        interrupted(recipe, place, number, step)
        assert checkpoints(place)[-1] == f"checkpoint-{step + 1}"
        assert "stops after this training step and a checkpoint" in capfd.readouterr().err
    assert signal.getsignal(number) is before
    train(recipe, place / "run")
    assert same(unbroken[False], place)


def test_a_second_ctrl_c_ends_training_at_once(place: Path) -> None:
    interrupted(worlds.recipe(place, stage()), place, signal.SIGINT, 3, times=2)
    assert checkpoints(place) == []


def test_a_second_sigterm_is_what_a_launcher_sends_and_changes_nothing(place: Path) -> None:
    interrupted(worlds.recipe(place, stage()), place, signal.SIGTERM, 3, times=2)
    assert checkpoints(place) == ["checkpoint-4"]


def test_a_signal_waits_for_the_checkpoint_that_is_being_written_however_long_it_takes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = checkpoint_files.save_file
    monkeypatch.setattr(checkpoint_files, "save_file", lambda tensors, path: (time.sleep(0.5), write(tensors, path)))
    interrupted(worlds.recipe(place, stage()), place, signal.SIGTERM, 3)
    assert checkpoints(place) == ["checkpoint-4"]
    assert Interrupts(lambda: True)._patience_s() == math.inf > Interrupts(lambda: False)._patience_s()


def test_a_signal_after_the_last_step_is_not_forgotten(place: Path) -> None:
    recipe = worlds.recipe(place, stage())
    interrupted(recipe, place, signal.SIGINT, STEPS)
    assert checkpoints(place) == [f"checkpoint-{STEPS}"]
    assert train(recipe, place / "run").counts["steps"] == STEPS


@pytest.mark.parametrize("moment", ["before", "within", "last"])
def test_a_measurement_that_a_signal_breaks_off_is_made_by_the_resumed_run(
    moment: str, place: Path, unbroken: dict[bool, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = worlds.recipe(place, stage(watched=True))
    step = STEPS if moment == "last" else 4
    if moment == "before":
        interrupted(recipe, place, signal.SIGINT, 3)
    else:
        ask, calls = measure.generate_replies, []

        def replies(*args: Any, **options: Any) -> Any:
            calls.append(len(measured(place)))
            if calls.count(step // 4 - 1) == 1 and calls[-1] == step // 4 - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return ask(*args, **options)

        written: list[str] = []

        def write(folder: Path, *rest: Any) -> None:
            written.append(folder.name)
            checkpoint_files.write_checkpoint(folder, *rest)

        monkeypatch.setattr(measure, "generate_replies", replies)
        monkeypatch.setattr(trainer, "write_checkpoint", write)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, place / "run")
        monkeypatch.undo()
        assert written == [f"checkpoint-{step}"]
    assert checkpoints(place) == [f"checkpoint-{step}"]
    assert [line["step"] for line in measured(place)] == ([4] if moment == "last" else [])
    train(recipe, place / "run")
    assert measured(place) == measured(unbroken[True]) and same(unbroken[True], place)


COMMAND = """
import os, signal, sys
from distill import cli
from student.training import step_dataset
from student.training.loop import trainer
step_dataset.decoding_processes = lambda images: 2
_, recipe, run, number = sys.argv
sys.argv = ["distill", "train", recipe, "--run", run]
step = trainer.StageTrainer.training_step
def signalled(self, *args, **kwargs):
    if self.state.global_step == 1:
        os.killpg(os.getpgrp(), int(number))
    return step(self, *args, **kwargs)
trainer.StageTrainer.training_step = signalled
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_the_command_as_interrupted_after_a_checkpoint(
    number: int, place: Path
) -> None:
    """As a terminal or a scheduler sends it: to the processes that decode images too."""
    recipe = worlds.recipe(place, stage(steps=100_000))
    ended = forked.run(COMMAND, recipe.path, place / "run", int(number))
    assert ended.codes == [128 + number] and "Traceback" not in ended.stderr, ended.stderr
    assert "run the same command again to resume" in ended.stderr
    left = checkpoints(place)[-1]
    state = orjson.loads((place / "run/train/reason/checkpoints" / left / "trainer_state.json").read_bytes())
    assert state["global_step"] == int(left.removeprefix("checkpoint-"))
