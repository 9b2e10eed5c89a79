"""Which vLLM an export is served with, what is asked of it, and what is said when it does not come up."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from students import tiny_models

from distill.data.images import image_files
from distill.errors import RecipeError, TeacherError
from distill.recipe.recipe import Recipe
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.engines.vllm import export_server

# A module that starts as vLLM's does. Its replies are token ids that tell how it was asked.
FAKE = """\
import http.server, json, os, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
if "--dtype" in sys.argv and sys.argv[sys.argv.index("--dtype") + 1] == "float16":
    sys.exit("ValueError: no such dtype here")
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(content)
    def do_GET(self):
        self.answer({"version": "9.9"})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        *pictures, text = body["messages"][0]["content"]
        if text["text"] == "refuse":
            return self.answer({"error": "not this one"}, 400)
        told = [len(pictures), len(text["text"]), body["max_tokens"], int(body["temperature"])]
        self.answer({"prompt_token_ids": told, "choices": [{"token_ids": [len(sys.argv)]}]})
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer.request_queue_size = 64
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
WANTED: dict[str, Any] = {"arguments": {"dtype": "float32"}, "max_new_tokens": 7, "max_pixels": 10_000}


@pytest.fixture
def fake(tmp_path: Path) -> Server:
    """A server whose program is this Python, in which no vllm is asked for."""
    (tmp_path / "fake.py").write_text(FAKE)
    return Server(command=(sys.executable, str(tmp_path / "fake.py")), start_timeout_s=30)


@contextmanager
def environment(**values: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(export_server.PYTHON, raising=False)
        for name, value in values.items():
            patch.setenv(name, value)
        yield


def sample(folder: Path, question: str) -> Sample:
    path = tiny_models.make_image(folder / "picture.png", 1)
    digest = image_files.sha256(path.read_bytes())
    return Sample(id="1", images=(ImageRef(sha256=digest, path=str(path)),), question=question)


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_questions_with_their_images_are_asked_greedily(fake: Server, tmp_path: Path) -> None:
    asked = [sample(tmp_path, "?" * length) for length in range(1, 41)]
    with export_server.serve_export(tmp_path / "model", server=fake, **WANTED) as server:
        assert server.engine == "vllm 9.9"
        assert [prompt for prompt, _ in server.ask(asked)] == [[1, length, 7, 0] for length in range(1, 41)]


def test_a_refused_question_is_an_error_with_what_the_server_said(fake: Server, tmp_path: Path) -> None:
    with (
        export_server.serve_export(tmp_path / "model", server=fake, **WANTED) as server,
        pytest.raises(TeacherError, match=r"refused 1: HTTP 400: .*not this one.*\s+its log: .*server-0.log"),
    ):
        server.ask([sample(tmp_path, "refuse")])


@pytest.mark.parametrize("told", ["{}", '"x"', '{"prompt_token_ids": [1], "choices": [{"token_ids": None}]}'])
def test_a_server_without_token_ids_is_named_as_too_old(fake: Server, tmp_path: Path, told: str) -> None:
    program = tmp_path / "fake.py"
    answer = '{"prompt_token_ids": told, "choices": [{"token_ids": [len(sys.argv)]}]}'
    assert answer in program.read_text()
    program.write_text(program.read_text().replace(answer, told))
    with (
        export_server.serve_export(tmp_path / "model", server=fake, **WANTED) as server,
        pytest.raises(TeacherError, match=r"gave no token ids for 1.*newer vLLM"),
    ):
        server.ask([sample(tmp_path, "one")])


def test_a_server_that_does_not_start_is_an_error_about_the_export_with_its_log(fake: Server, tmp_path: Path) -> None:
    wanted = {**WANTED, "arguments": {"dtype": "float16"}}
    with (
        pytest.raises(TeacherError) as caught,
        export_server.serve_export(tmp_path / "model", server=fake, **wanted),
    ):
        pass
    message = str(caught.value)
    assert message.startswith(f"vLLM does not serve {tmp_path / 'model'}: the server ended with exit code 1")
    assert "no such dtype here" in message and "--dtype float16" in message and "recipe" not in message


def test_another_program_that_has_the_port_is_no_vllm(fake: Server, tmp_path: Path) -> None:
    program = tmp_path / "fake.py"
    program.write_text(program.read_text().replace('{"version": "9.9"}', "[]"))
    with (
        pytest.raises(TeacherError, match="this is no vLLM"),
        export_server.serve_export(tmp_path / "model", server=fake, **WANTED),
    ):
        pass


def test_helpers_of_a_server_do_not_load_torch(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(export_server.SITE)
    code = (
        "import sitecustomize, sys; assert 'BeforeTorchvision' in dir(sitecustomize) and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})


def test_the_interpreter_in_the_environment_comes_first(tmp_path: Path) -> None:
    recipe = Recipe(teachers=(Teacher(name="one", model="m", server=Server(command=("elsewhere", "serve"))),))
    with environment(**{export_server.PYTHON: str(program(tmp_path, "python"))}):
        server = export_server.find_server(recipe)
    assert server.command == (str(tmp_path / "python"), "-m", "vllm.entrypoints.openai.api_server")
    assert server.environment["HF_HUB_OFFLINE"] == "1"


def test_else_the_vllm_of_a_teacher_is_taken_without_that_teachers_options(tmp_path: Path) -> None:
    command = (str(program(tmp_path, "vllm")), "serve")
    mine = Server(command=command, environment={"A": "1"}, arguments={"max-model-len": 9}, gpus=("0", "1"))
    attached = Teacher(name="two", model="m", base_url="http://127.0.0.1:1/v1")
    recipe = Recipe(teachers=(attached, Teacher(name="one", model="m", server=mine)))
    with environment():
        server = export_server.find_server(recipe)
    assert server.command == command
    assert server.environment["A"] == "1" and not server.arguments and not server.gpus


def test_a_program_of_the_user_that_answers_for_a_teacher_serves_no_export(tmp_path: Path) -> None:
    solver = Teacher(name="solver", model="m", server=Server(command=(str(program(tmp_path, "teacher.py")),)))
    command = (str(program(tmp_path, "vllm")), "serve")
    with environment(PATH=str(tmp_path)):
        assert export_server.find_server(Recipe(teachers=(solver,)), probe=False).command == ("vllm", "serve")
        both = Recipe(teachers=(solver, Teacher(name="one", model="m", server=Server(command=command))))
        assert export_server.find_server(both, probe=False).command == command


def test_without_any_vllm_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    unfound = r"no program 'vllm'.*DISTILL_VLLM_PYTHON="
    with environment(PATH=str(tmp_path)), pytest.raises(RecipeError, match=unfound):
        export_server.find_server(Recipe())
    with (
        environment(**{export_server.PYTHON: sys.executable}),
        pytest.raises(RecipeError, match="has no vllm package"),
    ):
        export_server.find_server(Recipe())


@pytest.mark.parametrize(
    ("script", "mode"),
    [("", 0o644), ("echo '{\"gpu\": true}'; echo bye", 0o755), ("echo '[1]'", 0o755), ("exit 1", 0o755)],
    ids=["not executable", "a line after the answer", "no object", "an error"],
)
def test_an_interpreter_that_cannot_be_asked_says_nothing(tmp_path: Path, script: str, mode: int) -> None:
    command = (str(program(tmp_path, "vllm")), "serve")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(mode)
    assert export_server._probe_server(Server(command=command)) == {}


def test_what_the_image_library_of_a_cpu_needs_is_declared_to_the_server_only_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, command = {"vllm": True, "broken_torchvision": True, "gpu": False}, (sys.executable, "-m", "vllm")
    monkeypatch.setattr(export_server, "_probe", lambda *_: found)
    fitted = export_server._server_for_machine(
        Server(command=command, environment={"PYTHONPATH": "mine"}), tmp_path, {}
    )
    assert fitted.environment["PYTHONPATH"] == f"{tmp_path}{os.pathsep}mine"
    assert "nms" in (tmp_path / "sitecustomize.py").read_text()
    assert fitted.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    found.update(broken_torchvision=False, gpu=True)
    assert export_server._server_for_machine(Server(command=command), tmp_path, {}).environment == {}


def test_bodies_state_every_sampling_value(tmp_path: Path) -> None:
    body = orjson.loads(export_server._body(sample(tmp_path, "How many?"), 5, 10_000))
    image, text = body["messages"][0]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,") and text["text"] == "How many?"
    assert (body["temperature"], body["repetition_penalty"], body["max_tokens"]) == (0.0, 1.0, 5)
    assert body["return_token_ids"]
