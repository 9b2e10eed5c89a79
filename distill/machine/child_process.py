"""Child processes: how they start, how many there may be, how they handle signals and the end of their parent.

A child leaves the signals of a terminal to its parent, and ends with it. SIGTERM ends a process as Ctrl-C does.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock, Thread
from types import FrameType
from typing import Any, Final

from distill.machine import interrupts

_SAFE_PATH: Final = "PYTHONSAFEPATH"
_starting: Final = Lock()


@contextmanager
def safe_path() -> Iterator[None]:
    """A Python that is started in this block runs no file of the working folder, such as a user's `random.py`."""
    with _starting:
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"
        try:
            yield
        finally:
            _set_safe_path(before)


def _set_safe_path(value: str | None) -> None:
    if value is None:
        os.environ.pop(_SAFE_PATH, None)
    else:
        os.environ[_SAFE_PATH] = value


class _SafeProcess(SpawnProcess):
    """It looks for modules where its parent does, and for those of its start not in the working folder."""

    def start(self) -> None:
        self._before = os.environ.get(_SAFE_PATH)
        with safe_path():
            super().start()

    def run(self) -> None:
        _set_safe_path(self._before)  # a program that a user's own code starts has the user's environment
        super().run()


class _SafeContext(SpawnContext):
    Process = _SafeProcess


def spawn_context() -> SpawnContext:
    """How each new process starts that is not forked."""
    if os.name != "nt":
        with safe_path():  # the first queue would start it, without
            resource_tracker.ensure_running()
    return _SafeContext()


def follow_parent() -> None:
    """Called first in a worker: its parent handles Ctrl-C and the end of a terminal."""
    leave_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def leave_stdout() -> None:
    """Output of user code in a worker goes to stderr, because stdout has only the result of the command."""
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
    if number == getattr(signal, "SIGXCPU", None):
        import resource

        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))  # it would come again each second
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def available_cores() -> int:
    """The cores that this process may use, which a container or `taskset` may limit."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
