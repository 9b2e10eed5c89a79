"""vLLM without a server: `vllm.LLM` in a process of the teacher's own environment.

The process gets requests and returns completions as JSON lines over two pipes, and runs under the guard that servers
run under. Its program is `offline_worker.py`.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from distill import redact
from distill.errors import RecipeError
from distill.rationale import opened_thinking
from distill.recipe.recipe import Recipe
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from teacher.engines.circuit_breaker import Breaker
from teacher.engines.connect import Done, EngineSettings, Get, local_request, task_group
from teacher.engines.http.chat_protocol import sampling_body
from teacher.engines.image_folders import Folders, UnreadableError
from teacher.engines.image_parts import ImageParts
from teacher.engines.outage import log
from teacher.engines.processes.worker_process import LostError, WorkerProcess
from teacher.engines.vllm.export_server import PYTHON
from teacher.engines.vllm.vllm_options import answer_environment, check_options, interpreter, render, server_files
from teacher.engines.vllm.vllm_server import MEDIA, server_environment, server_program, with_program
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.prompts import messages
from teacher.messages.request import Request

_WORKER = Path(__file__).with_name("offline_worker.py")
_IN_FLIGHT = 256
"""Requests that a process holds where the recipe does not say; vLLM decodes as many at once as its memory allows."""
_ISOLATE_AFTER, _FAIL_AFTER = 2, 3
"""After 2 crashes a request is retried alone; after 3 it fails as `server_lost`. The process is known
to have ended each time; `http_client.py`, which cannot always tell, allows one more."""


class OfflineEngine:
    """One vLLM process for each entry of `server.gpus`; the one with the fewest requests gets the next."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        teacher = settings.teacher
        self._workers: list[WorkerProcess] = []
        self._max_in_flight = teacher.max_in_flight or _IN_FLIGHT
        self._breaker = Breaker(settings.max_failure_share)
        self._folders = Folders(patience_s=settings.patience_s, say=settings.say)
        self._images: ImageParts
        self._slot_free = asyncio.Event()
        self._files = server_files(settings.teacher.server, settings.recipe.path.parent)

    @staticmethod
    def check_program(recipe: Recipe, teacher: Teacher) -> None:
        check_options(
            vllm_server_settings(teacher, recipe.path.parent), f"{recipe.path}: teachers.{teacher.name}.server"
        )

    @property
    def info(self) -> EngineInfo:
        facts = self._workers[0].facts if self._workers else {}
        engine = {"name": "vllm", "version": str(facts.get("version", ""))}
        if facts:
            facts = {
                "max_model_len": facts["max_model_len"],
                "command": redact.command(self._command(("worker.py",))),
                "files": self._files,
                "environment": answer_environment(self._settings.teacher.server),
            }
        return EngineInfo(model=self._settings.teacher.model, engine=engine, facts=facts)

    @property
    def in_flight(self) -> int:
        return sum(worker.in_flight for worker in self._workers)

    def _command(self, program: tuple[str, ...]) -> list[str]:
        """The command line: options of the engine as a server has them, so the same options are the same facts."""
        teacher = self._settings.teacher
        server = vllm_server_settings(teacher, self._settings.recipe.path.parent)
        command = [server.command[0], *program, "--model", self._settings.checkpoint]
        if teacher.revision:
            command += ["--revision", teacher.revision]
        given = [*render(server), *server.extra]
        if MEDIA not in given:
            command += [MEDIA, str(self._settings.images_root.absolute())]
        if teacher.trust_remote_code and "--trust-remote-code" not in given:
            command += ["--trust-remote-code"]
        return [*command, *given]

    async def open(self) -> None:
        settings = self._settings
        log.info("starting vLLM for %s", settings.teacher.name)
        settings.say(f"starting vLLM for {settings.teacher.name}")
        self._images = ImageParts(
            settings.teacher,
            self._folders,
            max_pixels=settings.max_pixels,
            media_root=_media_root(self._command(())),
        )
        for number, gpus in enumerate(settings.teacher.server.gpus or (None,)):
            worker = WorkerProcess(
                settings.teacher,
                lambda *pipes: self._command((str(_WORKER), *pipes)),
                server_environment(settings.teacher.server, gpus),
                settings.folder / f"offline-{number}.log",
            )
            self._workers.append(worker)
        async with task_group() as group:
            for worker in self._workers:
                group.create_task(worker.start())

    async def answer(self, get: Get, done: Done) -> None:
        async with task_group() as group:
            while True:
                while not (free := [each for each in self._workers if each.in_flight < self._max_in_flight]):
                    self._slot_free.clear()
                    await self._slot_free.wait()
                request = await get()
                if request is None:
                    break
                worker = min(free, key=lambda each: each.in_flight)
                worker.in_flight += 1
                group.create_task(self._finish(request, worker, done))

    async def _finish(self, request: Request, worker: WorkerProcess, done: Done) -> None:
        try:
            completion = await self._completion(request, worker)
        finally:
            worker.in_flight -= 1
            self._slot_free.set()
        done(request, completion)
        self._breaker.record(f"teacher '{self._settings.teacher.name}'", completion.error)

    async def _completion(self, request: Request, worker: WorkerProcess) -> Completion:
        """Ask until there is an answer. Raises TeacherError when the process crashes too often."""
        lost = 0
        while True:
            try:
                body = await self._body(request)
                async with worker.alone() if lost >= _ISOLATE_AFTER else worker.shared():
                    started = time.monotonic()
                    answer = await worker.ask(body)
                self._images.check_unchanged(request.prompt.images)
                return _completion(answer, time.monotonic() - started)
            except UnreadableError as failure:
                wait_s = await asyncio.to_thread(self._folders.retry_wait_s, failure.ref, failure.error)
                if not wait_s:
                    return Completion(error=str(failure))
                await asyncio.sleep(wait_s)
            except LostError:
                lost += 1
                if lost >= _FAIL_AFTER:
                    return Completion(error=f"server_lost: vLLM ended {lost} times under this request")

    async def _body(self, request: Request) -> dict[str, Any]:
        """The request as the process gets it. Raises UnreadableError."""
        parts = [orjson.Fragment(await self._images.part(ref)) for ref in request.prompt.images]
        return {
            "messages": messages(request.prompt, parts),
            "seed": request.seed,
            **sampling_body(self._settings.teacher, request.sampling),
        }

    async def describe(self, request: Request, *, model: str = "") -> dict[str, Any]:
        return local_request(self._settings.teacher, request)

    async def close(self) -> None:
        await asyncio.gather(*(worker.stop() for worker in self._workers))


def _completion(answer: Mapping[str, Any], latency_s: float) -> Completion:
    """The completion in an answer of the process."""
    if error := answer.get("error"):
        return Completion(error=redact.cut(str(error), 500), latency_s=latency_s)
    if answer["finish_reason"] in ("abort", "error"):
        return Completion(error=f"server_error: finish_reason {answer['finish_reason']}", latency_s=latency_s)
    likely = answer["likely"]
    return Completion(
        text=opened_thinking(answer["prompt_end"]) + answer["text"],
        **{key: answer[key] for key in ("finish_reason", "stop_reason", "prompt_tokens", "image_tokens")},
        cached_tokens=answer["cached_tokens"],
        completion_tokens=answer["completion_tokens"],
        token_ids=np.array([ids for ids, _ in likely], np.int32) if likely else None,
        token_logprobs=np.array([values for _, values in likely], np.float32) if likely else None,
        latency_s=latency_s,
    )


def _media_root(command: Sequence[str]) -> Path:
    """The folder whose files vLLM may read, from the last such option."""
    option = max(index for index, part in enumerate(command) if part.partition("=")[0] == MEDIA)
    _, equals, value = command[option].partition("=")
    return Path(value if equals else command[option + 1])


def vllm_server_settings(teacher: Teacher, base: Path) -> Server:
    """[teachers.server] with vLLM's Python as its command.

    It is the one beside the program of server.command; where the recipe names none, DISTILL_VLLM_PYTHON may. Raises
    RecipeError when it is not there.
    """
    server, python = teacher.server, os.environ.get(PYTHON, "")
    if not python or server.command != Server().command:
        beside = interpreter(with_program(server, server_program(teacher, base)))
        python = str(beside.absolute()) if beside else ""
    if not Path(python).is_file():
        raise RecipeError(
            f"teachers.{teacher.name}: there is no Python beside {server.command[0]!r}; name one that has vLLM, "
            f'server.command = ["/path/to/vllm/bin/python"], or set {PYTHON} (docs/vllm.md)'
        )
    return server.model_copy(update={"command": (python, "-m", "vllm.entrypoints.openai.api_server")})
