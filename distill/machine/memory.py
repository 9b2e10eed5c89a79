"""Memory that a process no longer uses goes back to the system.

glibc keeps freed arrays of some megabytes: a process that once had a million ids in its arrays would stay as large
until its end.
"""

import ctypes
import sys


def give_back_memory() -> None:
    """Return freed memory to the system. Takes milliseconds; where the C library is not glibc it does nothing."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
