"""Processes for the heavy steps of a command: they start once and serve every step.

A step is a function over many tasks; its results come in the order of the tasks, so they do not depend on the number
of processes. With one process the caller does the work itself.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Self, TypeVar

import pyarrow as pa

from distill import extensions
from distill.data.arrow import leave_pandas_out
from distill.errors import DistillError
from distill.machine.child_process import follow_parent, spawn_context
from filters.tables import fork_server

Task = TypeVar("Task")
Result = TypeVar("Result")

_WAITING = 2
"""Tasks handed in for each process: one to work on, and the next one."""
_COMMANDS = ("distill", "__main__")
"""The programs of `distill` and `python -m distill`."""


class Workers:
    """Up to `count` processes. They start with the first step that has several tasks, and end with the block."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._threads: ThreadPoolExecutor | None = None
        if count > 1:
            fork_server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._threads is not None:
            self._threads.shutdown()  # their work waits for nothing any more

    def beside(self, work: Callable[[], Result]) -> Future[Result]:
        """Start `work`, which hands tasks to the processes, and go on; if none has started, it is done at once.

        It runs in a thread, so it must share no database with the caller.
        """
        if self._pool is None:
            done: Future[Result] = Future()
            done.set_result(work())
            return done
        self._threads = self._threads or ThreadPoolExecutor(2)
        return self._threads.submit(work)

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """`work` of every task, in the order of the tasks; few more tasks are made than are worked on.

        Raises DistillError when a process died.
        """
        remaining = iter(tasks)
        first = list(islice(remaining, 2))
        if self.count <= 1 or (len(first) < 2 and self._pool is None):
            yield from map(work, first)
            yield from map(work, remaining)
            return
        pool = self._started()
        waiting: deque[Future[Result]] = deque()
        try:
            waiting.extend(pool.submit(work, task) for task in first)
            waiting.extend(pool.submit(work, task) for task in islice(remaining, _WAITING * self.count - 2))
            while waiting:
                yield waiting.popleft().result()
                waiting.extend(pool.submit(work, task) for task in islice(remaining, 1))
        except BrokenProcessPool as error:
            causes = ", or ".join(_causes_of_death())
            raise DistillError(
                f"a filter worker died (most likely {causes}); finished partitions are kept: run the same command "
                "again, with fewer filter.workers or a smaller filter.partition_rows"
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count,
                mp_context=get_context("forkserver") if fork_server.IS_AVAILABLE else spawn_context(),
                initializer=_start_worker,
                initargs=(extensions.loaded_code(), dict(os.environ)),
            )
        return self._pool


SERIAL = Workers(1)


def _causes_of_death() -> Iterator[str]:
    """What may have ended a process."""
    yield "out of memory"
    if extensions.loaded_code():
        yield "your own code ended it"
    if (script := getattr(sys.modules["__main__"], "__file__", None)) and Path(script).stem not in _COMMANDS:
        yield f'{script} calls the filter outside of `if __name__ == "__main__":`, and a worker imports that file'


def _start_worker(loaded: Sequence[extensions.LoadedFile | str], environment: Mapping[str, str]) -> None:
    # A process of the fork server has the environment of the first command of its parent.
    os.environ.clear()
    os.environ.update(environment)
    follow_parent()
    extensions.run_code(loaded)
    # A worker has one core: threads inside would compete for it.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)
    leave_pandas_out()
