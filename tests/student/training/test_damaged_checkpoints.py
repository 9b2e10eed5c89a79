"""A stage whose newest checkpoint is damaged resumes from the one before it, or begins again, and ends the same."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from worlds import student_worlds as worlds

from distill.artifacts.journal import read_jsonl
from distill.recipe.loading import load
from distill.types import Progress
from student.train import train
from student.training.checkpoints.checkpoint_files import OPTIMIZER, WEIGHTS

VALIDATION = """[stages.validation]
hold_out = 8
every_steps = 2
metric = "loss"
keep = "best"
"""
STABLE = ("step", "loss", "tokens", "learning_rate")


def kill_after(step: int, place: Path, more: str) -> Path:
    """A run whose stage, with a checkpoint every two steps, ended after this step."""

    class Killed(Exception):
        pass

    def kill(progress: Progress) -> None:
        if progress.stage == "train reason" and progress.done == step:
            raise Killed

    with pytest.raises(Killed):
        train(worlds.recipe(place, worlds.stage("reason", save=2, more=more)), place / "run", on_progress=kill)
    return place / "run" / "train" / "reason" / "checkpoints"


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def losses(place: Path) -> list[list[object]]:
    lines = read_jsonl(place / "run" / "train" / "reason" / "metrics.jsonl")
    return [[line[name] for name in STABLE] for line in lines]


@pytest.mark.parametrize("more", ["", VALIDATION], ids=["plain", "validated"])
@pytest.mark.parametrize(
    ("damaged", "then"), [((4,), "resumes from checkpoint-2"), ((2, 4), "the stage starts again")]
)
def test_a_stage_ends_with_the_losses_and_weights_of_one_whose_checkpoints_are_whole(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: tuple[int, ...], then: str, more: str
) -> None:
    whole = Path(shutil.copytree(place, tmp_path / "whole"))
    train(worlds.recipe(whole, worlds.stage("reason", save=2, more=more)), whole / "run")
    checkpoints = kill_after(5, place, more)
    assert {path.name for path in checkpoints.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    for step, name in zip(damaged, (WEIGHTS, OPTIMIZER), strict=False):
        damage(checkpoints / f"checkpoint-{step}" / name)
    steps: list[int] = []

    def note(progress: Progress) -> None:
        if progress.stage == "train reason":
            steps.append(progress.done)

    train(load(place / "recipe.toml"), place / "run", on_progress=note)
    assert then in caplog.text and steps[0] == (1 if 2 in damaged else 3)
    assert losses(place) == losses(whole)
    ours, theirs = (load_file(each / "run/train/reason/model/model.safetensors") for each in (place, whole))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert not checkpoints.exists()
