"""Tells waiting threads that this process was interrupted: a signal reaches the main thread only.

A command that owns threads notes an interrupt before it waits for them. The note holds for a minute, so that a later
command in the same process waits as usual.

Also keeps which signal ended the process, for its exit code.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

NOTED_S = 60.0
LAST_S = 10.0
"""So long after an interrupt the threads of a command may go on: a request to a store gets its answer."""
_changed = threading.Condition()
_noted_until_s = 0.0
_signal = int(signal.SIGINT)


def heard(number: int) -> None:
    """Keep a signal that ends this process."""
    global _signal
    _signal = number


def exit_code() -> int:
    """The exit code of a command that a signal ended, as shells count it: 130 after Ctrl-C, 143 after SIGTERM."""
    return 128 + _signal


def note() -> None:
    """Wake every thread that pauses, and let none wait long for the next minute."""
    global _noted_until_s
    with _changed:
        _noted_until_s = time.monotonic() + NOTED_S
        _changed.notify_all()


def forget() -> None:
    """Begin a new command: forget what interrupted an earlier one, and its signal."""
    global _noted_until_s, _signal
    _noted_until_s, _signal = 0.0, int(signal.SIGINT)


def is_noted() -> bool:
    return time.monotonic() < _noted_until_s


def left_s() -> float:
    """The rest of `LAST_S` since an interrupt was noted."""
    return max(0.0, _noted_until_s - NOTED_S + LAST_S - time.monotonic())


@contextmanager
def noted() -> Iterator[None]:
    """Note a signal that ends the block."""
    try:
        yield
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        note()
        raise


@contextmanager
def unmasked() -> Iterator[None]:
    """Raise the KeyboardInterrupt that ended a query of DuckDB: it says RuntimeError in its place."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None


def pause(seconds: float) -> None:
    """Sleep, until an interrupt is noted at the latest; in the minute after it for all of the time."""
    if is_noted():
        time.sleep(seconds)
        return
    with _changed:
        _changed.wait(seconds)
