"""Checkpoints on disk: files, and the names by which they are found after a power cut."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.errors import DataError
from student.training.checkpoints import checkpoint_files
from student.training.checkpoints.checkpoint_files import (
    DIGESTS,
    OPTIMIZER,
    WEIGHTS,
    complete_checkpoints,
    last_checkpoint,
    readable_checkpoint,
    write_checkpoint,
    write_files,
)


def test_the_names_of_a_checkpoint_are_on_disk_before_the_one_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(os, "fsync", lambda number: synced.add(Path(f"/proc/self/fd/{number}").readlink()))
    weights = {"a": torch.zeros(2)}
    best, first, second = (tmp_path / "checkpoints" / name for name in ("best-1", "checkpoint-1", "checkpoint-2"))
    for folder in (best, first):
        synced.clear()
        write_files(folder, {WEIGHTS: weights})
        assert {folder / WEIGHTS, folder, folder.parent} <= synced
    write_checkpoint(second, {WEIGHTS: weights}, [best])
    assert sorted(path.name for path in second.parent.iterdir()) == ["checkpoint-1", "checkpoint-2"]


@pytest.mark.parametrize("name", [WEIGHTS, OPTIMIZER, "trainer_state.json"])
def test_a_flipped_bit_in_any_file_of_a_checkpoint_is_noticed_and_its_file_named(tmp_path: Path, name: str) -> None:
    checkpoint = tmp_path / "checkpoint-9"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text('{"global_step": 9}')
    write_checkpoint(checkpoint, {WEIGHTS: {"a": torch.zeros(64)}, OPTIMIZER: {"b": torch.zeros(64)}}, [])
    with readable_checkpoint(checkpoint):
        pass
    data = bytearray((checkpoint / name).read_bytes())
    data[-5 if name != OPTIMIZER else len(data) // 2] ^= 1
    (checkpoint / name).write_bytes(data)
    damaged = pytest.raises(DataError, match=rf"damaged \({name}: its content .*remove the folder")
    with damaged, readable_checkpoint(checkpoint):
        pytest.fail("a damaged file was read")
    (checkpoint / DIGESTS).unlink()  # as of an earlier version
    with readable_checkpoint(checkpoint):
        pass


def test_copies_and_archives_beside_checkpoints_stay_and_stop_no_save(tmp_path: Path) -> None:
    weights = {"a": torch.zeros(2)}
    write_checkpoint(tmp_path / "checkpoint-9", {WEIGHTS: weights}, [])
    shutil.copytree(tmp_path / "checkpoint-9", tmp_path / "checkpoint-9-copy")
    (tmp_path / "checkpoint-9.tar").touch()
    write_checkpoint(tmp_path / "checkpoint-10", {WEIGHTS: weights}, [])
    (tmp_path / "checkpoint-11").mkdir()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-10",
        "checkpoint-9",
        "checkpoint-9-copy",
        "checkpoint-9.tar",
    ]


def test_the_last_two_checkpoints_are_kept_and_an_older_one_goes_before_a_third_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, write = [], checkpoint_files.write_files

    def counted(folder: Path, files: Mapping[str, Any]) -> None:
        write(folder, files)
        most.append(len(list(tmp_path.glob("checkpoint-*"))))

    monkeypatch.setattr(checkpoint_files, "write_files", counted)
    for step in (2, 4, 6, 10):
        write_checkpoint(tmp_path / f"checkpoint-{step}", {WEIGHTS: {"a": torch.zeros(2)}}, [])
    for _ in range(2):  # a stop may write the last checkpoint once more
        assert [path.name for path in complete_checkpoints(tmp_path)] == ["checkpoint-6", "checkpoint-10"]
        write_checkpoint(tmp_path / "checkpoint-10", {WEIGHTS: {"a": torch.zeros(2)}}, [])
    assert max(most) == 2


def test_a_damaged_checkpoint_is_set_aside_with_a_warning_and_the_one_before_it_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (2, 4):
        write_checkpoint(tmp_path / f"checkpoint-{step}", {WEIGHTS: {"a": torch.zeros(2)}}, [])
    for step, then in ((4, "resumes from checkpoint-2"), (2, "starts again")):
        assert last_checkpoint(tmp_path) == tmp_path / f"checkpoint-{step}"
        (tmp_path / f"checkpoint-{step}" / WEIGHTS).write_bytes(b"junk")
        last_checkpoint(tmp_path)
        assert f"({WEIGHTS}: its content was changed after it was written); it is renamed to .damaged-" in caplog.text
        assert caplog.text.rstrip().endswith(then)
    assert last_checkpoint(tmp_path) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [".damaged-checkpoint-2", ".damaged-checkpoint-4"]
