"""A server managed elsewhere, asked greedily: how a served student is evaluated.

Finds out first whether the server is there, takes the key and serves the model; then asks as teachers are asked
(teacher/engines/http/http_client.py). It stores no answer and judges none.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from distill.errors import DataError, ModelError, TeacherError
from distill.machine import event_loop
from distill.recipe.sections.eval import AnyStudent
from distill.recipe.sections.sampling import Sampling
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.engines.connect import ClientSettings, getter
from teacher.engines.http.chat_protocol import api_key
from teacher.engines.http.http_client import ChatClient
from teacher.engines.http.server_info import server_info
from teacher.engines.outage import Failure
from teacher.messages.completion import Completion
from teacher.messages.prompts import Prompt
from teacher.messages.request import Model, Request, single_request


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAnswer:
    """Answer of a server to one question."""

    text: str
    """Its thinking, where the server hands that over apart, between think tags."""
    tokens: int | None
    """None where the server does not count them; so for the next."""
    reasoning_tokens: int | None
    truncated: bool
    seconds: float
    """From sending to the whole answer, among the other questions under way."""


OnAnswer = Callable[[Sample, RemoteAnswer], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStudent:
    """A server managed elsewhere that passed its health check."""

    ask: Callable[[Sequence[Sample], OnAnswer], None]
    """Asks every question once and tells each answer as soon as it is there, in any order. Raises TeacherError at
    the first question that gets none, DataError at an image that cannot be read."""


@contextmanager
def connect_student(
    name: str, student: AnyStudent, *, max_new_tokens: int, max_pixels: int
) -> Iterator[RemoteStudent]:
    """The server of the student `name`. Raises ModelError when it cannot be asked for its model."""
    teacher = _as_teacher(name, student, max_new_tokens)
    url = teacher.urls[0]
    with event_loop.Runner() as runner:
        if runner.run(check_server(name, student)):
            teacher = teacher.model_copy(update={"backend": "vllm"})

        def ask(samples: Sequence[Sample], on_answer: OnAnswer) -> None:
            runner.run(_ask(teacher, url, samples, on_answer, max_pixels))

        yield RemoteStudent(ask=ask)


def _as_teacher(name: str, student: AnyStudent, max_new_tokens: int) -> Teacher:
    """The student as a teacher that is asked greedily."""
    assert student.base_url is not None
    return Teacher(
        name=name,
        model=student.model,
        served_model=student.model,
        base_url=student.base_url.rstrip("/"),
        backend="openai",
        api_key_env=student.api_key_env,
        sampling=Sampling(temperature=0.0, max_tokens=max_new_tokens, stop_repetition=False),
    )


async def check_server(name: str, student: AnyStudent) -> bool:
    """Whether the server is a vLLM, whose sampling can be stated in full. Raises ModelError, RecipeError."""
    teacher, where = _as_teacher(name, student, max_new_tokens=1), f"eval.students.{name}"
    key = api_key(teacher, where)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        info = await server_info(headers, teacher, _model(teacher), teacher.urls[0], where)
    except (Failure, TeacherError) as error:
        problem = error.detail if isinstance(error, Failure) else error
        raise ModelError(f"{problem}; then run the same command again") from None
    return info.engine["name"] == "vllm"


def _model(teacher: Teacher) -> Model:
    return Model(name=teacher.model, revision="", local=False)


async def _ask(teacher: Teacher, url: str, samples: Sequence[Sample], on_answer: OnAnswer, max_pixels: int) -> None:
    def done(request: Request, completion: Completion) -> None:
        if completion.error.startswith("image:"):
            raise DataError(f"question {request.sample.id}: {completion.error}")
        if completion.error:
            raise TeacherError(
                f"eval.students.{teacher.name}: {url} gave no answer to question {request.sample.id}: "
                f"{completion.error}\nfinished replies are kept: repair the server, then run the same command again"
            )
        on_answer(
            request.sample,
            RemoteAnswer(
                text=completion.text,
                tokens=completion.completion_tokens or None,
                reasoning_tokens=completion.reasoning_tokens,
                truncated=completion.finish_reason == "length",
                seconds=completion.latency_s,
            ),
        )

    settings = ClientSettings(teacher=teacher, model=_model(teacher), max_pixels=max_pixels, max_failure_share=1.0)
    async with ChatClient(settings, urls=(url,)) as client:
        await client.answer(getter(_request(teacher, sample) for sample in samples), done)


def _request(teacher: Teacher, sample: Sample) -> Request:
    asked = Prompt(system="", images=sample.images, text=sample.question)
    request = single_request(teacher, sample, asked, id=sample.id)
    # Greedy decoding draws nothing, but servers want a seed.
    request.seed = int.from_bytes(hashlib.sha256(request.prompt_sha.encode()).digest()[:4], "big") >> 1
    return request
