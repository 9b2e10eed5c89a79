"""Free memory of this process, and the return of unused memory to the system.

The garbage collector runs seldom, and glibc keeps freed arrays of some megabytes: a process that once had a million
ids in its arrays would stay as large until its end.
"""

import ctypes
import gc
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEW_OBJECTS = 20_000
_GROUPS = {"": ("memory.max", "memory.current", "inactive_file"),
           "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")}  # fmt: skip
"""For both versions of control groups: the files of limit and use, and the entry of file pages that can be dropped.
"""


def free_bytes(system: Path = Path("/")) -> int:
    """Memory that this process may still take: of the machine, and of the limits of its container or job."""
    import psutil

    return min([int(psutil.virtual_memory().available), *_left_by_limits(system)])


def _left_by_limits(system: Path) -> Iterator[int]:
    """What each limit leaves of the control groups of this process and those that they are in."""
    mount = system / "sys/fs/cgroup"
    with suppress(OSError):
        for line in (system / "proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers not in _GROUPS and "memory" not in controllers.split(","):
                continue
            limit, used, files = _GROUPS["memory" if controllers else ""]
            # Inside a container the group may be the root of what is mounted.
            for group in (Path(name), *Path(name).parents):
                folder = mount / ("memory" if controllers else "") / str(group).lstrip("/")
                with suppress(OSError, ValueError):  # no limit, which is written as "max"
                    most, taken = (int((folder / file).read_text()) for file in (limit, used))
                    stat = dict(entry.split() for entry in (folder / "memory.stat").read_text().splitlines())
                    yield max(0, most - taken + int(stat.get(files, 0)))


def give_back_memory() -> None:
    """Return freed memory to the system. Takes milliseconds; where the C library is not glibc it does nothing."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()


def give_back_pages(*mapped: "NDArray[Any]") -> None:
    """Let the system take the pages of whole mapped arrays from this process: they stay in their files.

    A change that is not written yet is not lost. On other systems than Linux nothing is done.
    """
    if sys.platform == "linux":
        for array in mapped:
            if (pages := getattr(array, "_mmap", None)) is not None:
                pages.madvise(mmap.MADV_DONTNEED)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cycles of objects after 20,000 new ones, and not after 700: for work that makes many and no cycles."""
    before = gc.get_threshold()
    inside = (max(before[0], _NEW_OBJECTS), *before[1:]) if before[0] else before
    gc.set_threshold(*inside)
    try:
        yield
    finally:
        if gc.get_threshold() == inside:  # else the end of the start has set it (distill/__main__.py)
            gc.set_threshold(*before)
