"""Work that kills its own process at a moment, several times over, in forks of one process.

That process has imported the training libraries, which takes most of the time of a process of its own, and has run
nothing, so that a fork is as good as a new one.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_IMPORTS = """
import os, signal, sys, threading, traceback
from pathlib import Path
import torch
torch.set_num_threads(1)
from distill.recipe import load
from student.train import train
from student.training.checkpoints import checkpoint_files as checkpoints
die = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""
_FORKS = """
for text in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            work(*text.split("|"))
            print("work came to its end:", text, file=sys.stderr, flush=True)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
        sys.exit(1)
"""


def die_in_turn(work: str, *calls: Sequence[object]) -> None:
    """Call the function `work` that a text defines, once with each arguments as texts; each call must kill itself.

    The text finds `die`, `load`, `train`, `checkpoints`, `os`, `signal`, `threading` and `Path`.
    """
    arguments = ["|".join(map(str, call)) for call in calls]
    command = [sys.executable, "-c", f"{_IMPORTS}{work}{_FORKS}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
