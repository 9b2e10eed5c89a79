"""`kernels = "auto"`: every kind that works here is timed, the fastest is kept, and the stage learns as with it."""

import shutil
from functools import partialmethod
from pathlib import Path

import orjson
import pytest
import torch
from safetensors.torch import load_file
from worlds import student_worlds as worlds

from distill.artifacts.manifest import Manifest
from distill.errors import DistillError
from distill.types import Progress
from student.models import kernels
from student.train import train
from student.training import kernel_choice

# Adapters whose dropout draws random numbers at every step: a trial that took some would show.
LORA = "[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n"


class Stopped(Exception):
    pass


def stage(kind: str) -> str:
    return worlds.stage("reason", steps=4, save=2, more=f'kernels = "{kind}"\n{LORA}')


def choice(place: Path) -> dict[str, object]:
    return orjson.loads((place / "run/train/reason/parts.json").read_bytes())["kernels"]


def weights(place: Path) -> dict[str, torch.Tensor]:
    return load_file(place / "run" / "train" / "reason" / "model" / "model.safetensors")


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first pass and the timed one of none and of compile take; compiled layers run without inductor."""
    compile_module = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(compile_module, backend="eager"))
    left = iter([1.0, 2.0, 30.0, 1.5])
    monkeypatch.setattr(kernel_choice, "timed", lambda call, _: (call(), next(left))[1])


def test_the_fastest_kind_is_kept_written_down_and_used_again_when_the_stage_resumes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = Path(shutil.copytree(place, tmp_path / "other"))
    said: list[object] = []

    def watch(progress: Progress) -> None:
        if progress.stage == "kernels reason":
            said.append(progress.facts["kept"])
        if progress.stage == "train reason" and progress.done == 3:
            raise Stopped

    recipe = worlds.recipe(place, stage("auto"))
    with pytest.raises(Stopped):
        train(recipe, place / "run", on_progress=watch)
    assert said == ["compile: 3 steps in 1.5 s; none: 2 s, liger: needs a GPU"]
    monkeypatch.setattr(kernel_choice, "choose", None)
    train(recipe, place / "run")
    found = choice(place)
    assert found["kernels"] == "compile" and found["seconds"] == {"none": 2.0, "compile": 1.5}
    assert found["first_seconds"] == {"none": 1.0, "compile": 30.0}
    manifest = Manifest.read(place / "run/train/reason")
    assert manifest is not None and manifest.inputs["kernels"] == "compile"
    train(worlds.recipe(other, stage("compile")), other / "run")
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(place).items())


def test_a_kind_that_fails_is_left_out_with_its_reason(place: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler\nlong story")

    monkeypatch.setattr(kernels, "compile_layers", fail)
    train(worlds.recipe(place, stage("auto")), place / "run")
    assert choice(place)["kernels"] == "none"
    assert choice(place)["left_out"] == {"compile": "no compiler", "liger": "needs a GPU"}


def test_nothing_of_a_trial_stays_in_the_model():
    model = torch.nn.ModuleDict({"language": torch.nn.Linear(2, 2)})
    with kernels.tried("none", model, type("Roles", (), {"language": "language"})):
        model["language"].forward = lambda states: states + 7
        model["language"].further = 1
    assert torch.equal(model["language"](torch.zeros(1, 2)), model["language"].bias[None])
    assert not hasattr(model["language"], "further")


def test_where_no_kind_makes_a_step_the_error_says_why(place: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise RuntimeError("no kernel image")

    monkeypatch.setattr(kernel_choice, "timed", fail)
    with pytest.raises(DistillError, match="none: no kernel image, compile: no kernel image"):
        train(worlds.recipe(place, stage("auto")), place / "run")


def test_steps_that_do_not_fit_at_once_are_left_to_the_training_which_makes_them_smaller(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(kernel_choice, "timed", full)
    train(worlds.recipe(place, stage("auto")), place / "run")
    assert choice(place)["kernels"] == "none"
    assert choice(place)["why"].startswith("none: the steps do not fit the memory at once; none: out of memory")
