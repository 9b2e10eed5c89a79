"""A chat server that costs next to nothing, so that what is measured is the client.

Runs in a process of its own on 127.0.0.1 and prints its port. Every answer has about `--kilobytes` of reasoning in
`message.reasoning` and a short `message.content`. Words in a question plant what a client has to survive: "(cut)"
ends by length in the middle of the content, "(silent)" has reasoning and no content, "(refused)" is HTTP 400.
`/metrics` counts as vLLM's does; `/seen` tells what requests looked like since the last POST to `/reset`.
"""

import argparse
import asyncio
import zlib
from typing import Any

import orjson
from aiohttp import web

TOKENS = 600


class Stub:
    def __init__(self, kilobytes: int, latency_s: float) -> None:
        line = "The picture shows one more of them, so the count goes up by one.\n"
        self.reasoning = (line * (kilobytes * 1024 // len(line) + 1))[: kilobytes * 1024]
        self.latency_s = latency_s
        self.requests = self.tokens = 0
        self.reset()

    def reset(self) -> None:
        self.keys: set[str] = set()
        self.seeds: set[Any] = set()
        self.now = self.most = self.asked = 0

    async def chat(self, request: web.Request) -> web.Response:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self.answer(orjson.loads(await request.read()))
        finally:
            self.now -= 1

    async def answer(self, body: dict[str, Any]) -> web.Response:
        texts = [_text(message["content"]) for message in body["messages"]]
        if not texts:
            return _json({"error": {"message": "no messages", "code": 400}}, status=400)
        self.asked += 1
        self.keys.update(body)
        self.seeds.add(body.get("seed"))
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        question = texts[-1]
        if "(refused)" in question:
            return _json({"error": {"message": "planted refusal", "code": 400}}, status=400)
        cut, silent = "(cut)" in question, "(silent)" in question
        content = "" if silent else "I see them in" if cut else f"I see {zlib.crc32(question.encode())} of them."
        self.requests += 1
        self.tokens += TOKENS
        choice = {
            "index": 0,
            "message": {"role": "assistant", "reasoning": self.reasoning, "content": content},
            "finish_reason": "length" if cut else "stop",
        }
        usage = {"prompt_tokens": 90, "completion_tokens": TOKENS, "total_tokens": 90 + TOKENS}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body.get("model", "")}
        return _json({**head, "choices": [choice], "usage": usage})

    async def models(self, _: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": "served", "object": "model"}]})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": "stub"})

    async def metrics(self, _: web.Request) -> web.Response:
        lines = f"vllm:request_success_total {self.requests}\nvllm:generation_tokens_total {self.tokens}\n"
        return web.Response(text=lines)

    async def seen(self, _: web.Request) -> web.Response:
        seeds = len(self.seeds - {None})
        return _json({"asked": self.asked, "most": self.most, "keys": sorted(self.keys), "seeds": seeds})

    async def forget(self, _: web.Request) -> web.Response:
        self.reset()
        return web.Response()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content if part["type"] == "text")


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kilobytes", type=int, default=12)
    parser.add_argument("--latency-s", type=float, default=0.0)
    options = parser.parse_args()
    stub = Stub(options.kilobytes, options.latency_s)
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", stub.chat)
    app.router.add_post("/reset", stub.forget)
    for path in ("/v1/models", "/health", "/version", "/metrics", "/seen"):
        app.router.add_get(path, getattr(stub, path.rpartition("/")[2]))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
