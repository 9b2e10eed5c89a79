"""Limits on the time that a family of signals spends on one trace.

The limits that decide are on the text itself (its length, the numbers in it), so that they give the same result on
every machine: each family's time grows as its text does, for the texts that benchmarks/answers/mutated_answers.py
makes. The clock is the last resort against a fault in a family. It counts the processor time of this process, so that
a busy machine changes nothing. Its signal interrupts the main thread only, also inside a regular expression: workers
measure in their main thread.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from distill.types import Trace

MOST_CHARACTERS: Final = 1 << 20
"""A trace with more of them is measured by no family: some 250,000 tokens, beyond what any teacher is asked for."""
MOST_SECONDS: Final = 20.0
"""Of processor time for a family and a trace: twenty times the 0.9 s that the slowest measured text of
MOST_CHARACTERS took."""


class TooMuch(Exception):
    """A text holds more than a family looks at."""


class OutOfTime(BaseException):
    """The time limit was reached. Not an Exception, so that `except Exception` does not catch it."""


def too_long(trace: Trace) -> bool:
    return max(len(trace.text), len(trace.reasoning) + len(trace.answer)) > MOST_CHARACTERS


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block once it took so many seconds of processor time; outside the main thread never."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _end)
    # The signal repeats, because a callback of a library may swallow the first one.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _end(number: int, frame: FrameType | None) -> None:
    raise OutOfTime
