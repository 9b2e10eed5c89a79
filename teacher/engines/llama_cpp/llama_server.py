"""Starts llama.cpp's server for a GGUF export and asks it greedily for token ids, to verify the export.

The program is the command in DISTILL_LLAMA_SERVER, else the `llama-server` on PATH. It must be built with multimodal
support, which llama.cpp's own builds have.
"""

import base64
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from distill.errors import RecipeError, TeacherError
from distill.machine import event_loop
from distill.recipe.sections.managed_server import Server
from distill.types import ImageRef, Sample
from teacher.engines.export_calls import ExportServer, ask_export
from teacher.engines.processes.guarded_process import GuardedProcess
from teacher.engines.processes.ports import reserve_port
from teacher.engines.processes.server_process import ServerProcess
from teacher.messages.prompts import Prompt, messages

COMMAND = "DISTILL_LLAMA_SERVER"
_START_TIMEOUT_S = 300.0
_MARKER = "<__media__>"  # of servers that do not name theirs
_CONTEXT_STEP = 256  # llama.cpp rounds a context up to it


def find_llama_server() -> list[str]:
    """The command that starts llama.cpp's server. Raises RecipeError when there is none."""
    command = shlex.split(os.environ.get(COMMAND, "")) or ["llama-server"]
    if shutil.which(command[0]) is None:
        raise RecipeError(
            f"llama.cpp has to serve the export, but there is no program {command[0]!r}; install "
            f"llama.cpp and name its server: {COMMAND}=/path/to/llama-server"
        )
    return command


@contextmanager
def serve_gguf(
    model: Path,
    mmproj: Path,
    *,
    command: Sequence[str],
    context: int,
    max_new_tokens: int,
    image: Callable[[ImageRef], bytes],
    image_ids: Sequence[int],
) -> Iterator[ExportServer]:
    """A server of two GGUF files that lives while the block lasts.

    `image` makes the PNG that is sent; llama.cpp replaces `image_ids` in a prompt by its own image tokens. Raises
    TeacherError when the server does not start, with the end of its log, or refuses a request.
    """
    folder = Path(tempfile.mkdtemp(prefix="distill-llama-"))
    port = reserve_port()
    options = {
        "--model": model.absolute(),
        "--mmproj": mmproj.absolute(),
        "--host": "127.0.0.1",
        "--port": port.number,
        "--ctx-size": -(-context // _CONTEXT_STEP) * _CONTEXT_STEP,
        "--parallel": 1,
    }
    whole = [*command, *(str(part) for option in options.items() for part in option)]
    server = ServerProcess(
        server=Server(start_timeout_s=_START_TIMEOUT_S, restarts=0),
        process=GuardedProcess(whole, os.environ, folder / "server.log"),
        port=port,
        subject="llama.cpp's server",
        remedy=f"its command was {shlex.join(whole)}",
    )
    client = _Client(address=server.address, max_new_tokens=max_new_tokens, image=image, image_ids=image_ids)
    with event_loop.Runner() as runner:
        try:
            runner.run(server.start())
            engine = runner.run(client.engine())
            yield ExportServer(engine=engine, url=server.url, ask=lambda samples: runner.run(client.ask(samples)))
        finally:
            runner.run(server.close())
    shutil.rmtree(folder, ignore_errors=True)  # after an error its log is still to be read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """Asks a llama.cpp server of a student one question after the other."""

    address: str
    max_new_tokens: int
    image: Callable[[ImageRef], bytes]
    image_ids: Sequence[int]

    async def engine(self) -> str:
        return f"llama.cpp {(await self._call('/props', 'a question about itself')).get('build_info', '')}".strip()

    async def ask(self, samples: Sequence[Sample]) -> list[tuple[list[int], list[int]]]:
        marker = (await self._call("/props", "a question about itself")).get("media_marker", _MARKER)
        return [await self._ask_sample(sample, marker) for sample in samples]

    async def _ask_sample(self, sample: Sample, marker: str) -> tuple[list[int], list[int]]:
        images = [base64.b64encode(self.image(ref)).decode() for ref in sample.images]
        parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}} for data in images]
        chat = messages(Prompt(system="", images=sample.images, text=sample.question), parts)
        try:
            prompt = (await self._call("/apply-template", sample.id, messages=chat))["prompt"]
            ids: list[int] = []
            for number, text in enumerate(prompt.split(marker)):
                body = {"content": text, "add_special": False, "parse_special": True}
                ids += self.image_ids if number else []
                ids += (await self._call("/tokenize", sample.id, **body))["tokens"]
            reply = await self._call(
                "/completion",
                sample.id,
                prompt={"prompt_string": prompt, "multimodal_data": images} if images else prompt,
                n_predict=self.max_new_tokens,
                temperature=0.0,
                top_k=1,
                repeat_penalty=1.0,
                cache_prompt=False,
                return_tokens=True,
            )
            # Another number of tokens than these: the server did not see the prompt that is put together here.
            return ids if reply["tokens_evaluated"] == len(ids) else [], reply["tokens"]
        except KeyError as error:
            raise TeacherError(
                f"llama.cpp's server gave no {error} for {sample.id}; install a newer llama.cpp"
            ) from None

    async def _call(self, path: str, about: str, **body: Any) -> dict[str, Any]:
        data = orjson.dumps(body) if body else b""
        return await ask_export(f"{self.address}{path}", data, "llama.cpp's server", about)
