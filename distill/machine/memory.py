"""Memory that a process no longer uses: it goes back to the system, and cycles of objects are looked for seldom.

glibc keeps freed arrays of some megabytes: a process that once had a million ids in its arrays would stay as large
until its end.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 20_000


def give_back_memory() -> None:
    """Return freed memory to the system. Takes milliseconds; where the C library is not glibc it does nothing."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles of objects after 20,000 new ones, and not after 700: for work that makes many and no cycles."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _NEW_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
