"""Child processes: how many there may be, and how they handle signals and the end of their parent.

A child leaves the signals of a terminal to its parent, and ends with it. SIGTERM ends a process as Ctrl-C does.
"""

import os
import signal
import sys
from multiprocessing import parent_process
from multiprocessing.connection import wait as wait_for
from threading import Thread
from types import FrameType
from typing import Any

from distill.machine import interrupts


def follow_parent() -> None:
    """Called first in a worker: its parent handles Ctrl-C and the end of a terminal."""
    leave_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def leave_stdout() -> None:
    """What a user's own code prints in a worker goes to stderr: stdout has the result of the command alone."""
    sys.stdout = sys.stderr


def _end_with_parent() -> None:
    """End this worker when its parent was killed; otherwise it waits for work for ever."""
    parent: Any = parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def interrupt(number: int, frame: FrameType | None) -> None:
    """A handler of signals: do what Ctrl-C does now. An event loop ends its requests in order first."""
    interrupts.heard(number)
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def available_cores() -> int:
    """The cores that this process may use, which a container or `taskset` may limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
