"""Processes for the heavy steps of a command: they start once and serve every step.

A step is a function over many tasks; its results come in the order of the tasks, so they do not depend on the number
of processes. With one process the caller does the work itself.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path

import pyarrow as pa

from distill import extensions
from distill.data.arrow import leave_pandas_out
from distill.machine.child_process import follow_parent
from distill.machine.process_pool import ProcessLost, ProcessPool, Result, Task
from filters.tables import fork_server

_COMMANDS = ("distill", "__main__")
"""The programs of `distill` and `python -m distill`."""


class Workers(ProcessPool):
    """Up to `count` processes. They start with the first step that has several tasks, and end with the block."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._has_started = False
        self._beside: ThreadPoolExecutor | None = None
        if count > 1:
            fork_server.start()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._beside is not None:
            self._beside.shutdown()  # their work waits for nothing any more

    def beside(self, work: Callable[[], Result]) -> Future[Result]:
        """Start `work`, which hands tasks to the processes, and go on; if none has started, it is done at once.

        It runs in a thread, so it must share no database with the caller.
        """
        if not self._has_started:
            done: Future[Result] = Future()
            done.set_result(work())
            return done
        self._beside = self._beside or ThreadPoolExecutor(2)
        return self._beside.submit(work)

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Iterable[Task],
        lost: Callable[[Task], Result] | None = None,
    ) -> Iterator[Result]:
        """As of any pool, and ProcessLost says what may have ended a process."""
        remaining = iter(tasks)
        first = list(islice(remaining, 2))
        if self.count <= 1 or (len(first) < 2 and not self._has_started):
            yield from map(work, first)
            yield from map(work, remaining)
            return
        self._has_started = True
        try:
            yield from super().map(work, chain(first, remaining), lost)
        except ProcessLost as error:
            causes = ", or ".join(_causes_of_death())
            raise ProcessLost(
                f"filter: {error} (possible causes: {causes}); finished partitions are kept: run the same command "
                "again, with fewer filter.workers or a smaller filter.partition_rows"
            ) from error

    def _context(self) -> BaseContext:
        return get_context("forkserver") if fork_server.IS_AVAILABLE else super()._context()

    def _preparation(self) -> Callable[[], None]:
        return partial(_start_worker, extensions.loaded_code(), dict(os.environ))


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
