"""Starts a vLLM server for an exported checkpoint and asks it greedily for token ids, to verify the export.

The server starts and stops like the servers of teachers (`vllm_server.py`). It uses the vLLM of the interpreter in
DISTILL_VLLM_PYTHON, else the command of a teacher whose server the run starts (but not a user's script, which cannot
serve an export), else the vllm on PATH.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from distill.data.images import image_files
from distill.errors import RecipeError, TeacherError
from distill.local_paths import from_home
from distill.machine import event_loop
from distill.recipe.recipe import Recipe
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from distill.types import Sample
from teacher.engines.export_calls import ExportServer, ask_export
from teacher.engines.http.server_info import server_version
from teacher.engines.vllm.vllm_options import interpreter, is_script, last_object, render, run_script
from teacher.engines.vllm.vllm_server import Servers
from teacher.messages.prompts import Prompt, image_part, messages

PYTHON = "DISTILL_VLLM_PYTHON"


_MODULE = ["-m", "vllm.entrypoints.openai.api_server"]
SERVED_NAME = "export"
_IN_FLIGHT = 32
_START_TIMEOUT_S = 900.0

SITE = """\
import sys
class BeforeTorchvision:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            try:
                import torch
                library = torch.library.Library("torchvision", "DEF")
                library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                BeforeTorchvision.library = library  # without it the operators are gone
            except Exception:
                pass
sys.meta_path.insert(0, BeforeTorchvision())
"""
"""A sitecustomize.py for vLLM on a CPU. The torchvision that comes with it is built for CUDA: importing it asks for
operators that the CPU build of torch lacks. Declaring their schemas first is enough, for nothing calls them. Helpers
of Python that import no torchvision (a server has two) do not load torch for it."""

_PROBE = """\
import importlib.util, json
import torch
try:
    import torchvision
    broken = False
except Exception:
    broken = importlib.util.find_spec("torchvision") is not None
print(json.dumps({"vllm": importlib.util.find_spec("vllm") is not None, "broken_torchvision": broken,
                  "gpu": torch.cuda.is_available() or torch.xpu.is_available()}))
"""


def find_server(recipe: Recipe, *, probe: bool = True) -> Server:
    """The vLLM to serve with. Raises RecipeError when there is none; without `probe` only the program counts."""
    managed = [
        teacher.server
        for teacher in recipe.teachers
        if teacher.managed and teacher.capabilities.speaks_http and not is_script(teacher.server)
    ]
    settings = managed[0] if managed else Server()
    (program, *rest), base = settings.command, recipe.path.parent.absolute()
    if python := os.environ.get(PYTHON):
        settings, program, rest, base = Server(), python, _MODULE, Path.cwd()
    if python or "/" in program:
        program = str(base / from_home(program))
    environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **settings.environment}
    server = Server(command=(program, *rest), environment=environment, start_timeout_s=_START_TIMEOUT_S, restarts=0)
    problem = None
    if not shutil.which(program, path=environment.get("PATH")):
        problem = f"there is no program {program!r}"
    elif probe and not _probe_server(server).get("vllm", True):
        problem = f"{program} has no vllm package"
    if problem:
        raise RecipeError(
            f"the export has to be served by vLLM, and {problem}; install vLLM into an environment of its own "
            f"(docs/vllm.md) and name its interpreter: {PYTHON}=/path/to/vllm/bin/python"
        )
    return server


@contextmanager
def serve_export(
    checkpoint: Path, *, server: Server, arguments: Mapping[str, Any], max_new_tokens: int, max_pixels: int
) -> Iterator[ExportServer]:
    """A server of `checkpoint` that lives while the block lasts; it calls its model SERVED_NAME.

    Raises TeacherError when it does not start, with the end of its log, or refuses a request.
    """
    folder = Path(tempfile.mkdtemp(prefix="distill-vllm-"))
    fitted = _server_for_machine(server, folder, {"enforce-eager": True, **arguments})
    with event_loop.Runner() as runner:
        servers = Servers(
            Teacher(name=SERVED_NAME, model=str(checkpoint), served_model=SERVED_NAME, server=fitted),
            str(checkpoint.absolute()),
            folder,
            subject=f"vLLM does not serve {checkpoint}: the server",
            remedy=f"its options were {' '.join(render(fitted))}",
        )
        runner.run(servers.__aenter__())
        try:
            url = servers.urls[0]

            def ask(samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
                try:
                    return runner.run(_ask(url, samples, max_new_tokens, max_pixels))
                except TeacherError as error:
                    raise TeacherError(f"{error}\nits log: {folder / 'server-0.log'}") from None

            if not (version := runner.run(server_version({}, url))):
                raise TeacherError(f"{url}: this is no vLLM, because it gives no version; run the same command again")
            yield ExportServer(engine=f"vllm {version}", url=url, ask=ask)
        finally:
            runner.run(servers.__aexit__())
    shutil.rmtree(folder, ignore_errors=True)  # after an error its log is still to be read


def _server_for_machine(server: Server, folder: Path, arguments: dict[str, Any]) -> Server:
    """The server with what a machine without a GPU asks for, as far as that can be found out."""
    probed = _probe_server(server)
    environment = dict(server.environment)
    if not probed.get("gpu", True):
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", **environment}
    if probed.get("broken_torchvision"):
        (folder / "sitecustomize.py").write_text(SITE, encoding="utf-8")
        path = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        environment["PYTHONPATH"] = os.pathsep.join([str(folder), *([path] if path else [])])
    return server.model_copy(update={"environment": environment, "arguments": arguments})


def _probe_server(server: Server) -> dict[str, bool]:
    """What the interpreter behind a server's command can import and use; nothing where none is found."""
    python = interpreter(server)
    return _probe(str(python), tuple(sorted(server.environment.items()))) if python else {}


@cache
def _probe(python: str, environment: tuple[tuple[str, str], ...]) -> dict[str, bool]:
    return last_object(run_script(python, _PROBE, {**os.environ, **dict(environment)}))


async def _ask(
    url: str, samples: Sequence[Sample], max_new_tokens: int, max_pixels: int
) -> list[tuple[list[int], list[int]]]:
    free = asyncio.Semaphore(_IN_FLIGHT)

    async def ask_sample(sample: Sample) -> tuple[list[int], list[int]]:
        async with free:
            body = await asyncio.to_thread(_body, sample, max_new_tokens, max_pixels)
            reply = await ask_export(f"{url}/chat/completions", body, "the server of the export", sample.id)
        try:
            return list(reply["prompt_token_ids"]), list(reply["choices"][0]["token_ids"])
        except (TypeError, KeyError, IndexError):
            raise TeacherError(
                f"the server of the export gave no token ids for {sample.id}; `return_token_ids` needs a newer vLLM"
            ) from None

    return list(await asyncio.gather(*map(ask_sample, samples)))


def _body(sample: Sample, max_new_tokens: int, max_pixels: int) -> bytes:
    read = map(image_files.read_bytes, sample.images)
    parts = [image_part(*image_files.portable(data, max_pixels=max_pixels)) for data in read]
    return orjson.dumps(
        {
            "model": SERVED_NAME,
            "messages": messages(Prompt(system="", images=sample.images, text=sample.question), parts),
            "max_tokens": max_new_tokens,
            "temperature": 0.0,
            # All values are stated, because missing values would come from the checkpoint's generation settings.
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "return_token_ids": True,
        }
    )
