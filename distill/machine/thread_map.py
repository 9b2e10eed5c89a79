"""A function over many items by a few threads, for work that waits (for a store, a disk) or leaves Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from distill.machine import interrupts

Item = TypeVar("Item")
Result = TypeVar("Result")

REQUESTS = 16
"""Small requests to a store that are sent at the same time: most of their time is spent waiting for the answer."""


def thread_map(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int = REQUESTS, *, ahead: int | None = None
) -> Iterator[Result]:
    """`work` of every item, in their order.

    No more than `ahead` items are taken before their results are, so that few results wait in memory. The default is
    one for each thread.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="map") as pool, interrupts.noted():
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) == (ahead or threads):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
