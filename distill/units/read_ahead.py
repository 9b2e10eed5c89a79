"""Requests to a store, several at the same time: most of the time of a small one is spent waiting for its answer."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from distill.machine import interrupts

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 16


def read_ahead(read: Callable[[Item], Result], items: Iterable[Item], at_once: int = AT_ONCE) -> Iterator[Result]:
    """`read` of every item, in their order; it is called for up to `at_once` of them at the same time.

    No more than `at_once` results wait in memory.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(at_once, thread_name_prefix="read-ahead") as pool, interrupts.noted():
        try:
            for item in items:
                waiting.append(pool.submit(read, item))
                if len(waiting) == at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
