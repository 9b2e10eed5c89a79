"""A pool of jobs that runs them in this process, and notes what it was given."""

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from distill.errors import DataError


class PoolInProcess:
    """In the place of distill.jobs.JobPool; how an error comes out of a process is tested with that pool itself."""

    def __init__(self, begun: list[Hashable]) -> None:
        self.begun = begun
        self.ended: list[tuple[Hashable, Future[Any]]] = []

    def __enter__(self) -> "PoolInProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, name: Hashable, job: Callable[..., Any], *args: object) -> None:
        self.begun.append(name)
        future = Future[Any]()
        try:
            future.set_result(job(*args))
        except DataError as error:
            future.set_exception(error)
        self.ended.append((name, future))

    def results(self) -> Iterator[tuple[Hashable, Future[Any]]]:
        while self.ended:
            yield self.ended.pop(0)


def replace_pools(monkeypatch: pytest.MonkeyPatch, *modules: str) -> list[Hashable]:
    """Let these modules run their jobs in this process; the names of the jobs, as they begin."""
    begun: list[Hashable] = []
    for module in modules:
        monkeypatch.setattr(f"{module}.JobPool", lambda processes, on_progress: PoolInProcess(begun))
    return begun
