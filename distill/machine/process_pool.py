"""Processes that live on from task to task, each led by a thread of this process.

A process that was killed, or that crashed in native code, costs no other task: a new process tries its task again.
"""

import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.reduction import ForkingPickler
from pickle import UnpicklingError
from threading import Lock
from typing import Any, NamedTuple, Self, TypeVar

from distill.errors import DistillError
from distill.machine.child_process import follow_parent, spawn_context

Task = TypeVar("Task")
Result = TypeVar("Result")

_WAITING = 2
"""Tasks handed in for each process: one to work on, and the next one."""
_END = b""


class ProcessLost(DistillError):
    """A process ended before its task."""


class _Led(NamedTuple):
    """A process, and the connection to it."""

    process: Any
    talk: Connection

    def answer(self, message: bytes) -> tuple[Any, BaseException | None] | None:
        """The result or the error of a task; None where the process ended before."""
        with suppress(EOFError, OSError, UnpicklingError):  # a kill may cut a message off
            self.talk.send_bytes(message)
            wait([self.talk, self.process.sentinel])
            if self.talk.poll():
                result: tuple[Any, BaseException | None] = ForkingPickler.loads(self.talk.recv_bytes())
                return result
        return None


class ProcessPool:
    """Up to `count` processes. They start with the first tasks, and end with the block, after the tasks they have.

    A task whose process was killed by a signal is done again, `tries` times in all, so it must be one that may be.
    """

    def __init__(self, count: int, tries: int = 2) -> None:
        self.count = count
        self._tries = tries
        self._threads = ThreadPoolExecutor(count)
        self._all: list[_Led] = []
        self._idle: deque[_Led] = deque()
        self._one_at_a_time = Lock()  # a start looks for the ends of all other processes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for led in self._all:
            with suppress(OSError):
                led.talk.send_bytes(_END)
        for led in self._all:
            led.process.join()
            led.talk.close()

    def submit(self, work: Callable[[Task], Result], task: Task) -> Future[Result]:
        """Let a process do `work` of the task; both must be picklable. The future may raise ProcessLost."""
        return self._threads.submit(self._lead, work, task)

    def map(
        self,
        work: Callable[[Task], Result],
        tasks: Iterable[Task],
        lost: Callable[[Task], Result] | None = None,
    ) -> Iterator[Result]:
        """`work` of every task, in the order of the tasks; few more tasks are made than are worked on.

        Of a task that ends its process at each try the result is that of `lost`; without it, ProcessLost is raised.
        """
        remaining = iter(tasks)
        waiting: deque[tuple[Task, Future[Result]]] = deque()
        try:
            while True:
                for task in islice(remaining, _WAITING * self.count - len(waiting)):
                    waiting.append((task, self.submit(work, task)))
                if not waiting:
                    return
                task, future = waiting.popleft()
                try:
                    result = future.result()
                except ProcessLost:
                    if lost is None:
                        raise
                    result = lost(task)
                yield result
        finally:
            for _, future in waiting:
                future.cancel()

    def terminate(self) -> None:
        """Ask the processes to end in the middle of their tasks."""
        for led in [*self._all]:
            led.process.terminate()

    def _context(self) -> BaseContext:
        return spawn_context()

    def _preparation(self) -> Callable[[], None]:
        """What a process does first; it must be picklable."""
        return follow_parent

    def _lead(self, work: Callable[[Task], Result], task: Task) -> Result:
        message = bytes(ForkingPickler.dumps((work, task)))
        code = 0
        for _ in range(self._tries):
            led = self._free_process()
            if (answer := led.answer(message)) is not None:
                self._idle.append(led)
                result: Result = answer[0]
                if answer[1] is not None:
                    raise answer[1]
                return result
            code = self._exit_code(led)
            if code >= 0:  # what ends by itself does so again
                break
        raise ProcessLost(f"the process of a task {ending(code)}")

    def _free_process(self) -> _Led:
        with suppress(IndexError):
            return self._idle.pop()
        with self._one_at_a_time:
            context: Any = self._context()
            talk, other = context.Pipe()
            process = context.Process(target=_serve, args=(other, self._preparation()))
            process.start()
            other.close()
            self._all.append(led := _Led(process, talk))
        return led

    def _exit_code(self, led: _Led) -> int:
        with self._one_at_a_time:
            led.process.join()
            led.talk.close()
            self._all.remove(led)
        code: int = led.process.exitcode
        return code


def ending(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    why = ", most likely by the system because memory was full" if name == "SIGKILL" else ""
    return f"was killed by {name}{why}"


def portable(error: BaseException) -> BaseException:
    """The error with its traceback as a note, or one that says the same where it cannot be sent to a process."""
    told = "".join(traceback.format_exception(error))
    error.add_note(told)  # its frames stay in this process
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        return RuntimeError(told)
    return error


def _serve(talk: Connection, prepare: Callable[[], None]) -> None:
    prepare()
    with suppress(EOFError, OSError):  # this process has been given up
        while message := talk.recv_bytes():
            try:
                work, task = ForkingPickler.loads(message)
                answer = ForkingPickler.dumps((work(task), None))
            except BaseException as error:
                answer = ForkingPickler.dumps((None, portable(error)))
            talk.send_bytes(answer)
