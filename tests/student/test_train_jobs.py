"""Stages trained side by side, and from one loaded model, are what they are one by one."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from processes import forked
from processes.pool_in_process import replace_pools
from safetensors.torch import load_file
from worlds import student_worlds as worlds

from distill.errors import DataError
from student.models import start_model
from student.train import train

ALIGN = worlds.stage("align", "questions", train='["projector"]', steps=3)


LORA = "[stages.lora]\nrank = 4\nalpha = 8\n"


REASON = worlds.stage("reason", steps=4, more=LORA)


ANSWERS = worlds.stage("answers_only", steps=4, more='start = "align"\ntarget = "answer"\n')


def weights(folder: Path, stage: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "run" / "train" / stage / "model" / "model.safetensors")


def test_stages_that_start_from_one_loaded_model_are_what_they_are_one_by_one(place: Path, tmp_path: Path):

    other = Path(shutil.copytree(place, tmp_path / "other"))
    more = 'start = "align"\n[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n'
    arms = [worlds.stage(name, steps=3, more=more) for name in ("one", "two")]
    whole = 'start = "align"\ntarget = "answer"\n'
    stages = (ALIGN, *arms, worlds.stage("three", steps=3, more=whole))
    loads: list[Path | None] = []

    def counted(recipe: object, start: Path | None) -> tuple[object, object]:
        loads.append(start)
        return load_base(recipe, start)

    load_base, start_model.load = start_model.load, counted
    try:
        train(worlds.recipe(place, *stages), place / "run")
    finally:
        start_model.load = load_base
    assert loads == [None, place / "run" / "train" / "align" / "model"]
    apart = worlds.recipe(other, *stages)
    for name in ("align", "three", "two", "one"):
        train(apart, other / "run", stage=name)
    for name in ("one", "two", "three"):
        ours, theirs = weights(place, name), weights(other, name)
        assert all(torch.equal(ours[key], value) for key, value in theirs.items())
    assert all(torch.equal(weights(place, "one")[key], value) for key, value in weights(place, "two").items())


SIDE_BY_SIDE = """
import json, multiprocessing, sys
from pathlib import Path
from distill import jobs
from distill.recipe import load
from student.train import train
# Forks of this process, which has the libraries; tests/distill/test_jobs.py starts new processes.
jobs.get_context = lambda method: multiprocessing.get_context("fork")
reports = []
note = lambda report: reports.append([report.stage, report.done])
made = train(load(sys.argv[1]), Path(sys.argv[2]), jobs=2, on_progress=note)
Path(sys.argv[3]).write_text(json.dumps([[*made.outputs], reports]))
"""


@pytest.mark.slow
def test_stages_side_by_side_are_what_they_are_one_by_one(place: Path, tmp_path: Path):
    other = Path(shutil.copytree(place, tmp_path / "other"))
    stages = (ALIGN, REASON, ANSWERS, worlds.stage("apart", steps=2, more='start = "base"\n'))
    one_by_one = train(worlds.recipe(other, *stages), other / "run")
    ended = forked.run(SIDE_BY_SIDE, worlds.recipe(place, *stages).path, place / "run", tmp_path / "told.json")
    assert ended.codes == [0], ended.stderr
    outputs, reports = json.loads((tmp_path / "told.json").read_text())
    assert outputs == list(one_by_one.outputs)
    for stage in ("align", "reason", "answers_only", "apart"):
        ours, theirs = weights(place, stage), weights(other, stage)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert ["train apart", 2] in reports
    steps = [stage for stage, _ in reports if stage.startswith("train")]
    assert steps.index("train reason") > len(steps) - 1 - steps[::-1].index("train align")


def test_stages_side_by_side_pass_on_why_one_of_them_cannot_be_trained(place: Path, monkeypatch: pytest.MonkeyPatch):
    replace_pools(monkeypatch, "student.train")
    short = worlds.stage("short", steps=2, more='start = "base"\nmax_length = 8\n')
    with pytest.raises(DataError, match="stage 'short': no row of data"):
        train(worlds.recipe(place, ALIGN, short), place / "run", jobs=2)
