"""Ports for servers that a run starts: each belongs to one server of this user until it is closed.

A server loads for minutes before it listens. vLLM listens with SO_REUSEPORT, so two servers on one port give no
error: each server answers a part of the requests for both. A lock holds a port from the choice on. It is passed on to
the process that guards the server, so it also holds while a killed run's server ends.
"""

import os
import random
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from distill.artifacts.files import storage_errors
from distill.errors import TeacherError
from distill.machine.file_locks import try_lock

_PORTS = range(18000, 32000)
"""Below those that systems give to outgoing connections: a port stays free while its server restarts."""
_TRIES = 100
_RANDOM = random.SystemRandom()
"""Not the common generator: training sets its seed, and then two commands would choose the same ports."""


class ReservedPort:
    """A free port of this machine, held by a lock until `close`."""

    def __init__(self, number: int, lock: IO[bytes]) -> None:
        self.number = number
        self._lock = lock

    def fileno(self) -> int:
        """The lock, for a process that inherits it."""
        return self._lock.fileno()

    def close(self) -> None:
        self._lock.close()


def reserve_port() -> ReservedPort:
    """A port that no program listens on and no other run of this user holds. Raises TeacherError without one."""
    folder = Path(tempfile.gettempdir()) / f"cot-distill-ports-{os.getuid()}"
    with storage_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
    for number in _RANDOM.sample(_PORTS, _TRIES):
        with storage_errors(folder):
            lock = (folder / str(number)).open("ab")
        with suppress(OSError):
            if try_lock(lock.fileno()):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
                return ReservedPort(number, lock)
        lock.close()
    raise TeacherError(
        f"none of {_TRIES} ports tried from {_PORTS.start} to {_PORTS.stop - 1} of 127.0.0.1 is free; stop servers "
        "that no run needs"
    )
