"""A limit on the processor time of a block of code: time of this process, so that a busy machine changes nothing."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_HAS_TIMERS: Final = hasattr(signal, "setitimer")


class OutOfTime(BaseException):
    """The time limit was reached. Not an Exception, so that `except Exception` does not catch it."""


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block once it took so many seconds of processor time; outside the main thread and on
    Windows never."""
    if threading.current_thread() is not threading.main_thread() or not _HAS_TIMERS:
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _end)
    # The signal repeats, because a callback of a library may swallow the first one.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:  # a signal at the end of the block leaves the timer on; the next one is a second away
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _end(number: int, frame: FrameType | None) -> None:
    raise OutOfTime
