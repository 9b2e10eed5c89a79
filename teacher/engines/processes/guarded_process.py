"""A program that the run starts for an engine: it has a guard and a log, and ends with the run.

The guard (`process_guard.py` beside this file) ends the program when this process ends, however it ends, and masks
secrets in the log.
"""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from distill import redact
from distill.errors import TeacherError
from distill.recipe.sections.teachers import Teacher
from teacher.engines.processes import process_guard

_GRACE_S = 20.0
"""Between SIGTERM and SIGKILL; vLLM needs a few seconds to let go of its GPUs."""
_TAIL_LINES = 15
_CAUSES = 3
_LINE_CHARACTERS = 500
_LOG_BYTES = 1 << 23
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception): .+)")
"""The last line of a Python traceback, after any prefix of a worker's lines."""


class GuardedProcess:
    """One program; it can be started again after it has ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.command = list(command)
        self.log = log
        self._environment = dict(environment)
        self._log_start = 0
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if self._process else None

    async def start(self, *, pass_fds: Sequence[int] = ()) -> None:
        """Start the program; it inherits the file descriptors `pass_fds`."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            log.write(
                f"=== {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC: {' '.join(redact.command(self.command))}\n".encode()
            )
            log.flush()
            # -I and -S: what PYTHONPATH or the environment holds is for the program, not for its guard.
            guard = (sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), f"{_GRACE_S:g}")
            self._process = await asyncio.create_subprocess_exec(
                *guard,
                *self.command,
                stdin=PIPE,
                stdout=log,
                stderr=STDOUT,
                env=self._environment,
                pass_fds=pass_fds,
                start_new_session=True,  # Ctrl-C is for the client; it still needs the program to end well
            )
        await self._send_secrets(self._process)

    async def _send_secrets(self, process: Process) -> None:
        """Send the guard the secrets that must not appear in the program's log."""
        assert process.stdin is not None
        redact.know_environment(self._environment)
        with suppress(ConnectionError):
            process.stdin.write(b" ".join(secret.hex().encode() for secret in redact.spellings()) + b"\n")
            await process.stdin.drain()

    async def stop(self) -> None:
        """End the program and all that it has started."""
        process = self._process
        if process is None:
            return
        if process.stdin:
            process.stdin.close()  # the guard also ends its program
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S + 20)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def log_excerpt(self) -> str:
        """The end of the log since the last start, after the last errors further up, which often give the cause."""
        with self.log.open("rb") as log:
            log.seek(max(self._log_start, self.log.stat().st_size - _LOG_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        earlier, end = lines[:-_TAIL_LINES], lines[-_TAIL_LINES:]
        causes = [match[1] for line in earlier if (match := _ERROR.search(line)) and "root cause" not in line]
        shown = [*dict.fromkeys(reversed(causes))][_CAUSES - 1 :: -1]
        return "\n".join(
            f"    {redact.message(line)[:_LINE_CHARACTERS]}" for line in [*shown, *(["..."] if shown else []), *end]
        )

    def error(self, problem: str, remedy: str) -> TeacherError:
        """The error of this program: what is wrong, the end of its log, what to do."""
        return TeacherError(f"{problem}; the end of {self.log}:\n{self.log_excerpt()}\n{remedy}")


def server_remedy(teacher: Teacher) -> str:
    """What to do about a process of a teacher that does not start or does not stay."""
    return (
        f"correct [teachers.server] of '{teacher.name}' (docs/vllm.md), then run the same command again; "
        "finished traces are kept"
    )


def exit_status(code: int) -> str:
    """An exit code as text, with the name of the signal where there was one."""
    if code > 128:
        with suppress(ValueError):
            return f"exit code {code} ({signal.Signals(code - 128).name})"
    return f"exit code {code}"
