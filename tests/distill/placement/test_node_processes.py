"""The processes of one machine in a training on several machines."""

import os
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest

from distill.errors import DataError
from distill.machine.process_pool import ProcessLost
from distill.placement import node_processes
from distill.placement.node_processes import Ranks, run_processes

RANKS = Ranks(machine=1, machines=2, processes=2, address="127.0.0.1", port=1)


def work(folder: Path, ends: dict[str, int]) -> None:
    """A rank that ends by a signal, or fails (0), once both ranks run; the other one goes on until it is ended."""
    rank = os.environ["RANK"]
    (folder / rank).touch()
    while len(list(folder.iterdir())) < RANKS.processes:
        time.sleep(0.01)
    if ends.get(rank) == 0:
        raise DataError("nothing to train on")
    if rank in ends:
        os.kill(os.getpid(), ends[rank])
    if ends:
        time.sleep(600)


def test_each_process_has_the_rank_of_its_machine(tmp_path: Path) -> None:
    run_processes(partial(work, tmp_path, {}), RANKS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_the_loss_of_a_rank_names_machine_and_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_processes, "GRACE_S", 0.1)
    message = f"{socket.gethostname()}: the process of a task was killed by SIGKILL, most likely by the system"
    with pytest.raises(ProcessLost, match=message):
        run_processes(partial(work, tmp_path, {"3": signal.SIGKILL}), RANKS)


def test_an_error_of_a_rank_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_processes, "GRACE_S", 0.1)
    with pytest.raises(DataError, match="nothing to train on"):
        run_processes(partial(work, tmp_path, {"2": 0}), RANKS)
