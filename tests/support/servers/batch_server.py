"""A stand-in for a hosted batch API (OpenAI's protocol), with planted faults; its state survives a restart.

    POST /v1/files, GET /v1/files/ID/content, POST /v1/batches, GET /v1/batches, GET /v1/batches/ID, GET /v1/models

`Faults` says what goes wrong and counts down; `BatchServer.paid` counts how often each request was worked on.
"""

import asyncio
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from servers import stub_answers

Execute = Callable[[Path, Path], None]
"""Answers the file of requests at the first path with lines at the second."""


@dataclass
class Faults:
    """What goes wrong, and how often."""

    statuses: dict[str, list[int]] = field(default_factory=dict)
    """Statuses to answer next, by a pattern that "METHOD /path" begins with."""
    lost_creations: int = 0
    """Batches that are created while the connection ends without an answer."""
    retry_after: str = "0.05"
    """The header of such an answer."""
    failed: int = 0
    """Batches that fail as a whole."""
    spared: frozenset[int] = frozenset()
    """Numbers of batches that do not fail."""
    expired: int = 0
    """Batches of which only the first half is answered in time."""
    lines: Callable[[list[bytes]], list[bytes]] = list
    """What becomes of the lines of each answer file."""
    bodies: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    """What becomes of the body of an answer, by the beginning of "METHOD /path"."""
    on: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Called at "METHOD /path" before the answer is sent, when everything has been done."""


class BatchServer:
    """What was uploaded and submitted; in `folder`, so another one may go on with it."""

    def __init__(self, folder: Path, execute: Execute, model: str) -> None:
        self.folder, self.execute, self.model = folder, execute, model
        self.faults = Faults()
        self.paid: Counter[str] = Counter()
        self.sizes: list[int] = []
        self.looks_until_done = 1
        self.looks: dict[int, int] = {}
        self.working: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self.headers: list[dict[str, str]] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def batches(self) -> list[dict[str, Any]]:
        """The newest first."""
        found = [json.loads(path.read_text()) for path in self.folder.glob("batch_*.json")]
        return sorted(found, key=lambda batch: -batch["number"])

    def _save(self, batch: dict[str, Any]) -> dict[str, Any]:
        (self.folder / f"{batch['id']}.json").write_text(json.dumps(batch))
        return batch

    @web.middleware
    async def faulty(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        where = f"{request.method} {request.path}"
        for pattern, statuses in self.faults.statuses.items():
            if re.match(pattern, where) and statuses:
                await request.read()
                error = {"error": {"message": f"planted {statuses[0]}"}}
                return web.json_response(
                    error, status=statuses.pop(0), headers={"retry-after": self.faults.retry_after}
                )
        response: web.StreamResponse = await handler(request)
        for start, change in self.faults.bodies.items():
            if where.startswith(start) and isinstance(response, web.Response) and response.status == 200:
                assert isinstance(response.body, bytes)
                response = web.json_response(change(json.loads(response.body)))
        if hook := self.faults.on.get(where):
            hook()
        return response

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.model}]})

    async def version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": "0.0-stand-in"})

    async def upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        sent = form["file"]
        assert form["purpose"] == "batch" and isinstance(sent, web.FileField)
        name = f"file-{len(list(self.folder.glob('file-*')))}"
        (self.folder / name).write_bytes(sent.file.read())
        return web.json_response({"id": name, "object": "file", "purpose": "batch"})

    async def content(self, request: web.Request) -> web.StreamResponse:
        path = self.folder / request.match_info["name"]
        return web.FileResponse(path) if path.is_file() else _missing()

    async def create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        assert asked["endpoint"] == "/v1/chat/completions" and asked["completion_window"] == "24h"
        number = len(self.batches)
        batch = {"id": f"batch_{number}", "object": "batch", "number": number, "status": "validating", "looks": 0}
        self._save(batch | {"input_file_id": asked["input_file_id"], "metadata": asked["metadata"]})
        if self.faults.lost_creations:
            self.faults.lost_creations -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response(batch)

    async def listing(self, request: web.Request) -> web.Response:
        """Two a page, whatever is asked for."""
        batches, after = self.batches, request.query.get("after")
        start = next((place + 1 for place, batch in enumerate(batches) if batch["id"] == after), 0)
        page = batches[start : start + 2]
        return web.json_response({"object": "list", "data": page, "has_more": start + 2 < len(batches)})

    async def look(self, request: web.Request) -> web.Response:
        path = self.folder / f"{request.match_info['name']}.json"
        if not path.is_file():
            return _missing()
        batch = json.loads(path.read_text())
        if batch["status"] in ("validating", "in_progress") and batch["id"] not in self.working:
            batch |= {"status": "in_progress", "looks": batch["looks"] + 1}
            self._save(batch)
            if batch["looks"] > self.looks.get(batch["number"], self.looks_until_done):
                self.working[batch["id"]] = asyncio.create_task(asyncio.to_thread(self._work, dict(batch)))
                await asyncio.wait(self.working.values(), timeout=1.0)
        if (working := self.working.get(batch["id"])) and working.done():
            del self.working[batch["id"]]
            batch = self._save(working.result())
        return web.json_response(batch)

    def _work(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Answer a batch, as well as it goes; what there is to say of it then."""
        if self.faults.failed and batch["number"] not in self.faults.spared:
            self.faults.failed -= 1
            batch |= {
                "status": "failed",
                "errors": {"data": [{"code": "token_limit", "message": "too much enqueued"}]},
            }
            return batch
        asked = self.folder / batch["input_file_id"]
        lines = asked.read_bytes().splitlines(keepends=True)
        self.sizes.append(len(lines))
        answered, unanswered = lines, []
        batch["status"] = "completed"
        if self.faults.expired:
            self.faults.expired -= 1
            batch["status"] = "expired"
            answered, unanswered = lines[: len(lines) // 2], lines[len(lines) // 2 :]
        self.paid.update(json.loads(line)["custom_id"] for line in answered)
        out, errors = self.folder / f"file-out-{batch['id']}", self.folder / f"file-errors-{batch['id']}"
        part = self.folder / f"part-{batch['id']}"
        part.write_bytes(b"".join(answered))
        self.execute(part, out)
        passed = [line for line in out.read_bytes().splitlines(keepends=True) if _passed(line)]
        others = [line for line in out.read_bytes().splitlines(keepends=True) if not _passed(line)]
        for line in unanswered:
            name = json.loads(line)["custom_id"]
            error = {"code": "batch_expired", "message": "This request could not be executed in time."}
            others.append(json.dumps({"custom_id": name, "response": None, "error": error}).encode() + b"\n")
        for key, path, found in (("output_file_id", out, passed), ("error_file_id", errors, others)):
            path.write_bytes(b"".join(self.faults.lines(found)))
            if found:
                batch[key] = path.name
        return batch


def _passed(line: bytes) -> bool:
    response = json.loads(line).get("response") or {}
    return response.get("status_code") == 200


def _missing() -> web.Response:
    return web.json_response({"error": {"message": "no such thing"}}, status=404)


def answer_lines(asked: Path, out: Path) -> None:
    """The answers of the stub server; a question with fault=400 is refused."""
    made = []
    for line in asked.read_bytes().splitlines():
        request = json.loads(line)
        body = request["body"]
        text = body["messages"][-1]["content"][-1]["text"]
        answer = stub_answers.completion(text, body, words=20, field=False) | {"model": body["model"]}
        status = 200
        if "fault=400" in text:
            status, answer = 400, {"error": {"message": "of no use"}}
        response = {"status_code": status, "request_id": "r", "body": answer}
        made.append(json.dumps({"id": "x", "custom_id": request["custom_id"], "response": response, "error": None}))
    out.write_text("".join(line + "\n" for line in made))


def doubled_and_shuffled(lines: list[bytes]) -> list[bytes]:
    """Every line twice, in another order, with an unknown request and a torn line among them."""
    lines = [*lines, *lines, b'{"custom_id": "unknown", "response": {"status_code": 200, "body": {}}}\n', b'{"cust\n']
    random.Random(0).shuffle(lines)
    return lines


@contextmanager
def serve(folder: Path, execute: Execute = answer_lines, model: str = "stub", port: int = 0) -> Iterator[Any]:
    """A server in a thread, with its `url`."""
    server = BatchServer(folder, execute, model)
    app = web.Application(middlewares=[server.faulty], client_max_size=1 << 30)
    app.add_routes(
        [
            web.get("/v1/models", server.models),
            web.get("/version", server.version),
            web.post("/v1/files", server.upload),
            web.get("/v1/files/{name}/content", server.content),
            web.post("/v1/batches", server.create),
            web.get("/v1/batches", server.listing),
            web.get("/v1/batches/{name}", server.look),
        ]
    )
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app)
    loop.run_until_complete(runner.setup())
    site = web.TCPSite(runner, "127.0.0.1", port)
    loop.run_until_complete(site.start())
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"  # type: ignore[attr-defined]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
