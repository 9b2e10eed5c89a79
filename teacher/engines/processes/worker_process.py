"""A process that answers requests over two pipes, as JSON lines: for engines in an environment of their own.

The process writes a first line with facts when it is ready. Each request and its answer have the same `id`; answers
come in any order. The process has the guard of all processes that a run starts.
"""

import asyncio
import os
from asyncio import BaseTransport
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson

from distill.errors import TeacherError
from distill.recipe.sections.teachers import Teacher
from teacher.engines.processes.guarded_process import GuardedProcess, exit_status, server_remedy

_LINE_BYTES = 1 << 28
_PAUSE_S = 0.05


class LostError(Exception):
    """The process ended while it worked on a request."""


class WorkerProcess:
    """One process and the requests that it works on."""

    def __init__(
        self, teacher: Teacher, command: Callable[[str, str], list[str]], environment: Mapping[str, str], log: Path
    ) -> None:
        """`command` gives the command line for the descriptors that requests are read from and answers written to."""
        self.in_flight = 0
        """Requests that its engine has given it."""
        self.facts: dict[str, Any] = {}
        self._teacher, self._command, self._environment, self._log = teacher, command, environment, log
        self._process: GuardedProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pipes: list[BaseTransport] = []
        self._listening: asyncio.Task[None] | None = None
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._restarting: asyncio.Task[None] | None = None
        self._crashes = self._asked = 0
        self._sharing = 0
        self._turn = asyncio.Lock()
        self._unlocked = asyncio.Event()
        self._unlocked.set()

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises TeacherError."""
        requests, to_process = os.pipe()
        from_process, answers = os.pipe()
        command = self._command(str(requests), str(answers))
        process = self._process = GuardedProcess(command, self._environment, self._log)
        try:
            reader = await self._open_pipes(from_process, to_process)
            await process.start(pass_fds=(requests, answers))
        finally:
            os.close(requests)
            os.close(answers)
        timeout_s = self._teacher.server.start_timeout_s
        try:
            line = await asyncio.wait_for(reader.readline(), timeout_s)
        except TimeoutError:
            await self._stop_process()
            raise self._error(process, f"did not answer within start_timeout_s = {timeout_s:g}") from None
        if not line.endswith(b"\n"):
            await self._stop_process()
            raise self._error(process, f"ended with {exit_status(process.returncode or 0)} while starting")
        self.facts = orjson.loads(line)
        self._listening = asyncio.create_task(self._listen(reader))

    async def _open_pipes(self, from_process: int, to_process: int) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_process, "rb", 0)
        )
        writing, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(to_process, "wb", 0)
        )
        self._pipes = [reading, writing]
        self._writer = asyncio.StreamWriter(writing, protocol, None, loop)
        return reader

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Pass on answers until the process ends; then its open requests are lost."""
        try:
            # A process that is killed may leave half a line.
            while (line := await reader.readline()).endswith(b"\n"):
                answer = orjson.loads(line)
                waiting = self._answers.pop(answer["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        finally:
            lost, self._answers = self._answers, {}
            for waiting in lost.values():
                if not waiting.done():
                    waiting.set_exception(LostError())

    async def ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the process. Raises LostError when it ends before."""
        await self.restart()
        if self._writer is None or not self._listens:
            raise LostError
        self._asked += 1
        name = str(self._asked)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[name] = answer
        self._writer.write(orjson.dumps({"id": name, **body}) + b"\n")
        with suppress(ConnectionError):  # then the process has ended, and the answer is a LostError
            await self._writer.drain()
        try:
            return await answer
        finally:
            self._answers.pop(name, None)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Work on a request beside others; waits while a request has the process for itself."""
        while not self._unlocked.is_set():  # another request may have taken it meanwhile
            await self._unlocked.wait()
        self._sharing += 1
        try:
            yield
        finally:
            self._sharing -= 1

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """In this block the process works on no other request."""
        async with self._turn:
            self._unlocked.clear()
            try:
                while self._sharing:
                    await asyncio.sleep(_PAUSE_S)
                yield
            finally:
                self._unlocked.set()

    @property
    def _listens(self) -> bool:
        return self._listening is not None and not self._listening.done()

    async def restart(self) -> None:
        """Start the process again if it has ended; requests that were lost share one restart. Raises TeacherError."""
        if self._listens:
            return
        if self._restarting is None or self._restarting.done():
            self._restarting = asyncio.create_task(self._restart())
        await asyncio.shield(self._restarting)

    async def _restart(self) -> None:
        await self._stop_process()
        self._crashes += 1
        allowed = self._teacher.server.restarts
        if self._process is not None and self._crashes > allowed:
            ended = exit_status(self._process.returncode or 0)
            raise self._error(self._process, f"ended with {ended} (given up after restarts = {allowed})")
        await self.start()

    async def _stop_process(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._pipes, self._writer = [], None
        if self._process is not None:
            await self._process.stop()

    async def stop(self) -> None:
        """End the process, and everything that waits for it."""
        for task in (self._restarting, self._listening):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._stop_process()

    def _error(self, process: GuardedProcess, problem: str) -> TeacherError:
        return process.error(f"teacher '{self._teacher.name}': its process {problem}", server_remedy(self._teacher))
