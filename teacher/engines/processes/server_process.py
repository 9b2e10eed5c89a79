"""A server that the run starts and that answers at an address of this machine: start, health, crashes, the end.

It runs under `process_guard.py`, so it ends when this process ends, however that happens, and writes to a log of its
own.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from distill.errors import TeacherError
from distill.recipe.sections.managed_server import Server
from teacher.engines.http.connections import CONNECTION_ERRORS, fetch
from teacher.engines.processes.guarded_process import GuardedProcess, exit_status
from teacher.engines.processes.ports import ReservedPort

_RESTART_PAUSE_S = 1.0
_POLL_S = 0.25
_HEALTH_TIMEOUT_S = 10.0
_HUNG_AFTER_S = 120.0
"""A server that runs and does not answer for so long counts as crashed."""


@dataclass(slots=True, kw_only=True)
class ServerProcess:
    """One server: its guard, its log, its crashes."""

    server: Server
    process: GuardedProcess
    port: ReservedPort
    subject: str
    remedy: str
    crashes: int = 0
    _reviving: asyncio.Task[bool] | None = None
    _given_up: TeacherError | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port.number}"

    @property
    def url(self) -> str:
        """The base URL of its OpenAI API."""
        return f"{self.address}/v1"

    async def start(self) -> None:
        """Start the process and wait for its health. Raises TeacherError when it ends or takes too long."""
        await self.process.start(pass_fds=[self.port.fileno()])
        timeout_s = self.server.start_timeout_s
        if await self._healthy(timeout_s):
            return
        ended = self.process.returncode
        await self.process.stop()
        if ended is None:
            raise self._error(f"did not answer within start_timeout_s = {timeout_s:g}")
        raise self._error(f"ended with {exit_status(ended)} while starting")

    async def revive(self) -> bool:
        if self._reviving is None or self._reviving.done():
            self._reviving = asyncio.create_task(self._revive())
            # The tasks that waited for it may have ended by then.
            self._reviving.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._reviving)

    async def _revive(self) -> bool:
        if self._given_up:
            raise self._given_up
        if await self._healthy(0):
            return False
        if await self._healthy(_HUNG_AFTER_S):
            return True
        ended = self.process.returncode
        await self.process.stop()
        crash = self._error(
            f"did not answer for {_HUNG_AFTER_S:g} s" if ended is None else f"ended with {exit_status(ended)}"
        )
        allowed = self.server.restarts
        self.crashes += 1
        while self.crashes <= allowed:
            try:
                await self.start()
            except TeacherError as error:
                crash = error
                self.crashes += 1
                await asyncio.sleep(_RESTART_PAUSE_S)
            else:
                return True
        self._given_up = TeacherError(f"{crash} (given up after restarts = {allowed})")
        raise self._given_up

    async def close(self) -> None:
        """End the process and all it has started."""
        if self._reviving and not self._reviving.done():
            self._reviving.cancel()
            await asyncio.gather(self._reviving, return_exceptions=True)
        await self.process.stop()
        self.port.close()

    async def _healthy(self, patience_s: float) -> bool:
        """Whether the process answers before it ends and before patience does; asked once at least."""
        deadline = time.monotonic() + patience_s
        health = f"{self.address}/health"
        while self.process.running:
            with suppress(*CONNECTION_ERRORS):
                page = await fetch(health, {}, proxy=None, max_bytes=1 << 20, limit_s=_HEALTH_TIMEOUT_S)
                if page.status == 200:
                    return True
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL_S)
        return False

    def _error(self, problem: str) -> TeacherError:
        return self.process.error(f"{self.subject} {problem}", self.remedy)
