"""A shipped teacher behind one real vLLM server: it says what it says embedded, however it is asked.

It also scores given texts as the embedded one does, and as when it wrote them.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from servers import client_helpers as clients
from servers import vllm_server
from students import tiny_models

from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import Manifest
from distill.data.images.image_files import sha256
from distill.recipe.loading import load, recipes_folder
from distill.recipe.recipe import Recipe
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef
from filters.apply import apply
from student.train import train
from teacher.engines.embedded.embedded_teacher import EmbeddedTeacher
from teacher.engines.http.streaming import Streaming
from teacher.generate import generate
from teacher.messages.completion import Completion
from teacher.messages.request import Request, model_of

PROMPTS = 200
SHIPPED = [path.parent for path in sorted((recipes_folder() / "tiny" / "teachers").glob("*/config.json"))]
FOLDER = SHIPPED[0]
"""The one that is served: a server takes a minute to start, and the others are of the same make (tested below)."""

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


def records(run: Path) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for part in run.glob("generate/*/part-*.jsonl") for record in read_jsonl(part)}


def agreement(first: dict[str, dict[str, Any]], second: dict[str, dict[str, Any]]) -> tuple[float, float]:
    """Shares of equal answers and of equal texts."""
    assert first.keys() == second.keys()
    answers = sum(first[key]["answer"] == second[key]["answer"] for key in first)
    texts = sum(first[key]["text"] == second[key]["text"] for key in first)
    return answers / len(first), texts / len(first)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with vllm_server.serve(FOLDER) as url:
        yield url


def asking(url: str | None, **sampling: Any) -> Recipe:
    """The shipped recipe with its one teacher, behind the server or embedded, once a question."""
    recipe = load("tiny-studies")
    (teacher,) = [who for who in recipe.teachers if Path(recipe.local_or_hub(who.model)) == FOLDER.resolve()]
    changes = {"sampling": teacher.sampling.model_copy(update=sampling), "samples": 1}
    behind = {"backend": "vllm", "base_url": url} if url else {}
    return recipe.model_copy(update={"teachers": (teacher.model_copy(update=changes | behind),)})


@pytest.fixture(scope="module")
def served(url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path, Manifest]:
    """What it says over HTTP, greedily."""
    run = tmp_path_factory.mktemp("served")
    recipe = asking(url, temperature=0.0)
    return recipe, run, generate(recipe, run, limit=PROMPTS)


def test_a_shipped_teacher_answers_the_same_over_http_as_embedded(
    served: tuple[Recipe, Path, Manifest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(asking(None, temperature=0.0), tmp_path, limit=PROMPTS)
    here, there = records(tmp_path), records(served[1])
    answers, texts = agreement(here, there)
    outcomes = Counter(record["outcome"] for record in there.values())
    with capsys.disabled():
        print(f"\n{FOLDER.name}: equal answers {answers:.1%}, equal texts {texts:.1%} of {len(here)}; {outcomes}")
    assert len(here) == PROMPTS
    assert answers >= 0.99
    assert len({record["text"] for record in here.values()}) > PROMPTS / 2
    assert outcomes["complete"] >= 0.9 * PROMPTS
    assert served[2].versions["vllm"]
    for key, record in here.items():
        if record["text"] == there[key]["text"]:
            assert record["finish_reason"] == there[key]["finish_reason"]
            assert record["usage"]["prompt"] == there[key]["usage"]["prompt"]
            total = record["usage"]["reasoning"] + record["usage"]["answer"]
            assert total == there[key]["usage"]["reasoning"] + there[key]["usage"]["answer"]


def test_an_answer_that_is_cut_at_the_limit_is_cut_at_the_same_token(url: str, tmp_path: Path) -> None:
    found = []
    for where in (url, None):
        run = tmp_path / ("embedded" if where is None else "served")
        generate(asking(where, temperature=0.0, max_tokens=12), run, limit=40)
        found.append(records(run))
    assert {record["finish_reason"] for each in found for record in each.values()} == {"length"}
    assert agreement(*found)[1] >= 0.95


def test_the_same_seeds_give_the_same_texts(url: str, tmp_path: Path) -> None:
    recipe = asking(url, temperature=1.0, top_p=0.9)
    for name in ("first", "again"):
        generate(recipe, tmp_path / name, limit=40)
    assert agreement(records(tmp_path / "first"), records(tmp_path / "again"))[1] >= 0.95


def test_a_student_learns_from_what_a_server_says(served: tuple[Recipe, Path, Manifest]) -> None:
    recipe, run, _ = served
    assert apply(recipe, run).counts["selected"] >= 0.7 * PROMPTS
    (reason,) = [stage for stage in recipe.stages if stage.name == "reason"]
    # Replay would read thousands of rows that no server wrote.
    few = {"max_steps": 4, "log_every_steps": 1, "replay": {}}
    train(recipe.model_copy(update={"stages": (reason.model_copy(update=few),)}), run)
    losses = [line["loss"] for line in read_jsonl(run / "train" / "reason" / "metrics.jsonl")]
    assert len(losses) == 4 and losses[-1] < losses[0]


class _Always(Streaming):
    """A streaming that does as it is told."""

    def __init__(self, streamed: bool) -> None:
        super().__init__(600.0)
        self._streamed = streamed

    def wanted(self, *, again: bool) -> bool:
        return self._streamed


def test_an_answer_in_pieces_is_the_one_that_comes_whole(url: str, tmp_path: Path) -> None:
    path = tiny_models.make_image(tmp_path / "a.png", 1)
    ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
    teacher = Teacher(
        name="served",
        model=str(FOLDER),
        served_model="served",
        base_url=url,
        images="base64",
        sampling={"temperature": 1.0, "max_tokens": 40},
        logprobs=3,
    )
    wanted = clients.asked(teacher, *(f"How many red circles? {number}" for number in range(8)), images=(ref,))
    found: dict[bool, dict[str, Completion]] = {True: {}, False: {}}

    async def run() -> None:
        for streamed, answers in found.items():
            async with clients.client_of(teacher, model_of(clients.Recipe(), teacher)) as client:
                await client.check()
                client._exchange._streaming = _Always(streamed)
                await client.answer(
                    clients.given(wanted), lambda request, done, into=answers: into.update({request.id: done})
                )

    asyncio.run(run())
    for name, done in found[False].items():
        other = found[True][name]
        assert not done.error and done.completion_tokens and done.prompt_tokens > 16
        for field in ("text", "finish_reason", "stop_reason", "prompt_tokens", "image_tokens", "completion_tokens"):
            assert getattr(done, field) == getattr(other, field), field
        assert done.token_ids is not None and other.token_ids is not None
        assert done.token_ids.tolist() == other.token_ids.tolist()


def scorer(url: str | None) -> Teacher:
    where = {"backend": "embedded"} if url is None else {"base_url": url, "served_model": "served"}
    sampling = {"temperature": 0.0, "max_tokens": 40}
    return Teacher.model_validate(
        {"name": "t", "model": str(FOLDER), "logprobs": 3, "sampling": sampling, **where}, strict=False
    )


def wanted(folder: Path) -> list[Request]:
    """Questions about images, and the same without their image."""
    found = []
    for index in range(4):
        path = tiny_models.make_image(folder / f"{index}.png", index)
        ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
        questions = (f"How many red circles? {index}", f"Sum of all bars in chart {index}?")
        found += clients.asked(scorer("http://127.0.0.1:9/v1"), *questions, images=(ref,))
    return [
        replace(request, id=f"{number} {seen}", prompt=request.prompt if seen else replace(request.prompt, images=()))
        for number, request in enumerate(found)
        for seen in (True, False)
    ]


def answers_of(url: str, requests: list[Request]) -> dict[str, Completion]:
    answers: dict[str, Completion] = {}

    async def run() -> None:
        who = scorer(url)
        async with clients.client_of(who, model_of(clients.Recipe(), who)) as client:
            await client.check()
            await client.answer(clients.given(requests), lambda request, done: answers.update({request.id: done}))

    asyncio.run(run())
    return answers


def embedded_answers(requests: list[Request]) -> dict[str, Completion]:
    answers: dict[str, Completion] = {}
    engine = EmbeddedTeacher(scorer(None), str(FOLDER), max_pixels=10**8)
    engine.answer(requests, lambda request, done: answers.update({request.id: done}), lambda: None)
    return answers


def token_table(done: Completion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    assert not done.error, done.error
    assert done.token_ids is not None and done.token_logprobs is not None and done.token_ends is not None
    return done.token_ids, done.token_logprobs, done.token_ends


def test_what_a_server_wrote_has_the_log_probabilities_that_it_wrote_it_with(url: str, tmp_path: Path) -> None:
    asked = wanted(tmp_path)
    written = answers_of(url, asked)
    scored = answers_of(url, [replace(request, given=written[request.id].text) for request in asked])
    compared = 0
    for request in asked:
        ids, values, ends = token_table(scored[request.id])
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
    there, here = answers_of(url, asked), embedded_answers(asked)
    largest = 0.0
    for request in asked:
        ids, values, ends = token_table(there[request.id])
        own_ids, own_values, own_ends = token_table(here[request.id])
        assert ids[:, 0].tolist() == own_ids[:, 0].tolist(), request.given
        assert ends.tolist() == own_ends.tolist(), request.given
        largest = max(largest, float(np.abs(values - own_values).max()))
    print(f"\nlargest difference {largest:.1e} nats; {len(asked)} texts")
    assert largest < CLOSE


def test_the_shipped_teachers_are_of_one_make_and_differ_in_their_weights() -> None:
    """So what holds for the one that is served holds for all."""

    def digests(name: str) -> set[str]:
        return {hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in SHIPPED}

    names = {path.name for folder in SHIPPED for path in folder.iterdir()} - {"config.json", "model.safetensors"}
    assert {name: len(digests(name)) for name in names} == dict.fromkeys(names, 1)
    configs = [orjson.loads((folder / "config.json").read_bytes()) for folder in SHIPPED]
    for config in configs:
        config["vision_config"].pop("dtype", None)  # one of them repeats the type of its numbers there
        assert config == configs[0]
    assert len(digests("model.safetensors")) == len(SHIPPED) == 4
