"""Work that kills its own process at a moment, several times over, in forks of one process (`forked`)."""

import signal
from collections.abc import Sequence

from processes import forked

_NAMES = """
import os, signal, sys, threading
from pathlib import Path
from distill.recipe import load
from student.train import train
from student.training.checkpoints import checkpoint_files as checkpoints
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""


def die_in_turn(work: str, *calls: Sequence[object]) -> None:
    """Call the function `work` that a text defines, once with each arguments as texts; each call must kill itself.

    The text finds `die`, `load`, `train`, `checkpoints`, `os`, `signal`, `threading` and `Path`.
    """
    for call in calls:
        ended = forked.run(f"{_NAMES}{work}\nwork(*sys.argv[1:])", *call)
        assert ended.codes == [-signal.SIGKILL], f"work came to its end: {call}\n{ended.stderr}"
