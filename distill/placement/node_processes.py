"""The processes of one machine in a training on several machines, as torchrun starts them.

Every process finds its rank where torchrun and accelerate put it: in its environment. Does not know the work.
"""

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import partial
from typing import NamedTuple

from distill.errors import DistillError
from distill.machine.process_pool import ProcessLost, ProcessPool

GRACE_S = 20.0
"""Seconds that other processes have to end by themselves when one has failed."""


class Ranks(NamedTuple):
    """The processes of one machine among the processes of all machines."""

    machine: int
    machines: int
    processes: int
    """Processes of each machine."""
    address: str
    """Address of the machine of rank 0, to which all processes connect."""
    port: int

    def environment(self, local: int) -> dict[str, str]:
        """The environment variables that a launcher sets for the process of this number on its machine."""
        values = {
            "RANK": self.machine * self.processes + local,
            "WORLD_SIZE": self.machines * self.processes,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": self.processes,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
        }
        return {name: str(value) for name, value in values.items()}


def free_port() -> int:
    """A port of this machine on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def run_processes(work: Callable[[], None], ranks: Ranks) -> None:
    """Run `work`, which can be pickled, in the processes of this machine, until all have ended.

    When one fails, or an interrupt ends the waiting, the others get SIGTERM. Raises the error of a failed process, a
    DistillError before other errors; ProcessLost where one was killed.
    """
    with ProcessPool(ranks.processes, tries=1) as pool:
        try:
            enter = partial(_enter, work)
            futures = [pool.submit(enter, ranks.environment(local)) for local in range(ranks.processes)]
            wait(futures, return_when=FIRST_EXCEPTION)
            wait(futures, timeout=GRACE_S)
            errors = [error for future in futures if future.done() and (error := future.exception()) is not None]
        finally:
            pool.terminate()
    error = first_cause(errors, ProcessLost)
    if isinstance(error, ProcessLost):
        raise ProcessLost(f"{socket.gethostname()}: {error}")
    if error is not None:
        raise error


def first_cause(errors: Sequence[BaseException], *losses: type[BaseException]) -> BaseException | None:
    """The error that is raised for several processes: a loss, else a DistillError, else any; None without errors."""
    for kinds in (losses, DistillError, BaseException):
        for error in errors:
            if isinstance(error, kinds):
                return error
    return None


def _enter(work: Callable[[], None], environment: dict[str, str]) -> None:
    os.environ |= environment
    work()
