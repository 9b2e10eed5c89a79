"""Requests for a teacher behind a URL, and a client that answers them: shared by the tests of clients and outages."""

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson

from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.connect import ClientSettings, Get
from teacher.engines.http.http_client import ChatClient
from teacher.messages.completion import Completion
from teacher.messages.request import Model, Request, requests

MODEL = Model(name="stub", revision="", local=False)


def teacher(url: str, **settings: Any) -> Teacher:
    values = {"name": "t", "model": "stub", "base_url": url, "max_in_flight": 8, "timeout_s": 5.0, **settings}
    return Teacher.model_validate(values)


def asked(who: Teacher, *questions: str, images: tuple[ImageRef, ...] = ()) -> list[Request]:
    found = []
    for index, question in enumerate(questions):
        sample = Sample(id=f"{index:020x}", images=images, question=question)
        found += requests(Recipe(), who, MODEL, sample)
    return found


def client_of(
    who: Teacher,
    model: Model = MODEL,
    *,
    revive: Callable[[str], Awaitable[bool]] | None = None,
    **options: Any,
) -> ChatClient:
    values = {"max_pixels": 10**8, "max_failure_share": 1.0, "patience_s": 5.0, **options}
    return ChatClient(ClientSettings(teacher=who, model=model, **values), urls=who.urls, revive=revive)


def given(wanted: Iterable[Request]) -> Get:
    waiting = iter(wanted)

    async def get() -> Request | None:
        return next(waiting, None)

    return get


def answers(who: Teacher, wanted: list[Request], **options: float) -> dict[str, Completion]:
    """The completion of every question."""
    found: dict[str, Completion] = {}

    async def run() -> None:
        async with client_of(who, **options) as client:
            await client.check()
            await client.answer(given(wanted), lambda request, done: found.__setitem__(request.sample.question, done))

    asyncio.run(run())
    return found


def seen(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/seen") as response:
        return orjson.loads(response.read())  # type: ignore[no-any-return]
