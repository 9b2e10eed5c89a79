"""Batches that the memory of a GPU does not hold are halved; what does not fit alone is one plain error."""

from collections.abc import Sequence

import pytest
import torch
from typer.testing import CliRunner

from distill import cli
from distill.commands import stages
from distill.errors import OutOfMemory
from distill.machine.gpu_memory import FittingBatches


def test_a_batch_that_does_not_fit_is_halved_and_later_ones_are_as_small() -> None:
    tried: list[int] = []

    def double(batch: Sequence[int]) -> list[int]:
        tried.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore text.")
        return [2 * number for number in batch]

    notices: list[str] = []
    fitting = FittingBatches(notices.append)
    assert fitting.run(range(10), double) == [2 * number for number in range(10)]
    assert tried == [10, 5, 2, 2, 2, 2, 2]
    assert [notice.partition(":")[0] for notice in notices] == [
        "out of memory with 10 in a batch",
        "out of memory with 5 in a batch",
    ]
    tried.clear()
    assert fitting.run([7, 8, 9], double) == [14, 16, 18]
    assert tried == [2, 1]


def test_one_item_that_does_not_fit_is_a_plain_error_and_another_error_stays_what_it_is() -> None:
    def fail(error: Exception, batch: Sequence[int]) -> list[int]:
        raise error

    with pytest.raises(OutOfMemory, match=r"Tried to allocate 2 GiB\nWhat was finished is kept\. Lower .*batch_size"):
        FittingBatches().run(
            [1, 2], lambda batch: fail(torch.OutOfMemoryError("Tried to allocate 2 GiB\nMore"), batch)
        )
    with pytest.raises(RuntimeError, match="another"):
        FittingBatches().run([1, 2], lambda batch: fail(RuntimeError("another"), batch))


def test_a_command_that_memory_does_not_hold_ends_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore text.")

    monkeypatch.setattr(stages, "train_stage", fail)
    done = CliRunner().invoke(cli.app, ["train", "tiny"])
    assert done.exit_code == 1
    assert done.stderr.startswith("distill: the GPU's memory does not hold this: CUDA out of memory.")
    assert "micro_batch_tokens" in done.stderr and "Traceback" not in done.stderr and "More text" not in done.stderr
