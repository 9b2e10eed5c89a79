"""Writes checkpoints during training: tensors are copied to host memory, and a thread writes the copy.

Only the copying holds training up; safetensors and torch write without Python's lock. A checkpoint counts when its
marker is there (student/training/checkpoints/checkpoint_files.py), so a kill during a write costs that checkpoint
alone: the one before it is removed afterwards. Does not know what a checkpoint holds
(student/training/loop/trainer.py).
"""

import threading
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from torch import nn

from distill.errors import StorageError
from distill.machine.memory import free_bytes
from student.distributed import fsdp, processes

COPY_BYTES = 12
"""Bytes of a trained weight with its optimizer state: 4 + 8 in float32, 2 + 10 in bfloat16."""


class CheckpointWriter:
    """Writes one checkpoint at a time. A block ends when the last one is on disk, unless Ctrl-C ends it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._copies: dict[Hashable, torch.Tensor] = {}
        """Host memory that every checkpoint uses again."""
        self._beside: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is None:
            self.wait()
        elif not isinstance(error, KeyboardInterrupt):
            with suppress(StorageError):
                self.wait()

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Until what was started is on disk. Raises its error, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def check(self) -> None:
        """Raise the error of a write that has failed; does not wait."""
        if not self.busy:
            self.wait()

    def weights(self, named: Iterable[tuple[str, nn.Parameter]]) -> dict[str, torch.Tensor]:
        """Copies of weights, for which every process has to ask at once; only the main one keeps them.

        The first call decides whether the host has memory for copies; if not, training waits for every write.
        """
        named = list(named)
        if self._beside is None:
            needed = sum(COPY_BYTES * weight.numel() for _, weight in named)
            self._beside = needed < free_bytes()
        taken = [(name, self._copy(name, parameter.detach())) for name, parameter in named]
        return {name: value for name, value in taken if value is not None}

    def optimizer(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """A copy of an optimizer's state; as `weights`, which comes first."""
        return fsdp.gather_optimizer_state(optimizer, self._copy)

    def start(self, write: Callable[[], None]) -> None:
        """Call a function that writes what was copied, in a thread; the one before has to be waited for."""

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self._error = error

        assert self._thread is None
        self._thread = threading.Thread(target=run, name="checkpoint", daemon=True)
        self._thread.start()
        if not self._beside:
            self.wait()

    def _copy(self, key: Hashable, value: torch.Tensor) -> torch.Tensor | None:
        whole = fsdp.gather_tensor(value)
        if not processes.is_main():
            return None
        if not self._beside:
            return whole.contiguous()
        if key not in self._copies:
            self._copies[key] = torch.empty(whole.shape, dtype=whole.dtype)
        return self._copies[key].copy_(whole)


def write_together(write: Callable[[str], None], folder: Path) -> None:
    """Write the files of all processes to a folder of the main process; `write` writes the files of one process to a
    folder."""
    with TemporaryDirectory() as own:
        write(own)
        each = processes.gather({file.name: file.read_bytes() for file in Path(own).iterdir()})
    if processes.is_main():
        for name, data in (pair for files in each for pair in files.items()):
            (folder / name).write_bytes(data)
