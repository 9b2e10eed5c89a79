"""Given texts scored by a real vLLM server: as by the embedded engine, and as when a text was written."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import client_helpers as clients
import numpy as np
import pytest
import tiny_models
import vllm_server

from distill.data.images.image_files import sha256
from distill.recipe.loading import recipes_folder
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef
from teacher.engines.embedded.embedded_teacher import EmbeddedTeacher
from teacher.messages.completion import Completion
from teacher.messages.request import Request, model_of

MODEL = sorted((recipes_folder() / "tiny" / "teachers").glob("*/config.json"))[0].parent
CLOSE = 1e-3
"""Nats; the two programs multiply in another order."""
ODD = (
    "7",
    "<think>\nThe chart shows red 3, blue 4.\n3 + 4 = 7.\n</think>\n\n7",
    "naïve 漢字 😀\n\n= x",
    "😀😀 is the answer",
    "\N{ZERO WIDTH JOINER}é e\N{COMBINING ACUTE ACCENT} עברית",
    "one " * 120,
)

pytestmark = vllm_server.marks(timeout_s=900)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with vllm_server.serve(MODEL) as url:
        yield url


def teacher(url: str | None) -> Teacher:
    where = {"backend": "embedded"} if url is None else {"base_url": url, "served_model": "served"}
    sampling = {"temperature": 0.0, "max_tokens": 40}
    return Teacher.model_validate(
        {"name": "t", "model": str(MODEL), "logprobs": 3, "sampling": sampling, **where}, strict=False
    )


def wanted(folder: Path) -> list[Request]:
    """Questions about pictures, and the same without their picture."""
    found = []
    for index in range(4):
        path = tiny_models.picture(folder / f"{index}.png", index)
        ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
        questions = (f"How many red circles? {index}", f"Sum of all bars in chart {index}?")
        found += clients.asked(teacher("http://127.0.0.1:9/v1"), *questions, images=(ref,))
    return [
        replace(request, id=f"{number} {seen}", prompt=request.prompt if seen else replace(request.prompt, images=()))
        for number, request in enumerate(found)
        for seen in (True, False)
    ]


def served(url: str, requests: list[Request]) -> dict[str, Completion]:
    answers: dict[str, Completion] = {}

    async def run() -> None:
        who = teacher(url)
        async with clients.client_of(who, model_of(clients.Recipe(), who)) as client:
            await client.check()
            await client.answer(clients.given(requests), lambda request, done: answers.update({request.id: done}))

    asyncio.run(run())
    return answers


def embedded(requests: list[Request]) -> dict[str, Completion]:
    answers: dict[str, Completion] = {}
    engine = EmbeddedTeacher(teacher(None), str(MODEL), max_pixels=10**8)
    engine.answer(requests, lambda request, done: answers.update({request.id: done}), lambda: None)
    return answers


def table(done: Completion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert not done.error, done.error
    assert done.token_ids is not None and done.token_logprobs is not None and done.token_ends is not None
    return done.token_ids, done.token_logprobs, done.token_ends


def test_what_a_server_wrote_has_the_log_probabilities_that_it_wrote_it_with(url: str, tmp_path: Path) -> None:
    asked = wanted(tmp_path)
    written = served(url, asked)
    scored = served(url, [replace(request, given=written[request.id].text) for request in asked])
    compared = 0
    for request in asked:
        ids, values, ends = table(scored[request.id])
        own_ids, own_values = written[request.id].token_ids, written[request.id].token_logprobs
        assert own_ids is not None and own_values is not None and ends[-1] == len(written[request.id].text)
        if ids[:, 0].tolist() == own_ids[: len(ids), 0].tolist():  # a text can have other tokens, too
            compared += 1
            assert np.abs(values - own_values[: len(ids)]).max() < CLOSE
    assert compared > len(asked) / 2


def test_a_given_text_has_the_same_log_probabilities_served_as_embedded(url: str, tmp_path: Path) -> None:
    asked = [
        replace(request, id=f"{request.id} {number}", given=text.strip())
        for request in wanted(tmp_path)[:6]
        for number, text in enumerate(ODD)
    ]
    there, here = served(url, asked), embedded(asked)
    largest = 0.0
    for request in asked:
        ids, values, ends = table(there[request.id])
        own_ids, own_values, own_ends = table(here[request.id])
        assert ids[:, 0].tolist() == own_ids[:, 0].tolist(), request.given
        assert ends.tolist() == own_ends.tolist(), request.given
        largest = max(largest, float(np.abs(values - own_values).max()))
    print(f"\nlargest difference {largest:.1e} nats; {len(asked)} texts")
    assert largest < CLOSE
