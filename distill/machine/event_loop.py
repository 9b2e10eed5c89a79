"""Runs coroutines from plain code, also where its thread has a running event loop, as in a notebook."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from distill.machine import interrupts

_Result = TypeVar("_Result")


class Runner:
    """An `asyncio.Runner`; inside a running loop, where this is impossible, it works in a thread of its own.

    An interrupt of the waiting thread cancels the coroutine.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._thread = ThreadPoolExecutor(1, "event-loop") if _has_loop() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            interrupts.note()  # the loop waits for its threads when it is closed
        self.close()

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        return self._call(lambda: self._runner.run(coroutine))

    def close(self) -> None:
        self._call(self._runner.close)
        if self._thread is not None:
            self._thread.shutdown()

    def _call(self, function: Callable[[], _Result]) -> _Result:
        if self._thread is None:
            return function()
        loop = self._thread.submit(self._runner.get_loop).result()
        future = self._thread.submit(function)
        try:
            return future.result()
        except KeyboardInterrupt:
            if not future.done():
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
            raise


def run(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    with Runner() as runner:
        return runner.run(coroutine)


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
