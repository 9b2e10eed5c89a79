"""Tells waiting threads that this process was interrupted: a signal reaches the main thread only.

A command that owns threads notes an interrupt before it waits for them. The note holds for a minute, so that a later
command in the same process waits as usual.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

NOTED_S = 60.0
_changed = threading.Condition()
_noted_until_s = 0.0


def note() -> None:
    """Wake every thread that pauses, and let none wait long for the next minute."""
    global _noted_until_s
    with _changed:
        _noted_until_s = time.monotonic() + NOTED_S
        _changed.notify_all()


def forget() -> None:
    """Let later waits be long again."""
    global _noted_until_s
    _noted_until_s = 0.0


def is_noted() -> bool:
    return time.monotonic() < _noted_until_s


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


def pause(seconds: float) -> None:
    """Sleep, until an interrupt is noted at the latest; in the minute after it for all of the time."""
    if is_noted():
        time.sleep(seconds)
        return
    with _changed:
        _changed.wait(seconds)
