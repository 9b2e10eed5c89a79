"""Opens the engine of a teacher: in this process, on a server, or in a separate process.

`connect` is the only way to an engine. `distill/recipe/backends.py` names the class of each backend; every class has
the methods of `Engine`. This module does not choose the requests and does not parse the answers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from distill.data import sources
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.generate import Generate
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef
from teacher.engines.http.batch_records import BatchRecords
from teacher.engines.outage import Say
from teacher.messages.completion import Completion, EngineInfo
from teacher.messages.prompts import messages
from teacher.messages.request import Model, Request

Get = Callable[[], Awaitable[Request | None]]
"""The next request, once there is one; None when there will be no more."""
Done = Callable[[Request, Completion], None]
Upcoming = Callable[[int], Iterable[ImageRef]]
"""Images that probably come next, of about so many samples. An answer does not depend on them."""


def getter(requests: Iterable[Request]) -> Get:
    """Gives these requests one after the other, without a wait."""
    waiting = iter(requests)

    async def get() -> Request | None:
        return next(waiting, None)

    return get


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of the requests to a teacher, for every kind of engine."""

    teacher: Teacher
    model: Model
    max_pixels: int
    max_failure_share: float
    """More failures than this among the last requests stop the run."""
    patience_s: float = Generate().patience_s
    """How long an outage may last."""
    known_request: Callable[[], Request | None] = lambda: None
    """A request that was answered in an earlier run, to find out whether a server answers at all."""
    upcoming: Upcoming = lambda _: ()
    """Gives images to prepare ahead."""
    say: Say = lambda _: None
    """Gets one line for each outage that is waited for and for each start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings(ClientSettings):
    """All settings of an engine."""

    recipe: Recipe
    folder: Path
    """Gets the logs of processes that the engine starts."""
    start_patience_s: float
    """How long a server that is attached to may be away at the start."""
    batch_records: BatchRecords | None = None
    """Where batch files are written down, if not in `folder`."""

    @property
    def checkpoint(self) -> str:
        """The directory or the hub name of the model."""
        return self.recipe.local_or_hub(self.teacher.model)

    @property
    def images_root(self) -> Path:
        """The folder of the images."""
        return sources.locate(self.recipe, ASKED).root


class Engine(Protocol):
    """The engine of one teacher."""

    def __init__(self, settings: EngineSettings) -> None:
        """Loads nothing and starts nothing: that is for `open`."""

    @staticmethod
    def check_program(recipe: Recipe, teacher: Teacher) -> None:
        """Raises RecipeError if the program that `open` would start does not exist."""

    @property
    def info(self) -> EngineInfo:
        """Model and engine of this teacher; complete once the engine is open."""

    @property
    def in_flight(self) -> int:
        """Requests that were drawn and have no answer yet."""

    async def open(self) -> None:
        """Load the model, start its process, or find its server.

        Raises ModelError, TeacherError, CircuitOpen when that is not possible.
        """

    async def answer(self, get: Get, done: Done) -> None:
        """Answer every request that `get` gives; `done` gets each completion as soon as it is there, in any order.

        `done` gets the siblings of a request, too, each for itself. A request is drawn when there is room for it.
        What is wrong with one request is the `error` of its completion.
        Raises CircuitOpen and TeacherError for what is wrong with the engine; what is in flight is then dropped.
        """

    async def describe(self, request: Request, *, model: str = "") -> dict[str, Any]:
        """The request as the engine gets it. `model` is its name for a server that is not open."""

    async def close(self) -> None:
        """End everything that `open` started. May be called after an `open` that failed."""


def engine_of(settings: EngineSettings) -> Engine:
    """The engine of a teacher, not opened yet."""
    return engine_class(settings.teacher)(settings)


def engine_class(teacher: Teacher) -> type[Engine]:
    module, name = teacher.capabilities.engine.split(":")
    engine: type[Engine] = getattr(import_module(module), name)
    return engine


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup that raises the first error of its tasks as it is, and no group of errors."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


@asynccontextmanager
async def connect(settings: EngineSettings) -> AsyncIterator[Engine]:
    """The engine of a teacher, open inside the block."""
    engine = engine_of(settings)
    try:
        await engine.open()
        yield engine
    finally:
        await engine.close()


def engine_settings(recipe: Recipe, teacher: Teacher, model: Model, folder: Path, **options: Any) -> EngineSettings:
    """The settings of an engine as the recipe has them; `options` replace some of them."""
    generate = recipe.generate
    values: dict[str, Any] = {
        "max_pixels": recipe.data.get(ASKED, recipe).max_pixels,
        "max_failure_share": generate.max_failure_share,
        "patience_s": generate.patience_s,
        "start_patience_s": generate.patience_s,
    }
    return EngineSettings(recipe=recipe, teacher=teacher, model=model, folder=folder, **(values | options))


class ReadyRequests:
    """Requests in windows, for engines that answer in batches: a window has the requests that are ready, and does not
    wait for more."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._next: asyncio.Task[Request | None] | None = None

    async def window(self, max_requests: int, requests: Sequence[Request] = ()) -> list[Request]:
        """At least one request, once there is one, and at most `max_requests`; none when there will be no more.

        `requests`: the requests of an earlier window; requests that are ready now are added.
        """
        requests = list(requests)
        while len(requests) < max_requests:
            task = self._next = self._next or asyncio.ensure_future(self._get())
            if requests:
                await asyncio.sleep(0)
                if not task.done():
                    break  # it is the first one of the next window
            request = await task
            if request is None:
                break
            self._next = None
            requests.append(request)
        return requests

    def close(self) -> None:
        """Stop waiting for further requests."""
        if self._next is not None:
            self._next.cancel()


def local_request(teacher: Teacher, request: Request) -> dict[str, Any]:
    """A request to an engine without HTTP, for a reader: images by path and digest."""
    parts = [{"type": "image", "path": ref.path, "sha256": ref.sha256} for ref in request.prompt.images]
    return {
        "engine": teacher.backend,
        "model": teacher.model,
        "messages": messages(request.prompt, parts),
        "chat_template_kwargs": dict(teacher.chat_template_kwargs),
        "sampling": request.sampling.model_dump(mode="json"),
        "seed": request.seed,
    }
