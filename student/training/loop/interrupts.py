"""Ctrl-C, SIGTERM and SIGHUP while a stage trains: the step is finished and a checkpoint written.

Measuring the student is broken off; the resumed run measures first. A second Ctrl-C ends the process at once. Outside
training, and in a thread other than the main thread (where Python handles no signals), signals have their usual
effect.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self

from distill.machine import interrupts
from student.distributed import processes

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED_S = 1.0
"""A launcher sends on the Ctrl-C that its processes have had from the terminal as well: not yet a second one."""
_FIRST_STEP_S = 120.0
_SLACK_S = 10.0
NOTE = (
    "distill: stops after this training step and a checkpoint; a second Ctrl-C stops at once and loses the steps "
    "since the last checkpoint\n"
)


class Interrupts:
    """In this block the first signal is noted; `asked` gives the same answer in every process of the run."""

    def __init__(self, writing: Callable[[], bool] = lambda: False) -> None:
        """`writing`: whether a checkpoint is being written; an interrupt waits for it without a limit."""
        self._writing = writing
        self._noted_at: float | None = None
        self._raising = self._over = False
        self._before: dict[int, Any] = {}
        self._pid = os.getpid()
        self._stepped_at, self._longest_s = time.monotonic(), 0.0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heeded}
            processes.be_patient(self._patience_s)
        self._stepped_at = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    @property
    def over(self) -> bool:
        """Whether a second Ctrl-C has ended the waiting."""
        return self._over

    def asked(self) -> bool:
        """Whether any process of the run was asked to stop; to be called by all of them after every step."""
        now = time.monotonic()
        self._longest_s, self._stepped_at = max(self._longest_s, now - self._stepped_at), now
        return processes.any_of(self._noted_at is not None)

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Inside, a signal raises KeyboardInterrupt at once; also one that has come before."""
        self._raising = True
        try:
            if self._noted_at is not None:
                raise KeyboardInterrupt
            yield
        finally:
            self._raising = False

    def _note(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._pid:
            return  # a process that decodes images: its parent ends it
        now = time.monotonic()
        if self._noted_at is None:
            self._noted_at = now
            interrupts.heard(number)
            if processes.speaks():
                with suppress(OSError):  # a terminal that is gone
                    os.write(2, NOTE.encode())
        elif number == signal.SIGINT and (processes.count() == 1 or now - self._noted_at > _FORWARDED_S):
            self._restore()
            self._over = True
            raise KeyboardInterrupt
        if self._raising:
            raise KeyboardInterrupt

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            processes.be_patient(None)
        self._before = {}

    def _patience_s(self) -> float:
        """How long to wait for the end of a step: another process may be gone, and then it never ends."""
        if self._writing():
            return math.inf
        return _SLACK_S + 3 * self._longest_s if self._longest_s else _FIRST_STEP_S


def leave_to_parent(_: int) -> None:
    """For a process that decodes images: signals to the whole group are its parent's to answer."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
