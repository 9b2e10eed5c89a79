"""The rates that a training step logs."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from worlds import student_worlds

from distill.artifacts.manifest import Manifest
from student.train import train
from student.training.loop import metrics_log
from student.training.loop.metrics_log import MetricsLog, StepFacts, StepLog


def test_mfu_is_of_the_nominal_rate_and_hfu_counts_layers_computed_twice():
    def logged(**rates: float) -> StepLog:
        logs: list[StepLog] = []
        meter = MetricsLog(logs.append, ["a"], **rates)
        counts = {"tokens": 8, "responses": 1, "response_tokens": 4, "images": 0, "own_tokens": 8, "padding": 0}
        meter.step(StepFacts(**counts, by_group={"a": 8}, flops=3.0, hardware_flops=4.0))
        meter.add(loss=torch.zeros(()))
        meter.cells(torch.ones(1), torch.ones(1), torch.zeros(1, dtype=torch.int64))
        return meter.log(step=1, steps=1, epoch=1.0, learning_rate=0.0)

    card, cpu = logged(rate=1.0, nominal=2.0), logged(rate=1.0)
    assert card.hfu / card.mfu == pytest.approx(4 / 3) == pytest.approx(cpu.hfu / cpu.mfu)
    assert card.mfu_measured == pytest.approx(2 * card.mfu)
    assert cpu.mfu_measured == cpu.mfu


def test_a_stage_takes_the_seconds_of_all_commands_that_trained_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint-3"
    checkpoint.mkdir()
    (checkpoint / "complete").touch()
    (checkpoint / "meter.json").write_text('{"last": {"seconds": 1000.0}}')
    assert metrics_log.seconds_before(tmp_path) == 1000 and metrics_log.seconds_before(tmp_path / "none") == 0
    student_worlds.parts(tmp_path)
    student_worlds.data(tmp_path, questions=8)
    recipe = student_worlds.recipe(tmp_path, student_worlds.stage("one", steps=1))
    monkeypatch.setattr(metrics_log, "seconds_before", lambda checkpoints: 1000.0)
    assert train(recipe, tmp_path / "run").seconds > 1000
    stage = Manifest.read(tmp_path / "run" / "train" / "one")
    assert stage is not None and stage.seconds > 1000


def test_peak_memory_is_in_bytes_on_each_system(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics_log.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(metrics_log.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=3_000))
    for system, expected in (("linux", 3_000 * 1024), ("darwin", 3_000)):
        monkeypatch.setattr(metrics_log.sys, "platform", system)
        assert metrics_log.peak_memory() == expected
