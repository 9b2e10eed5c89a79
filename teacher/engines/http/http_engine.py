"""The engine of teachers behind HTTP: servers that the recipe names, or that the run starts and ends."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import orjson

from distill import redact
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from teacher.engines.connect import Done, EngineSettings, Get
from teacher.engines.http.chat_protocol import shown_headers
from teacher.engines.http.concurrency import read_found, write_found
from teacher.engines.http.http_client import ChatClient
from teacher.engines.outage import log
from teacher.engines.provenance import require_same_model
from teacher.engines.vllm.vllm_options import answer_environment, check_options
from teacher.engines.vllm.vllm_server import Servers, server_program, with_program
from teacher.messages.completion import EngineInfo
from teacher.messages.request import Request

_NO_SERVER_YET = "http://127.0.0.1:8000/v1"
"""Shown in place of the address of a server that only a run starts."""


class HttpEngine:
    """A client, and the servers behind it where the run starts them."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._command: list[str] = []
        self._files: dict[str, str] = {}
        self._client = self._client_of(settings.teacher.urls or (_NO_SERVER_YET,))

    @staticmethod
    def check_program(recipe: Recipe, teacher: Teacher) -> None:
        if teacher.managed:
            server = with_program(teacher.server, server_program(teacher, recipe.path.parent))
            check_options(server, f"{recipe.path}: teachers.{teacher.name}.server")

    @property
    def info(self) -> EngineInfo:
        info = self._client.info
        if not self._command:
            return info
        environment = answer_environment(self._settings.teacher.server)
        started = {"command": self._command, "files": self._files, "environment": environment}
        return replace(info, facts={**info.facts, **started})

    @property
    def in_flight(self) -> int:
        return self._client.in_flight

    async def open(self) -> None:
        settings, teacher = self._settings, self._settings.teacher
        if teacher.managed:
            log.info("starting the server of %s", teacher.name)
            settings.say(f"starting the server of {teacher.name}")
            servers = Servers(
                teacher,
                settings.checkpoint,
                settings.folder,
                media_root=settings.images_root,
                base=settings.recipe.path.parent,
            )
            await self._stack.enter_async_context(servers)
            self._command, self._files = servers.command, servers.files
            self._client = self._client_of(servers.urls, revive=servers.revive, media_root=servers.media_root)
        await self._stack.enter_async_context(self._client)
        await self._client.check(patience_s=settings.start_patience_s)
        if not teacher.managed:
            require_same_model(settings.folder, teacher, self._client.info.model)

    def _client_of(self, urls: tuple[str, ...], **options: Any) -> ChatClient:
        return ChatClient(self._settings, urls=urls, found=read_found(self._settings.folder), **options)

    async def answer(self, get: Get, done: Done) -> None:
        await self._client.answer(get, done)

    async def describe(self, request: Request, *, model: str = "") -> dict[str, Any]:
        """The request as HTTP, its images inside; the key is named and not shown."""
        client, teacher = self._client, self._settings.teacher
        if model:
            client.info = EngineInfo(model=model, engine={})
        return {
            "method": "POST",
            "url": redact.url(f"{client.replicas[0].url}/chat/completions"),
            "headers": shown_headers(teacher),
            "body": orjson.loads(b"".join(await client.body(request, inside=True))),
        }

    async def close(self) -> None:
        try:
            write_found(self._settings.folder, (replica.concurrency for replica in self._client.replicas))
        finally:
            await self._stack.aclose()
