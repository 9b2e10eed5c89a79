"""`distill` in processes that are forked from one that has loaded it: a start costs hundredths of a second."""

import multiprocessing
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from distill import cli

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["processes.forked", "teacher.generate", "filters.apply", "distill.commands.stages"])
_LONGEST_S = 1800.0


def _run(arguments: Sequence[str], log: Path, most_bytes: int) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    sys.argv = ["distill", *arguments]
    cli.main()


class Forked:
    """One command; it can write no file larger than `most_bytes`, if that is not 0."""

    def __init__(self, arguments: Sequence[str], log: Path, most_bytes: int = 0) -> None:
        self._process = _FORKS.Process(target=_run, args=(arguments, log, most_bytes))
        self._process.start()

    @property
    def running(self) -> bool:
        return self._process.exitcode is None

    def wait(self, timeout_s: float = _LONGEST_S) -> int | None:
        """The exit code, negative for a signal; None when it still runs."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def signal(self, number: int) -> None:
        if self.running and self._process.pid is not None:
            os.kill(self._process.pid, number)
