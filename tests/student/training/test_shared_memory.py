"""Steps go through shared memory; where there is little of it, fewer workers make them, and the run says so."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from student.training import step_dataset
from student.training.loop import shared_memory

STEPS = [{"micro_batches": [{"pixel_values": torch.zeros(10_000_000, dtype=torch.uint8)}], "facts": object()}]


def affordable(workers: int, free: float, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(free)))
    said: list[str] = []
    return shared_memory.affordable(workers, STEPS, said.append, Path("/")), said


def test_workers_that_fit_all_work_and_nothing_is_said(monkeypatch: pytest.MonkeyPatch):
    assert affordable(4, 1e9, monkeypatch) == (4, [])
    assert affordable(0, 1e6, monkeypatch) == (0, [])


def test_a_container_with_little_shared_memory_gets_fewer_workers_or_none(monkeypatch: pytest.MonkeyPatch):
    fewer, said = affordable(4, 64e6, monkeypatch)
    assert fewer == 1
    assert "1 instead of 4 worker processes" in said[0] and "--shm-size" in said[0]
    none, said = affordable(4, 30e6, monkeypatch)
    assert none == 0
    assert "30 MB free, and a step takes 10.0 MB: the trainer itself makes the steps" in said[0]


def test_beside_a_gpu_one_process_makes_steps_while_images_are_in_memory(monkeypatch: pytest.MonkeyPatch):
    images = SimpleNamespace(full=False)
    assert step_dataset.decoding_processes(images) == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert step_dataset.decoding_processes(images) == 1
