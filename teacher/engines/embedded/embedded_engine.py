"""The engine of embedded teachers: a model in this process.

It runs in a thread of its own, so that Ctrl-C and the progress line do not wait for the end of a batch.
"""

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from teacher.engines.connect import Done, EngineSettings, Get, ReadyRequests, local_request
from teacher.engines.image_folders import Folders
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.request import Request

if TYPE_CHECKING:
    from teacher.engines.embedded.embedded_teacher import EmbeddedTeacher

_WINDOW_BATCHES = 4
"""Batches read ahead, so that prompts of similar length meet in one batch."""


class _StoppedError(Exception):
    """The run has ended; the rest of a batch is not needed."""


class EmbeddedEngine:
    """A checkpoint that transformers runs."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._loaded: EmbeddedTeacher | None = None
        self._in_flight = 0

    @staticmethod
    def check_program(recipe: Recipe, teacher: Teacher) -> None:
        """It runs in this process."""

    @property
    def info(self) -> EngineInfo:
        if self._loaded is not None:
            return self._loaded.info
        return EngineInfo(model=self._settings.teacher.model, engine={"name": "transformers", "version": ""})

    @property
    def in_flight(self) -> int:
        return self._in_flight

    async def open(self) -> None:
        from teacher.engines.embedded.embedded_teacher import EmbeddedTeacher

        settings = self._settings
        self._loaded = EmbeddedTeacher(
            settings.teacher,
            settings.checkpoint,
            max_pixels=settings.max_pixels,
            folders=Folders(patience_s=settings.patience_s, say=settings.say),
            say=settings.say,
        )

    async def answer(self, get: Get, done: Done) -> None:
        assert self._loaded is not None
        requests = ReadyRequests(get)
        max_requests = _WINDOW_BATCHES * (self._settings.teacher.max_in_flight or self._loaded.default_batch)
        try:
            while window := await requests.window(max_requests):
                self._in_flight = len(window)
                await self._answer_window(self._loaded, window, done)
        finally:
            self._in_flight = 0
            requests.close()

    async def _answer_window(self, teacher: "EmbeddedTeacher", window: list[Request], done: Done) -> None:
        """Answer some requests in a thread; `done` is called in this one."""
        loop, stop = asyncio.get_running_loop(), threading.Event()

        async def report(request: Request, completion: Completion) -> None:
            self._in_flight -= 1
            done(request, completion)

        def on_answer(request: Request, completion: Completion) -> None:
            check_stopped()
            asyncio.run_coroutine_threadsafe(report(request, completion), loop).result()

        def check_stopped() -> None:
            if stop.is_set():
                raise _StoppedError

        thread = asyncio.ensure_future(asyncio.to_thread(teacher.answer, window, on_answer, check_stopped))
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.gather(thread, return_exceptions=True)
            raise

    async def describe(self, request: Request, *, model: str = "") -> dict[str, Any]:
        return local_request(self._settings.teacher, request)

    async def close(self) -> None:
        self._loaded = None
