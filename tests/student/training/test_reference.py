"""The reference of a preference stage is read where it was stored whole, and computed anew where it was not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from student.training import reference

VALUES = np.linspace(-60, -30, 40, dtype=np.float32)


def test_a_damaged_file_is_computed_anew_wherever_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
    whole, anew = path.read_bytes(), 0
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]):
            path.write_bytes(damaged)
            anew += read()
    assert anew > len(whole)
