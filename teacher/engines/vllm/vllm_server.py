"""Servers that a run starts for a teacher: their command lines, one process a replica.

This module knows no requests; the client checks which model a server serves.
"""

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Self

from distill import redact
from distill.errors import RecipeError
from distill.local_paths import from_home
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from teacher.engines.connect import task_group
from teacher.engines.processes.guarded_process import GuardedProcess, server_remedy
from teacher.engines.processes.ports import reserve_port
from teacher.engines.processes.server_process import ServerProcess
from teacher.engines.vllm.vllm_options import check_arguments, check_options, is_script, is_vllm, render, server_files

MEDIA = "--allowed-local-media-path"
_QUIET = "--disable-uvicorn-access-log"


class Servers:
    """The replicas of one teacher's server. An async context manager: the servers run inside the block only."""

    def __init__(
        self,
        teacher: Teacher,
        model: str,
        folder: Path,
        *,
        media_root: Path | None = None,
        base: Path | None = None,
        subject: str | None = None,
        remedy: str | None = None,
    ) -> None:
        """`folder` gets the logs. `base` is where relative programs of `command` are looked for: the recipe's folder.

        Errors begin with `subject` and end with `remedy`; by default they are about a teacher in a recipe.
        """
        server = teacher.server
        check_arguments(server, f"teachers.{teacher.name}.server")
        program = server_program(teacher, base or Path())
        check_options(with_program(server, program), f"teachers.{teacher.name}.server")
        media_root = media_root and media_root.absolute()
        self._replicas = [
            ServerProcess(
                server=server,
                process=GuardedProcess(
                    build_command(teacher, model, port.number, program=program, media_root=media_root),
                    server_environment(server, gpus),
                    folder / f"server-{number}.log",
                ),
                port=port,
                subject=subject or f"teacher '{teacher.name}': its server",
                remedy=remedy or server_remedy(teacher),
            )
            for number, (gpus, port) in enumerate((gpus, reserve_port()) for gpus in server.gpus or (None,))
        ]
        self.urls = tuple(replica.url for replica in self._replicas)
        command = self._replicas[0].process.command
        self.media_root = media_root if str(media_root) in command else None
        """The folder whose files the servers may read."""
        self.command = redact.command(command)
        """The command line of the first replica, for provenance; secrets are masked."""
        self.files = server_files(server, base or Path())

    async def __aenter__(self) -> Self:
        """Start every replica and wait until all answer. Raises TeacherError when one does not."""
        try:
            async with task_group() as group:
                for replica in self._replicas:
                    group.create_task(replica.start())
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(replica.close() for replica in self._replicas))

    async def revive(self, url: str) -> bool:
        """Have a replica that broke a connection answer again, started again if it has to be.

        True when it was down and is up again; False when it was healthy all the time, so that the cause is elsewhere.
        Callers share one restart. Raises TeacherError when it has crashed more often than `restarts` allows.
        """
        return await next(replica for replica in self._replicas if replica.url == url).revive()

    @property
    def crashes(self) -> int:
        """Crashes so far, of all replicas."""
        return sum(replica.crashes for replica in self._replicas)


def build_command(
    teacher: Teacher, model: str, port: int, *, program: str | None = None, media_root: Path | None = None
) -> list[str]:
    """The command line of a teacher's server."""
    server = with_program(teacher.server, program or teacher.server.command[0])
    command = [*server.command]
    command += [model] if command[-1] == "serve" else ["--model", model]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    if teacher.served_model:
        command += ["--served-model-name", teacher.served_model]
    if teacher.revision:
        command += ["--revision", teacher.revision]
    given = render(server)
    if is_vllm(server):
        taken = {*given, *server.extra}
        if media_root and MEDIA not in taken:
            command += [MEDIA, str(media_root)]
        if teacher.trust_remote_code and "--trust-remote-code" not in taken:
            command += ["--trust-remote-code"]
        if not taken & {_QUIET, _QUIET.replace("disable", "enable"), _QUIET.replace("--", "--no-", 1)}:
            command += [_QUIET]  # it would log one line for each request
    return [*command, *given, *server.extra]


def with_program(server: Server, program: str) -> Server:
    """A server whose command has the path of its program; a script in Python runs in this Python."""
    called = (sys.executable, program) if is_script(server) else (program,)
    return server.model_copy(update={"command": (*called, *server.command[1:])})


def server_program(teacher: Teacher, base: Path) -> str:
    """The program of a server's command; a path counts from the recipe's folder. Raises RecipeError without one.

    A path to a file of Python (".py") needs no right to be executed.
    """
    name = teacher.server.command[0]
    search = teacher.server.environment.get("PATH") or os.environ.get("PATH")
    # Not resolved: python of a virtual environment is a link that must be called by its own name.
    program = str(base.absolute() / from_home(name)) if "/" in name else name
    if not (is_script(teacher.server) and Path(program).is_file()) and not shutil.which(program, path=search):
        raise RecipeError(
            f"teachers.{teacher.name}.server.command: there is no program {program!r}; install vLLM into an "
            'environment of its own and name it, command = ["/path/to/vllm/bin/vllm", "serve"] (docs/vllm.md), or '
            "set base_url to a running server"
        )
    return program


def server_environment(server: Server, gpus: str | None) -> dict[str, str]:
    """The environment of a process that the run starts, on these GPUs."""
    gpu_settings = {"CUDA_VISIBLE_DEVICES": gpus} if gpus is not None else {}
    return {**os.environ, **gpu_settings, **server.environment}
