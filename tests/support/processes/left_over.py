"""A pytest plugin: the last test of a module fails where the module has left threads or processes.

Python waits at exit for threads that are no daemons, and for every process of `multiprocessing`: what one test leaves
can keep the whole suite from ending.
"""

import atexit
import gc
import multiprocessing
import sys
import threading
import time
import traceback

import pytest

# What `pytest_runtest_teardown` freezes is freed at the end like anything else.
atexit.register(gc.unfreeze)

_GRACE_S = 60.0
"""So long may what was asked to end take to end, on a crowded machine too."""


def left() -> list[str]:
    """Threads, with where they are, and processes that keep this process from ending."""
    frames = sys._current_frames()
    threads = [
        f"{thread.name}\n{''.join(traceback.format_stack(frames[thread.ident])[-3:])}"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread() and thread.ident in frames
    ]
    return threads + [str(child) for child in multiprocessing.active_children()]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the fixtures of the module have ended."""
    if nextitem is not None and nextitem.path == item.path:
        return
    gc.collect()
    # What the libraries keep for good is never looked at again: a stage that trains collects twice.
    gc.freeze()
    deadline = time.monotonic() + _GRACE_S
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if found:
        pytest.fail(f"{item.path.name} leaves threads or processes:\n" + "\n".join(found), pytrace=False)
