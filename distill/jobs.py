"""Runs jobs at the same time: training stages, or arms of an ablation, each in a new process.

On a machine with several cards each process has one of them. An interrupted command interrupts its jobs in the same
way, and a job whose command was killed stops as after SIGTERM. Does not know what a job does; the caller says when it
may begin.
"""

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, Self

from distill import redact, run_log
from distill.errors import DistillError
from distill.machine import child_process
from distill.types import Progress, ProgressCallback

_LOOK_S = 0.2
_INTERRUPTED = 130
_reports: Any = None
_ending: Any = None
_working = threading.Event()
_open_for_life = ExitStack()


class JobPool:
    """At most `processes` jobs at a time. `with` ends them all when an error or a signal leaves the block."""

    def __init__(self, processes: int, on_progress: ProgressCallback) -> None:
        context = get_context("spawn")
        self._on_progress = on_progress
        self._reports = context.SimpleQueue()
        # Without a lock, which a process that is ended may hold for ever.
        self._ending = context.RawValue("b", 0)
        self._running: dict[Future[Any], Hashable] = {}
        # Read when a job loads torch: together the jobs have as many threads as there are cores.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
        numbers = context.SimpleQueue()
        for number in range(processes):
            numbers.put(number)
        self._pool = ProcessPoolExecutor(
            processes,
            mp_context=context,
            initializer=_begin,
            initargs=(self._reports, self._ending, numbers, run_log.active(), redact.spellings()),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self._ending.value = 1
            for child in active_children():
                child.terminate()  # a stage writes a checkpoint first
        # A job whose reports nothing takes would wait for ever once the pipe is full.
        ending = threading.Thread(target=self._pool.shutdown, kwargs={"cancel_futures": True})
        ending.start()
        while ending.is_alive():
            self._pass_on_reports()
            ending.join(_LOOK_S)
        self._pass_on_reports()

    def submit(self, name: Hashable, job: Callable[..., Any], *args: Any) -> None:
        """Begin `job(*args, on_progress=...)` when a process is free. All of it must be picklable."""
        self._running[self._pool.submit(_run, job, args)] = name

    def results(self) -> Iterator[tuple[Hashable, Future[Any]]]:
        """Jobs as they end, by name, until none is left; more may be submitted meanwhile.

        Raises DistillError when a job's process was killed.
        """
        while self._running:
            done = wait(self._running, timeout=_LOOK_S, return_when=FIRST_COMPLETED).done
            self._pass_on_reports()
            for future in done:
                name = self._running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    raise DistillError(
                        "another process of this command was killed, often because memory was full; run the same "
                        "command again to resume, with fewer --jobs if it happens again"
                    )
                yield name, future

    def _pass_on_reports(self) -> None:
        while not self._reports.empty():
            self._on_progress(self._reports.get())


def _begin(
    reports: Any, ending: Any, numbers: Any, logged: tuple[Path, str, str] | None, secrets: Sequence[bytes]
) -> None:
    global _reports, _ending
    _reports, _ending = reports, ending
    child_process.leave_stdout()
    redact.know(*(secret.decode(errors="surrogatepass") for secret in secrets))
    if logged is not None:
        _open_for_life.enter_context(run_log.joined(*logged))
    devices = _devices()
    if len(devices) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[numbers.get() % len(devices)]
    threading.Thread(target=_end_with_parent, daemon=True).start()


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
    if not _working.is_set():
        os._exit(_INTERRUPTED)
    os.kill(os.getpid(), signal.SIGTERM)


def _run(job: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    _working.set()
    try:
        return job(*args, on_progress=_report)
    finally:
        _working.clear()
        parent = parent_process()
        if _ending.value or parent is None or not parent.is_alive():
            os._exit(_INTERRUPTED)  # nothing reads the result, and the pool's own process would wait for ever


def _report(progress: Progress) -> None:
    _reports.put(progress)
