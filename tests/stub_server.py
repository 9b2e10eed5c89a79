"""A small OpenAI-compatible chat server for faults and load: deterministic text, planted latencies and faults.

Runs in a process of its own on 127.0.0.1. What a request meets is decided by words in its question, so a test plants
a fault by writing it into a row: "fault=500", "fault=500x2" (twice, then it is well), "fault=400", "fault=429",
"fault=hang", "fault=disconnect", "fault=garbage", "fault=abort", "fault=empty". Never a substitute for a real
server where the content of answers matters.
"""

import argparse
import asyncio
import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from aiohttp import web

_FAULT = re.compile(r"fault=([a-z]+|\d{3})(?:x(\d+))?")


class Stub:
    def __init__(self, *, model: str, root: str, latency_s: float, fail_all: int, words: int, field: bool) -> None:
        self.model, self.root, self.latency_s, self.fail_all = model, root, latency_s, fail_all
        self.words, self.field = words, field
        self.met: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.answered = 0
        self.in_flight = 0
        self.most_in_flight = 0

    async def models(self, _: web.Request) -> web.Response:
        card = {"id": self.model, "object": "model", "root": self.root or None}
        return _json({"object": "list", "data": [card]})

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": "0.0-stub"})

    async def seen(self, _: web.Request) -> web.Response:
        return _json({"answered": self.answered, "most_in_flight": self.most_in_flight, "bodies": self.bodies})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._chat(request)
        finally:
            self.in_flight -= 1

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw)
        if len(self.bodies) < 100:
            self.bodies.append(body)
        if self.fail_all:
            return _json({"error": {"message": "everything fails"}}, status=self.fail_all)
        text = body["messages"][-1]["content"][-1]["text"]
        fault = _FAULT.search(text)
        if fault:
            times = int(fault[2] or 10**9)
            key = f"{text} {body['seed']}"
            self.met[key] += 1
            if self.met[key] <= times:
                return await self._fault(request, fault[1])
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        self.answered += 1
        return _json(self._completion(text, body))

    async def _fault(self, request: web.Request, kind: str) -> web.StreamResponse:
        if kind.isdigit():
            headers = {"retry-after": "0.05"} if kind == "429" else {}
            return _json({"error": {"message": f"planted {kind}"}}, status=int(kind), headers=headers)
        if kind == "hang":
            await asyncio.sleep(3600)
        if kind == "disconnect":
            response = web.StreamResponse(headers={"content-length": "5000"})
            await response.prepare(request)
            await response.write(b'{"choices": [')
            assert request.transport is not None
            request.transport.close()
            return response
        if kind == "garbage":
            return web.Response(body=b"<html>not what you asked for</html>", content_type="text/html")
        if kind == "abort":
            return _json({"choices": [{"message": {"content": "half an"}, "finish_reason": "abort"}]})
        return _json({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": None})

    def _completion(self, text: str, body: dict[str, Any]) -> dict[str, Any]:
        """Words and an answer that depend on the question and the seed alone."""
        digest = hashlib.sha256(f"{text} {body['seed']}".encode()).hexdigest()
        reasoning = " ".join(f"step {digest[i % 32 : i % 32 + 4]}" for i in range(self.words))
        answer = str(int(digest[:4], 16) % 100)
        message = (
            {"role": "assistant", "reasoning": reasoning, "content": answer}
            if self.field
            else {"role": "assistant", "content": f"<think>\n{reasoning}\n</think>\n\n{answer}"}
        )
        usage = {
            "prompt_tokens": 30,
            "completion_tokens": self.words + 3,
            "completion_tokens_details": {"reasoning_tokens": self.words + 1},
            "prompt_tokens_details": {"multimodal_tokens": {"image": 16}},
        }
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, headers=headers, content_type="application/json")


@contextmanager
def serve(**options: Any) -> Iterator[str]:
    """The base URL of a stub in its own process; options are those of the command line, underscores for dashes."""
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    process = subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


async def _main(options: argparse.Namespace) -> None:
    port = options.port
    del options.port
    stub = Stub(**vars(options))
    app = web.Application(client_max_size=1 << 28)
    app.router.add_get("/v1/models", stub.models)
    app.router.add_get("/version", stub.version)
    app.router.add_get("/seen", stub.seen)
    app.router.add_post("/v1/chat/completions", stub.chat)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="stub")
    parser.add_argument("--root", default="")
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--fail-all", type=int, default=0)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--field", type=lambda text: text == "True", default=False)
    asyncio.run(_main(parser.parse_args()))
