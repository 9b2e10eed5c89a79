"""A real vLLM server that a run starts itself: asked, killed, started again, ended without a trace of it."""

import asyncio
import json
import os
import signal
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import vllm_server
from students import tiny_models

from distill.recipe.loading import recipes_folder
from distill.recipe.sections.teachers import Teacher
from teacher.engines.vllm.vllm_server import Servers

MODEL = sorted((recipes_folder() / "tiny" / "teachers").glob("*/config.json"))[0].parent

PROGRAM = """#!/bin/sh
case "$*" in *--port*) mkdir {site}/started 2> /dev/null && exec {python} "$@" ;; esac
exec {fork} "$@"
"""
"""The server that is killed consists of processes as vLLM starts them. The one after it is a fork, and so is the
process that names the options."""

pytestmark = vllm_server.marks(timeout_s=900)


@pytest.fixture
def teacher() -> Iterator[Teacher]:
    """A teacher as a recipe describes it, served by the vLLM of another environment."""
    with tempfile.TemporaryDirectory() as site:
        (Path(site) / "sitecustomize.py").write_text(vllm_server.SITE)
        fork = vllm_server.interpreter()
        (program := Path(site) / "python3").write_text(
            PROGRAM.format(site=site, python=vllm_server.PYTHON, fork=fork)
        )
        program.chmod(0o755)
        server = {
            "command": [str(program), "-m", "vllm.entrypoints.openai.api_server"],
            "environment": {
                "PYTHONPATH": site,
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
            },
            "arguments": {
                "dtype": "float32",
                "enforce-eager": True,
                "max-model-len": 512,
                "limit-mm-per-prompt": {"image": 1},
            },
            "start_timeout_s": vllm_server.START_TIMEOUT_S,
        }
        yield Teacher(name="served", model=str(MODEL), server=server)


def chat(url: str, image: Path) -> str:
    body: dict[str, Any] = {
        "model": str(MODEL),
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": image.resolve().as_uri()}},
                    {"type": "text", "text": "How many red circles?"},
                ],
            }
        ],
        "max_tokens": 16,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def processes(port: str) -> list[int]:
    """The server on a port and everything below it, without its guard. The server comes first."""
    parents: dict[int, int] = {}
    servers: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if port in words and "guard.py" not in " ".join(words):
            servers.append(int(folder.name))
    found = [pid for pid in servers if parents[pid] not in servers]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def test_a_server_is_started_killed_revived_and_leaves_nothing(
    teacher: Teacher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tiny_models.make_image(tmp_path / "images" / "0.png", 0)
    took: dict[str, float] = {}

    async def run() -> str:
        begun = time.monotonic()
        async with Servers(teacher, str(MODEL), tmp_path / "run", media_root=tmp_path / "images") as servers:
            took["start"] = time.monotonic() - begun
            (url,) = servers.urls
            port = url.removesuffix("/v1").rpartition(":")[2]
            first = processes(port)
            assert len(first) >= 2, "an API server and an engine"
            before = await asyncio.to_thread(chat, url, image)
            assert before
            os.kill(first[0], signal.SIGKILL)
            begun = time.monotonic()
            assert await asyncio.gather(servers.revive(url), servers.revive(url)) == [True, True]
            took["restart"] = time.monotonic() - begun
            assert servers.crashes == 1
            assert not any((Path("/proc") / str(pid)).exists() for pid in first)
            assert await asyncio.to_thread(chat, url, image) == before
            begun = time.monotonic()
        took["stop"] = time.monotonic() - begun
        assert processes(port) == []
        return port

    asyncio.run(run())
    log = (tmp_path / "run" / "server-0.log").read_text()
    assert log.count("=== ") == 2
    assert "POST /v1/chat/completions" not in log
    with capsys.disabled():
        print("\nvLLM " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
