"""Reads pictures in processes of their own: native code may crash on a picture, and then only this picture is lost.

A picture that was in a process that died is tried again alone in a new process, so a bad picture does not spoil
others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Self, TypeVar

from distill.machine.child_process import follow_parent, spawn_context

Task = TypeVar("Task")
Result = TypeVar("Result")

_WAITING = 2
"""Tasks handed in for each process: one to work on, and the next one."""


class ReaderProcesses:
    """Up to `count` processes. They start with the first task, and end with the block."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool, self._alone = _start_pool(count), _start_pool(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._pool, self._alone):
            pool.shutdown(wait=False, cancel_futures=True)

    def map(
        self, work: Callable[[Task], Result], tasks: Iterable[Task], lost: Callable[[Task], Result]
    ) -> Iterator[Result]:
        """`work` of every task, in the order of the tasks; `lost` of one that ends its process twice."""
        remaining = iter(tasks)
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        while True:
            for task in islice(remaining, _WAITING * self.count - len(waiting)):
                waiting.append((task, self._submit(work, task)))
            if not waiting:
                return
            task, future = waiting.popleft()
            try:
                result = future.result()
            except BrokenProcessPool:
                result = self._result_alone(work, task, lost)
            yield result

    def _submit(self, work: Callable[[Task], Result], task: Task) -> Future[Result]:
        try:
            return self._pool.submit(work, task)
        except BrokenProcessPool:
            self._pool = _start_pool(self.count)
            return self._pool.submit(work, task)

    def _result_alone(self, work: Callable[[Task], Result], task: Task, lost: Callable[[Task], Result]) -> Result:
        try:
            return self._alone.submit(work, task).result()
        except BrokenProcessPool:
            self._alone = _start_pool(1)
            return lost(task)


def _start_pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=spawn_context(), initializer=follow_parent)
