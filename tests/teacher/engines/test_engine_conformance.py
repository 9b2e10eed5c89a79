"""What every engine keeps to: one suite, run against each backend and each way of reaching it."""

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import orjson
import pytest
from servers import batch_server, stub_server, vllm_server
from students import tiny_models

from distill.artifacts.journal import read_jsonl
from distill.data import sample_files
from distill.data.images.image_files import sha256
from distill.recipe.backends import BACKENDS, BackendName
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Sample
from teacher.engines.connect import Engine, connect, engine_class, engine_settings
from teacher.generate import generate
from teacher.messages.completion import Completion
from teacher.messages.request import Request, model_of, requests

QUESTIONS = 5

FAKE_WORKER = f"""#!{sys.executable}
# In place of vLLM's interpreter: answers like the program that the offline engine would run there.
import json, os, sys
if sys.argv[1] == "-c":
    sys.exit(1)  # asked for its options: there is no vLLM
source, sink = os.fdopen(int(sys.argv[2]), "rb"), os.fdopen(int(sys.argv[3]), "wb", 0)
sink.write(json.dumps({{"version": "0", "max_model_len": 512}}).encode() + b"\\n")
held = []
for line in iter(source.readline, b""):
    asked = json.loads(line)
    *images, text = asked["messages"][-1]["content"]
    text = text["text"]
    root = sys.argv[len(sys.argv) - 1 - sys.argv[::-1].index("--allowed-local-media-path") + 1]
    paths = [each["image_url"]["url"][7:] for each in images if each["image_url"]["url"].startswith("file:")]
    if any(not os.path.realpath(path).startswith(os.path.realpath(root) + "/") for path in paths):
        text += " fault=400"  # as vLLM does
    if "crash" in text:
        os._exit(3)
    answer = {{"id": asked["id"], "text": f"about {{text}}", "finish_reason": "stop", "stop_reason": "", "likely": [],
               "prompt_tokens": 3, "image_tokens": 0, "cached_tokens": 0, "completion_tokens": 2, "prompt_end": ""}}
    if "fault=400" in text:
        answer = {{"id": asked["id"], "error": "refused_request: of no use"}}
    sink.write(json.dumps(answer).encode() + b"\\n")
"""

REAL = [
    *vllm_server.marks(timeout_s=900),
    # tests/integration asks a real server; here vLLM would be started seven times, half a minute and more each.
    pytest.mark.skipif("DISTILL_REAL_ENGINES" not in os.environ, reason="set DISTILL_REAL_ENGINES=1 to run it"),
]
KINDS = [
    "embedded",
    "openai attached",
    "batch attached",
    "vllm attached",
    "vllm started, stub",
    "vllm_offline, stub",
    pytest.param("vllm started", marks=REAL),
    pytest.param("vllm attached, real", marks=REAL),
    pytest.param("vllm_offline", marks=REAL),
]


@dataclass(frozen=True)
class Case:
    """A backend as a recipe asks for it, and a question that it refuses."""

    folder: Path
    recipe: Recipe
    refused: str


def settings(kind: str, folder: Path, url: str) -> list[str]:
    """The lines of a teacher in a recipe."""
    lines = [f'backend = "{kind.partition(",")[0].partition(" ")[0]}"']
    if kind == "batch attached":
        lines.append("batch.poll_s = 0.02")
    if "attached" in kind:
        return [*lines, f'base_url = "{url}"', f'served_model = "{"served" if kind.endswith("real") else "stub"}"']
    if kind == "vllm started, stub":
        served = f'command = ["{sys.executable}", "{stub_server.__file__}"]'
        return [*lines, "[teachers.server]", served]
    if kind == "vllm_offline, stub":
        command = f'["{folder}/fake/python", "-m", "vllm.entrypoints.openai.api_server"]'
        return [*lines, "[teachers.server]", f"command = {command}"]
    if kind == "embedded":
        return lines
    command = f'["{vllm_server.PYTHON}", "-m", "vllm.entrypoints.openai.api_server"]'
    environment = {
        "PYTHONPATH": f"{folder}/site",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    shown = ", ".join(f'{key} = "{value}"' for key, value in environment.items())
    options = ['dtype = "float32"', "enforce-eager = true", "max-model-len = 512", "enable-chunked-prefill = false"]
    return [
        *(*lines, "[teachers.server]", f"command = {command}", f"environment = {{ {shown} }}"),
        *("[teachers.server.arguments]", *options, "limit-mm-per-prompt = { image = 1 }"),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model, one set of images and questions for every engine."""
    folder = tmp_path_factory.mktemp("engines")
    # Heads of 32 numbers: vLLM on a CPU has no attention for the 16 of a narrower model.
    tiny_models.build(folder / "model", hidden=128, layers=2, spread=0.3, end_weight=1.3)
    rows = []
    for index in range(QUESTIONS):
        tiny_models.make_image(folder / f"{index}.png", index)
        rows.append({"image": f"{index}.png", "question": f"How many red circles? {index}", "answer": "1"})
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (folder / "fake").mkdir()
    (folder / "fake" / "python").write_text(FAKE_WORKER)
    (folder / "fake" / "python").chmod(0o755)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(vllm_server.SITE)
    return folder


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture(scope="module")
def batch_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with batch_server.serve(tmp_path_factory.mktemp("api")) as server:
        yield server.url


@pytest.fixture(scope="module")
def real_url(folder: Path) -> Iterator[str]:
    with vllm_server.serve(folder / "model") as url:
        yield url


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, folder: Path, url: str) -> Case:
    kind = request.param
    if kind == "batch attached":
        url = request.getfixturevalue("batch_url")
    if kind == "vllm attached, real":
        url = request.getfixturevalue("real_url")
    name = kind.replace(" ", "_").replace(",", "")
    teacher = ['name = "t"', 'model = "model"', "samples = 2", *settings(kind, folder, url)]
    sampling = ["[teachers.sampling]", "temperature = 0.0", "max_tokens = 12"]
    lines = ["[generate]", "patience_s = 1.0", "[data.questions]", 'source = "rows.jsonl"', 'images_root = "."']
    (folder / f"{name}.toml").write_text("\n".join([*lines, "[[teachers]]", *teacher, *sampling]))
    stubbed = kind.endswith(("attached", "stub"))
    return Case(
        folder=folder / f"run-{name}",
        recipe=load(folder / f"{name}.toml"),
        refused="fault=400" if stubbed else "How many? " * 600,
    )


def wanted(case: Case, *questions: str, missing: bool = False) -> list[Request]:
    """One request for each question, each about an image of its own."""
    (teacher,) = case.recipe.teachers
    model, made = model_of(case.recipe, teacher), []
    for index, question in enumerate(questions):
        path = case.folder.parent / f"{index % QUESTIONS}.png"
        ref = ImageRef(sha256=sha256(path.read_bytes()), path=str(path))
        if missing:
            ref = replace(ref, sha256="00" * 32, path=str(path.with_name("gone.png")))
        sample = Sample(id=f"{index}-{question[:20]}", images=(ref,), question=question)
        made.append(requests(case.recipe, teacher, model, sample)[0])
    return made


class Answering:
    """An engine that stays open, in a loop that runs during calls."""

    def __init__(self, case: Case) -> None:
        (teacher,) = case.recipe.teachers
        model = model_of(case.recipe, teacher)
        self.before = descendants()
        self.runner = asyncio.Runner()
        self.opened = connect(engine_settings(case.recipe, teacher, model, case.folder / "logs"))
        self.engine: Engine = self.runner.run(self.opened.__aenter__())

    def __call__(self, asked: list[Request]) -> list[tuple[str, Completion]]:
        waiting, answers = iter(asked), []

        async def get() -> Request | None:
            return next(waiting, None)

        async def answer() -> None:
            await self.engine.answer(get, lambda request, completion: answers.append((request.id, completion)))

        self.runner.run(answer())
        return answers

    def close(self) -> None:
        self.runner.run(self.opened.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def answering(case: Case) -> Iterator[Answering]:
    answering = Answering(case)
    yield answering
    answering.close()
    assert descendants() <= answering.before, "the engine has left processes behind"
    assert answering.engine.in_flight == 0


def descendants() -> set[int]:
    """Every live process below this one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(path.parent.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def test_every_request_has_one_answer_whatever_the_order(case: Case, answering: Answering) -> None:
    asked = wanted(case, *(f"How many? {index}" for index in range(12)))
    first, again = answering(asked), answering(asked[::-1])
    assert sorted(name for name, _ in first) == sorted(request.id for request in asked)
    assert not [completion.error for _, completion in first if completion.error]
    assert {name: completion.text for name, completion in first} == {name: done.text for name, done in again}
    assert all(done.finish_reason and done.completion_tokens and done.prompt_tokens for _, done in first)


def test_what_is_wrong_with_a_row_is_its_error_and_costs_no_other_row(case: Case, answering: Answering) -> None:
    good = wanted(case, "How many?", "And how many blue ones?", "Which is higher?")
    refused, (gone,) = wanted(case, *good_first(case.refused))[-1], wanted(case, "gone?", missing=True)
    answers = dict(answering([*good[:2], refused, gone, *good[2:]]))
    assert [answers[request.id].error for request in good] == ["", "", ""]
    assert answers[refused.id].error.startswith("refused_request:")
    assert answers[gone.id].error.startswith("image: missing_image")


def test_a_given_text_is_scored_token_by_token_where_the_backend_can(case: Case, answering: Answering) -> None:
    texts = ("The chart shows 3 bars.\n\n4", "naïve 漢字 😀 = x", "one " * 40 + "end", "7")
    (teacher,) = case.recipe.teachers
    if not teacher.capabilities.scores_texts:
        return
    asked = [
        replace(request, id=f"{request.id} {number} {seen}", prompt=prompt, given=text)
        for request in wanted(case, "How many?")
        for number, text in enumerate(texts)
        for seen, prompt in ((1, request.prompt), (0, replace(request.prompt, images=())))
    ]
    (gone,) = wanted(case, "gone?", missing=True)
    answers = dict(answering([*asked, replace(gone, given="7")]))
    assert answers[gone.id].error.startswith("image: missing_image")
    for request in asked:
        done = answers[request.id]
        assert not done.error and done.text == request.given and done.prompt_tokens
        ids, values, ends = done.token_ids, done.token_logprobs, done.token_ends
        assert ids is not None and values is not None and ends is not None
        assert ids.shape == values.shape == (done.completion_tokens, 1 + teacher.logprobs)
        assert (values <= 1e-3).all() and len(ends) == len(ids) > 0
        assert ends[-1] == len(request.given or "") and (np.diff(ends) >= 0).all()
    pairs = [(answers[one.id], answers[other.id]) for one, other in zip(asked[::2], asked[1::2], strict=True)]
    assert any((one.token_logprobs != other.token_logprobs).any() for one, other in pairs)  # the image counts
    again = dict(answering(asked[:2]))
    assert all(np.allclose(again[key].token_logprobs, answers[key].token_logprobs, atol=1e-4) for key in again)


def good_first(refused: str) -> tuple[str, ...]:
    """A question that is refused, behind some that are not."""
    return ("one", "two", refused)


def test_an_open_engine_says_what_answers(case: Case, answering: Answering) -> None:
    info = answering.engine.info
    assert info.model and info.engine["name"] and info.engine["version"]
    shown = answering.runner.run(answering.engine.describe(wanted(case, "How many?")[0]))
    assert b"How many?" in orjson.dumps(shown)


def test_a_run_has_the_ids_and_seeds_that_the_recipe_gives_and_is_resumed(case: Case) -> None:
    generate(case.recipe, case.folder, limit=2)
    before = records(case.folder)
    manifest = generate(case.recipe, case.folder)
    after = records(case.folder)
    (teacher,) = case.recipe.teachers
    model = model_of(case.recipe, teacher)
    expected = {
        request.id: request.seed
        for sample in sample_files.read_samples(case.folder / "generate" / "samples.parquet")
        for request in requests(case.recipe, teacher, model, sample)
    }
    assert {record["id"]: record["seed"] for record in after} == expected and len(after) == 2 * QUESTIONS
    assert len(before) == 4 and before == [record for record in after if record in before]
    assert manifest.counts["traces"] == 2 * QUESTIONS and not manifest.counts.get("error")


def records(run: Path) -> list[dict[str, Any]]:
    return [record for part in sorted(run.glob("generate/*/part-*.jsonl")) for record in read_jsonl(part)]


def test_a_request_that_ends_its_process_fails_alone(folder: Path) -> None:
    lines = ['name = "t"', 'model = "model"', *settings("vllm_offline, stub", folder, "")]
    (folder / "crash.toml").write_text(
        "\n".join(["[data.questions]", 'source = "rows.jsonl"', 'images_root = "."', "[[teachers]]", *lines])
    )
    case = Case(folder=folder / "run-crash", recipe=load(folder / "crash.toml"), refused="")
    asked = wanted(case, "one", "crash", "two", "three")
    answering = Answering(case)
    answers = dict(answering(asked))
    answering.close()
    assert [answers[request.id].error.partition(":")[0] for request in asked] == ["", "server_lost", "", ""]
    assert (case.folder / "logs" / "offline-0.log").read_text().count("===") in (3, 4)  # starts


@pytest.mark.parametrize("own_root", [False, True])
def test_images_outside_the_folder_that_vllm_may_read_go_inside_the_request(
    folder: Path, tmp_path: Path, own_root: bool
) -> None:
    server = settings("vllm_offline, stub", folder, "")
    option = [f'arguments.allowed-local-media-path = "{folder}/fake"'] * own_root
    source = ["[data.questions]", f'source = "{folder}/rows.jsonl"', f'images_root = "{folder}"', "[[teachers]]"]
    (tmp_path / "away.toml").write_text(
        "\n".join([*source, 'name = "t"', f'model = "{folder}/model"', *server, *option])
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for index in range(QUESTIONS):
        (elsewhere / f"{index}.png").write_bytes((folder / f"{index}.png").read_bytes())
    case = Case(folder=elsewhere / "run", recipe=load(tmp_path / "away.toml"), refused="")
    near = replace(case, folder=folder / "run")
    answering = Answering(case)
    answers = dict(answering([*wanted(case, "one", "two"), *wanted(near, "three")]))
    answering.close()
    assert [each.error for each in answers.values()] == ["", "", ""]


def test_every_backend_has_an_engine_with_every_method() -> None:
    assert set(get_args(BackendName)) == set(BACKENDS)
    methods = {name for name in vars(Engine) if not name.startswith("_")}
    assert methods >= {"check_program", "info", "in_flight", "open", "answer", "describe", "close"}
    for backend in BACKENDS.values():
        module, _, name = backend.engine.partition(":")
        assert methods <= set(dir(getattr(__import__(module, fromlist=[name]), name)))
    assert engine_class.__module__ == "teacher.engines.connect"
