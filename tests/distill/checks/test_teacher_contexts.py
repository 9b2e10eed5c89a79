"""`distill check`: questions with their images, and max_tokens, fit into the context of the teachers' servers."""

import base64
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pytest
from PIL import Image
from worlds import check_world

from distill.checks import teacher_contexts
from distill.checks.recipe_checks import check_recipe
from distill.checks.results import CheckReport, CheckResult
from distill.recipe.loading import load

CHECKS = (("teachers.sampling.max_tokens", teacher_contexts.check_contexts),)
TEXT_TOKENS = 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return check_world.build(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "w"))


def results(folder: Path, **teacher: Any) -> list[CheckResult]:
    recipe = check_world.values()
    recipe["teachers"] = [{"name": "structured", "model": "teacher", "backend": "vllm", **teacher}]
    check_world.save(folder, recipe)
    report: CheckReport = check_recipe(load(folder / "recipe.toml"), folder / "run", checks=CHECKS)
    return list(report.results)


def started(folder: Path, length: int | None, max_tokens: int) -> list[CheckResult]:
    arguments = {} if length is None else {"max-model-len": length}
    return results(folder, server={"arguments": arguments}, sampling={"max_tokens": max_tokens})


@pytest.mark.parametrize("backend", ["vllm", "vllm_offline"])
def test_the_processor_of_a_server_of_ours_counts_text_and_image_tokens(folder: Path, backend: str) -> None:
    (fits,) = started(folder, 4096, 64)
    assert fits.state == "ok", fits
    longest = int(fits.message.split("up to ")[1].split()[0].replace(",", ""))
    assert longest > 36, "an image of 96 pixels has 36 tokens in this model"
    server = {"arguments": {"max-model-len": longest + 64}}
    (exact,) = results(folder, backend=backend, server=server, sampling={"max_tokens": 64})
    assert exact.state == "ok"
    server = {"arguments": {"max-model-len": longest + 64 - 10}}
    (short,) = results(folder, backend=backend, server=server, sampling={"max_tokens": 64})
    assert short.state == "problem" and short.key == "teachers.structured.server.arguments.max-model-len"
    assert f"max-model-len = {longest + 64}" in short.mend


def test_without_max_model_len_the_server_takes_what_the_checkpoint_was_made_for(folder: Path) -> None:
    config = orjson.loads((folder / "teacher" / "config.json").read_bytes())
    positions = config["text_config"]["max_position_embeddings"]
    (result,) = started(folder, None, positions - 5)
    assert result.state == "problem" and f"{positions:,}" in result.message


def test_a_checkpoint_that_is_not_here_is_not_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (result,) = results(folder, model="owner/nowhere", server={"arguments": {"max-model-len": 4096}})
    assert result.state == "not checked" and "owner/nowhere" in result.message and result.mend


@contextmanager
def vllm_like(context_length: int | None) -> Iterator[str]:
    """A server that counts a token for every 10 pixels of width, and refuses what is longer than its context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            card = {"id": "teacher", "object": "model", "max_model_len": context_length}
            self._send(200, {"object": "list", "data": [card]})

        def do_POST(self) -> None:
            body = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
            tokens = TEXT_TOKENS
            for part in body["messages"][-1]["content"]:
                if part["type"] == "image_url":
                    data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                    tokens += Image.open(io.BytesIO(data)).width // 10
            if context_length and tokens + body["max_tokens"] > context_length:
                self._send(400, {"error": {"message": f"{tokens} tokens are too long"}})
                return
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}
            self._send(200, {"choices": [choice], "usage": {"prompt_tokens": tokens, "completion_tokens": 1}})

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            body = orjson.dumps(answer)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(folder: Path, context_length: int, max_tokens: int) -> list[CheckResult]:
    with vllm_like(context_length) as url:
        return results(folder, base_url=url, sampling={"max_tokens": max_tokens})


def test_a_server_that_is_up_counts_the_tokens_of_the_largest_images(folder: Path) -> None:
    Image.new("RGB", (1000, 40), "red").save(folder / "images" / "7.png")
    (fits,) = asked(folder, 220, 100)
    assert fits.state == "ok" and "up to 120 tokens" in fits.message
    (rare,) = asked(folder, 219, 100)
    assert rare.state == "warning" and "refuses 1 of the 3" in rare.message and "max-model-len = 220" in rare.mend
    (never,) = asked(folder, 150, 149)
    assert never.state == "problem" and never.key == "teachers.structured.sampling.max_tokens"
    (not_even_one,) = asked(folder, 110, 100)
    assert not_even_one.state == "problem" and "120 tokens are too long" in not_even_one.message


def test_a_server_that_does_not_say_its_context_is_not_asked(folder: Path) -> None:
    with vllm_like(None) as url:
        assert results(folder, base_url=url) == []
