"""The reference of a preference stage is read where it was stored whole, and computed again where it was not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from student.training import reference
from student.training.stage_run import StageRun

VALUES = np.linspace(-60, -30, 40, dtype=np.float32)


def test_a_damaged_file_is_computed_again_wherever_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, computed = tmp_path / "reference.npz", []

    def compute(*_: Any) -> np.ndarray:
        computed.append(True)
        return VALUES

    def read() -> bool:
        """Whether the values, which are the same in any case, were computed."""
        computed.clear()
        found = reference.stored_or_computed(None, None, 40, None, path, "a")  # type: ignore[arg-type]
        assert np.array_equal(found, VALUES) and found.dtype == np.float32
        return bool(computed)

    monkeypatch.setattr(reference, "reference_log_probs", compute)
    assert [read(), read()] == [True, False]
    whole, again = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]):
            path.write_bytes(damaged)
            again += read()
    assert again > len(whole) / 7


def test_a_reference_of_other_rows_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr(reference, "stored_or_computed", lambda *values: asked.append(values[-1]))
    for digest in ("first", "first", "second"):
        work = SimpleNamespace(
            student=nn.Linear(1, 1),
            device="cpu",
            examples=[1, 2],
            folder=tmp_path,
            stage=None,
            steps=SimpleNamespace(data=None),
            fields={"seed": 0},
            row_identity={"count": 2, "sha256": digest},
            _report=lambda *_: None,
        )
        StageRun._reference(work)  # type: ignore[arg-type]
    assert asked[0] == asked[1] != asked[2]
