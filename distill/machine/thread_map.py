"""A function over many items by a few threads, for work that waits (for a store, a disk) or leaves Python's lock."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
    one for each thread. After an interrupt it does not wait for work that does not end, as code of a user may.
    """
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="map")
    try:
        with interrupts.noted():
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) == (ahead or threads):
                    yield waiting[0].result()
                    waiting.popleft()
            while waiting:
                yield waiting[0].result()
                waiting.popleft()
    finally:
        for future in waiting:
            future.cancel()
        if interrupts.is_noted():
            wait(waiting, timeout=interrupts.left_s())
        pool.shutdown(wait=not interrupts.is_noted())
