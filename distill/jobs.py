"""Runs jobs at the same time: training stages, or arms of an ablation, each in a new process of its own.

On a machine with several cards each process has one of them. An interrupted command interrupts its jobs in the same
way, and a job whose command was killed stops as after SIGTERM. A job whose process was killed has failed; the others
go on. Does not know what a job does; the caller says when it may begin.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import active_children, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Self

from distill import redact, run_log
from distill.errors import DistillError
from distill.machine import child_process
from distill.machine.process_pool import ending, portable
from distill.types import Progress, ProgressCallback

_LOOK_S = 0.2
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class _Running:
    """A job with its process, what the process says, and its number among those that run."""

    name: Hashable
    process: Any
    said: Connection
    number: int

    def read(self, on_progress: ProgressCallback) -> Future[Any] | None:
        """Pass on what the job reports; how it ended, None while it runs."""
        is_alive = self.process.is_alive()  # asked first: what a process has said is read also after its end
        with suppress(EOFError, OSError, UnpicklingError):  # a kill or an interrupt may cut a message off
            while self.said.poll():
                said = self.said.recv()
                if not isinstance(said, Progress):
                    return _ended(*said)
                on_progress(said)
        return None if is_alive else _ended(None, _lost(self.process.exitcode))


class JobPool:
    """At most `processes` jobs at a time. `with` ends them all when an error or a signal leaves the block."""

    def __init__(self, processes: int, on_progress: ProgressCallback) -> None:
        self._on_progress = on_progress
        self._context = child_process.spawn_context()
        self._waiting: deque[tuple[Hashable, bytes]] = deque()
        self._running: list[_Running] = []
        self._free = deque(range(processes))
        # Read when a job loads torch: together the jobs have as many threads as there are cores.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._waiting.clear()
        if error is not None:
            for child in active_children():
                child.terminate()  # a stage writes a checkpoint first
        for _ in self.results():  # a job whose reports nothing takes would wait for ever once the pipe is full
            pass

    def submit(self, name: Hashable, job: Callable[..., Any], *args: Any) -> None:
        """Begin `job(*args, on_progress=...)` when a process is free. Function and arguments must be picklable."""
        self._waiting.append((name, bytes(ForkingPickler.dumps((job, args)))))
        self._begin_waiting()

    def results(self) -> Iterator[tuple[Hashable, Future[Any]]]:
        """Jobs as they end, by name, until none is left; more may be submitted meanwhile.

        A job whose process was killed has failed with a DistillError.
        """
        while self._running:
            wait([running.said for running in self._running], _LOOK_S)
            for running in [*self._running]:
                if (ended := running.read(self._on_progress)) is not None:
                    running.process.join()
                    running.said.close()
                    self._running.remove(running)
                    self._free.append(running.number)
                    self._begin_waiting()
                    yield running.name, ended

    def _begin_waiting(self) -> None:
        while self._waiting and self._free:
            (name, job), number = self._waiting.popleft(), self._free.popleft()
            receiving, sending = self._context.Pipe(duplex=False)
            args = (sending, job, number, run_log.active(), redact.spellings())
            process = self._context.Process(target=_run, args=args)
            process.start()
            sending.close()
            self._running.append(_Running(name, process, receiving, number))


def _ended(result: Any, error: BaseException | None) -> Future[Any]:
    future = Future[Any]()
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
    return future


def _lost(code: int) -> DistillError:
    """The error of a job whose process ended without a result."""
    return DistillError(
        f"the process of this job {ending(code)}; run the same command again to resume, with fewer --jobs if it "
        "happens again"
    )


def _run(
    said: Connection, job: bytes, number: int, logged: tuple[Path, str, str] | None, secrets: Sequence[bytes]
) -> None:
    child_process.leave_stdout()
    redact.know(*(secret.decode(errors="surrogatepass") for secret in secrets))
    devices = _devices()
    if len(devices) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    lock = threading.Lock()

    def report(progress: Progress) -> None:
        with lock:
            said.send(progress)

    ended: tuple[Any, BaseException | None]
    try:
        with run_log.joined(*logged) if logged is not None else nullcontext():
            function, args = ForkingPickler.loads(job)
            ended = function(*args, on_progress=report), None
    except BaseException as error:
        ended = None, portable(error)
    try:
        said.send(ended)
    except BrokenPipeError:
        os._exit(_INTERRUPTED)  # the command was killed


def _devices() -> list[str]:
    """The cards that this command may use, without loading torch."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
