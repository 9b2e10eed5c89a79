"""Reads with a time limit: a file system that does not answer costs a caller LIMIT_S and does not block the process.

A read that blocks cannot be cancelled. So every calling thread has a daemon thread that reads for it; one that blocks
is given up, and Python does not wait for it at exit.
"""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

LIMIT_S = 60.0
"""A mounted disk answers in milliseconds; a network file system that is back after an outage, in seconds."""

Result = TypeVar("Result")
_Work = Callable[[], Any]
_local = threading.local()


def bounded(read: Callable[[], Result], limit_s: float | None = None) -> Result:
    """Call `read` and return its result. Raises TimeoutError after `limit_s` seconds (default: LIMIT_S)."""
    reader: _Reader | None = getattr(_local, "reader", None)
    if reader is None or reader.process != os.getpid():
        reader = _Reader()
    # Not reused until it has answered: after a time-out or Ctrl-C, its answer would count as the answer of the next
    # read.
    _local.reader = None
    limit_s = LIMIT_S if limit_s is None else limit_s
    try:
        result, error = reader.read(read, limit_s)
    except Empty:
        raise TimeoutError(f"the file system has not answered for {limit_s:g} s") from None
    _local.reader = reader
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


class _Reader:
    """A daemon thread that reads for another thread and ends with it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        """A forked process has the object without its thread."""
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=_serve, args=(self._work, self._results), name="read", daemon=True).start()

    def read(self, work: _Work, limit_s: float) -> tuple[Any, BaseException | None]:
        self._work.put(work)
        return self._results.get(timeout=limit_s)

    def __del__(self) -> None:
        self._work.put(None)


def _serve(work: "SimpleQueue[_Work | None]", results: "SimpleQueue[tuple[Any, BaseException | None]]") -> None:
    while (read := work.get()) is not None:
        try:
            results.put((read(), None))
        except BaseException as error:  # belongs to the thread that asked
            results.put((None, error))
        del read
