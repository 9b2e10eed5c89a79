"""Coroutines below a running event loop, as the cells of a notebook are."""

import asyncio
import threading
from pathlib import Path

import pytest

from distill.machine import event_loop


async def add(number: int) -> tuple[int, str]:
    await asyncio.sleep(0)
    return number + 1, threading.current_thread().name


def test_without_a_loop_a_coroutine_runs_in_the_thread_that_asks():
    assert event_loop.run(add(1)) == (2, threading.current_thread().name)


def test_below_a_running_loop_every_coroutine_of_a_runner_has_the_same_loop():
    async def loop():
        return asyncio.get_running_loop()

    async def cell():
        with event_loop.Runner() as runner:
            assert runner.run(add(1))[0] == 2
            return runner.run(loop()) is runner.run(loop()) is not asyncio.get_running_loop()

    assert asyncio.run(cell())


def test_an_error_below_a_running_loop_is_raised():
    async def fail():
        raise ValueError("planted")

    async def cell():
        event_loop.run(fail())

    with pytest.raises(ValueError, match="planted"):
        asyncio.run(cell())


def test_an_interrupt_of_a_cell_cancels_the_coroutine(monkeypatch):
    started, ended = threading.Event(), threading.Event()

    async def wait():
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    def interrupted():
        started.wait(30)
        raise KeyboardInterrupt

    async def cell():
        with event_loop.Runner() as runner:
            runner.run(add(1))
            original = event_loop.ThreadPoolExecutor.submit

            def submit(pool, function, *arguments):
                future = original(pool, function, *arguments)
                if function.__name__ == "<lambda>":  # of a coroutine
                    future.result = interrupted
                return future

            monkeypatch.setattr(event_loop.ThreadPoolExecutor, "submit", submit)
            runner.run(wait())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    assert ended.is_set()


def test_what_asks_models_runs_below_a_running_loop():
    packages = (Path(__file__).parents[3] / name for name in ("teacher", "filters", "student"))
    modules = [path for package in packages for path in package.rglob("*.py")]
    calls = ("asyncio.run(", "asyncio.Runner(")
    own = [path.name for path in modules if any(call in path.read_text() for call in calls)]
    assert len(modules) > 200 and own == [], "distill.machine.event_loop works in notebooks, too"
