"""A limit on the processor time of a block of code, and on the time that it waits.

Both leave out the time in which other processes have the processor, so a busy machine changes nothing.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

_HAS_TIMERS: Final = hasattr(signal, "setitimer")

_RUN_DELAY = Path("/proc/self/schedstat")
"""The nanoseconds that the main thread ran on a processor, and those that it waited for one."""


class OutOfTime(BaseException):
    """The time limit was reached. Not an Exception, so that `except Exception` does not catch it."""


@contextmanager
def processor_time(seconds: float, waiting: float | None = None) -> Iterator[None]:
    """Raises OutOfTime in the block once it took so many seconds of processor time; outside the main thread and on
    Windows never.

    With `waiting`, also once it waited that long: for a sleep, a lock or a connection.
    """
    if threading.current_thread() is not threading.main_thread() or not _HAS_TIMERS:
        yield
        return
    with _timer(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, seconds, lambda: True):
        if waiting is None:
            yield
            return
        begun_s = _waited_s()
        with _timer(signal.ITIMER_REAL, signal.SIGALRM, waiting, lambda: _waited_s() - begun_s >= waiting):
            yield


@contextmanager
def _timer(timer: int, number: signal.Signals, seconds: float, is_over: Callable[[], bool]) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        if is_over():
            raise OutOfTime

    before = signal.signal(number, end)
    # The signal repeats, because a callback of a library may swallow the first one.
    left, again = signal.setitimer(timer, seconds, min(seconds, 1.0))
    try:
        try:
            yield
        finally:
            signal.setitimer(timer, 0)
    finally:  # a signal at the end of the block leaves the timer on; the next one is a second away
        signal.setitimer(timer, 0)
        signal.signal(number, before)
        signal.setitimer(timer, left, again)


def _waited_s() -> float:
    """Seconds, from an arbitrary start, in which the main thread did not run and did not wait for a processor."""
    try:
        run_delay_s = int(_RUN_DELAY.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        run_delay_s = 0.0
    return time.monotonic() - time.thread_time() - run_delay_s
