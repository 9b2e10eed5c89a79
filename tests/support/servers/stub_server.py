"""A small OpenAI-compatible chat server for faults and load: deterministic text, planted latencies and faults.

Runs in a process of its own on 127.0.0.1, on a bare asyncio protocol, so that it takes less of a machine than the
client it measures. Never a substitute for a real server where the content of answers matters.

What a request meets is decided by words in its question, so a test plants a fault by writing it into a row,
"fault=500" for ever or "fault=500x2" twice:

    a status    that status, an error body; 429 with Retry-After: 0.05
    hang        nothing, ever               disconnect  half a body, then the end
    reset       the end before any header   slow        a body in small pieces over half a second
    garbage     HTML with status 200        cut         truncated JSON with status 200
    nothing     an empty body               abort       finish_reason abort
    nochoices   an answer without choices   null        content null
    bytes       bytes that are no UTF-8     huge        more bytes than any answer should have
    redirect    302 to elsewhere            empty       an empty text
    refusal     a refusal                   think       thoughts that ran into max_tokens
    loop        a text that goes round          bomb        a small body that unpacks to a huge one
    inner       an error with status 200        odd         numbers that cannot be true
    drip        pieces over three seconds, when pieces are asked for; else nothing, ever
    stall       one piece, then nothing, ever

What all requests meet is `--mode`, which GET /mode?NAME changes while it runs: one of the faults above, a status,
"quota" (429 and a text about money), "limit" (429 and a text that asks to wait for 1.5 s), "refuse-NAME" (400 where
the request has the parameter NAME), "html" (502 and a page), "login" (200 and a page), "other" (another model
answers), "away" (connections end before any header), "hold" (nothing until the mode is another one); "" for none.
Answers come in pieces where the request says `stream`, unless `--whole` is given.

With `--slots` it has an engine: so many requests are worked on at once, the others wait; each decoding step takes
`--token-s` and `--slot-s` for every running request. `/metrics` shows the queue as vLLM does.
"""

import argparse
import asyncio
import gzip
import os
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this file also runs as a program

from servers.stub_answers import chunk, completion, events, part_url, pieces_of, response, spoken

_FAULT = re.compile(r"fault=(\d{3}|[a-z]+?)(?:x(\d+))?\b")
_STEP_S = 0.005
"""The engine wakes up about so often."""


class Engine:
    """Requests decoding side by side: more of them are slower each and faster together, up to the slots."""

    def __init__(self, slots: int, token_s: float, slot_s: float) -> None:
        self.slots, self.token_s, self.slot_s = slots, token_s, slot_s
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.running: list[list[Any]] = []
        self.generated = 0
        self._working: asyncio.Task[None] | None = None

    async def decode(self, tokens: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((tokens, done))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        await done

    async def _work(self) -> None:
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.slots:
                self.running.append(list(self.waiting.popleft()))
            per_token_s = self.token_s + self.slot_s * len(self.running)
            tokens = max(1, round(_STEP_S / per_token_s)) if per_token_s else 1 << 30
            await asyncio.sleep(tokens * per_token_s)
            self.generated += tokens * len(self.running)
            for entry in self.running:
                entry[0] -= tokens
                if entry[0] <= 0 and not entry[1].done():
                    entry[1].set_result(None)
            self.running = [entry for entry in self.running if entry[0] > 0]


class Stub:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.engine = Engine(options.slots, options.token_s, options.slot_s) if options.slots else None
        self.met: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.head = ""
        self.looks = self.requests = self.answered = self.in_flight = self.most_in_flight = 0

    def page(self, path: str) -> bytes:
        """Everything that is not a chat."""
        if path.partition("?")[0] == "/mode":
            self.options.mode = unquote(path.partition("?")[2])
            return response({})
        if self.options.mode and path != "/seen" and (page := self._outage(self.options.mode)):
            return page
        if path == "/v1/models":
            card = {"id": self.options.model, "object": "model", "root": self.options.root or None}
            return response({"object": "list", "data": [card]})
        if path == "/version":
            return response({"version": "0.0-stub"})
        if path == "/health":
            return response({})
        if path == "/seen":
            return response(
                {
                    "answered": self.answered,
                    "requests": self.requests,
                    "looks": self.looks,
                    "most_in_flight": self.most_in_flight,
                    "bodies": self.bodies,
                    "head": self.head,
                }
            )
        if path == "/metrics" and self.engine:
            self.looks += 1
            if 1 < self.looks <= 1 + self.options.metrics_fail:
                return response({"error": {"message": "not yet"}}, status=503)
            running, waiting = len(self.engine.running), len(self.engine.waiting)
            return response(
                f'vllm:num_requests_running{{engine="0"}} {running}\n'
                f'vllm:num_requests_waiting{{engine="0"}} {waiting}\n'
                f'vllm:generation_tokens_total{{engine="0"}} {self.engine.generated}\n'
                f'vllm:kv_cache_usage_perc{{engine="0"}} {running / self.engine.slots}\n'.encode()
            )
        return response({"error": {"message": f"no {path}"}}, status=404)

    async def chat(self, raw: bytes, wire: "Wire") -> bytes | None:
        """The whole answer to a chat request; None when the connection has been dealt with."""
        self.requests += 1
        while self.options.mode == "hold":
            await asyncio.sleep(0.02)
        if self.requests == self.options.crash_after:
            os._exit(1)
        body = orjson.loads(raw)
        if len(self.bodies) < 100:
            self.bodies.append(body)
        if self.options.fail_all:
            return response({"error": {"message": "everything fails"}}, status=self.options.fail_all)
        refused = self.options.mode.removeprefix("refuse-")
        if refused != self.options.mode and refused in body:
            said = f"Unsupported parameter: '{refused}' is not supported with this model."
            return response({"error": {"message": said, "param": refused}}, status=400)
        if (mode := self.options.mode) and refused == mode:
            if mode == "away":
                wire.end()
                return None
            page = self._outage(mode)
            if page or mode != "other":
                return page or await self._fault(mode, body, wire)
        if self.engine and self.options.queue and len(self.engine.waiting) >= self.options.queue:
            return response({"error": {"message": "the queue is full"}}, status=503)
        parts = next(turn for turn in reversed(body["messages"]) if turn["role"] == "user")["content"]
        if not self.options.allowed_local_media_path and any("file://" in part_url(part) for part in parts):
            message = "Cannot load local files without `--allowed-local-media-path`."
            return response({"error": {"message": message}}, status=400)
        text = parts[-1]["text"]
        fault = _FAULT.search(text)
        if fault:
            key = f"{text} {body.get('seed')}"
            self.met[key] += 1
            if self.met[key] <= int(fault[2] or 10**9):
                return await self._fault(fault[1], body, wire)
        answer = completion(text, body, words=self.options.words, field=self.options.field)
        for number in range(1, body.get("n", 1) if self.options.choices else 1):
            other = completion(text, body | {"seed": body["seed"] + number}, words=self.options.words, field=False)
            answer["choices"].append(other["choices"][0] | {"index": number})
            answer["usage"]["completion_tokens"] += other["usage"]["completion_tokens"]
        if self.options.latency_s:
            await asyncio.sleep(self.options.latency_s)
        if self.engine:
            await self.engine.decode(answer["usage"]["completion_tokens"])
        self.answered += 1
        answer["model"] = "another" if self.options.mode == "other" else body["model"]
        return pieces_of(answer) if body.get("stream") and not self.options.whole else response(answer)

    def _outage(self, mode: str) -> bytes | None:
        """What every request meets, questions about the server included."""
        page = b"<html><body>Bad Gateway</body></html>"
        match mode:
            case "quota":
                text = "You exceeded your current quota, please check your plan and billing details."
                return response({"error": {"message": text, "code": "insufficient_quota"}}, status=429)
            case "limit":
                text = "Rate limit reached for requests. Please try again in 1.5s."
                return response({"error": {"message": text, "code": "rate_limit_exceeded"}}, status=429)
            case "html" | "login":
                return response(page, status=502 if mode == "html" else 200, kind="text/html")
        return response({"error": {"message": f"all {mode}"}}, status=int(mode)) if mode.isdigit() else None

    async def _fault(self, kind: str, body: dict[str, Any], wire: "Wire") -> bytes | None:
        if kind.isdigit():
            return response({"error": {"message": f"planted {kind}"}}, status=int(kind), retry_after=kind == "429")
        match kind:
            case "hang":
                await asyncio.sleep(3600)
            case "disconnect":
                wire.send(b'HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{"choices": [')
                wire.end()
                return None
            case "reset":
                wire.end()
                return None
            case "slow":
                whole = response(completion("slow", body, words=5, field=False))
                for start in range(0, len(whole), 1 + len(whole) // 10):
                    wire.send(whole[start : start + 1 + len(whole) // 10])
                    await asyncio.sleep(0.05)
                return None
            case "drip" if body.get("stream"):
                *pieces, end = events(completion("drip", body, words=10, field=False))
                wire.send(response(b"", kind="text/event-stream", length=False))
                for piece in (*pieces, end):
                    wire.send(chunk(piece))
                    await asyncio.sleep(3 / len(pieces))
                wire.send(chunk(b""))
                return None
            case "drip":
                await asyncio.sleep(3600)
            case "stall":
                first, *_ = events(completion("stall", body, words=5, field=False))
                wire.send(response(b"", kind="text/event-stream", length=False) + chunk(first))
                await asyncio.sleep(3600)
            case "inner":
                return response({"error": {"message": "overloaded", "type": "server_error", "code": 529}})
            case "odd":
                odd = completion("odd", body, words=5, field=False)
                odd["usage"] = {"prompt_tokens": -1, "completion_tokens": 5e9, "completion_tokens_details": "many"}
                return response(odd)
            case "garbage":
                return response(b"<html>not what you asked for</html>")
            case "cut":
                return response(orjson.dumps(completion("cut", body, words=5, field=False))[:-20])
            case "nothing":
                return response(b"")
            case "nochoices":
                return response({"choices": []})
            case "bytes":
                return response(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}')
            case "huge":
                return response(b'{"choices": "' + b"x" * (65 << 20) + b'"}')
            case "bomb":
                return response(gzip.compress(bytes(65 << 20), 1), encoding="gzip")
            case "redirect":
                return response({}, status=302)
            case "abort":
                return response(spoken("half an", "abort"))
            case "null":
                return response(spoken(None, "stop"))
            case "refusal":
                return response(spoken("I'm sorry, but I can't help with that.", "stop"))
            case "think":
                return response(spoken("<think>First I would have to look at", "length"))
            case "loop":
                return response(spoken("<think>and again " + "and again " * 60, "length"))
        usage = {"prompt_tokens": 30, "completion_tokens": 0}
        return response({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": usage})


class Wire(asyncio.Protocol):
    """One connection: requests with a content-length, one after the other."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        if self._task:
            self._task.cancel()

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def end(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        raw = bytes(self._buffer[end + 4 : end + 4 + length])
        path = bytes(self._buffer[:end]).split(b" ", 2)[1].decode()
        path = re.sub(r"^http://[^/]+", "", path)  # what a proxy gets
        del self._buffer[: end + 4 + length]
        if self._stub.options.mode == "away" and not path.startswith("/mode"):
            self.end()
        elif path == "/v1/chat/completions":
            self._stub.head = head.decode(errors="replace")
            self._task = asyncio.create_task(self._chat(raw))
        else:
            self.send(self._stub.page(path))

    async def _chat(self, raw: bytes) -> None:
        stub = self._stub
        stub.in_flight += 1
        stub.most_in_flight = max(stub.most_in_flight, stub.in_flight)
        try:
            answer = await stub.chat(raw, self)
            if answer is not None:
                self.send(answer)
        finally:
            stub.in_flight -= 1


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
    stub = Stub(options)
    if options.wait:
        sys.stdin.readline()
    server = await asyncio.get_running_loop().create_server(
        lambda: Wire(stub), options.host, options.port, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="stub")
    parser.add_argument("--root", default="")
    parser.add_argument("--allowed-local-media-path", default="")
    parser.add_argument("--latency-s", type=float, default=0.0)
    parser.add_argument("--fail-all", type=int, default=0, help="answer everything with this status")
    parser.add_argument("--mode", default="", help="what every request meets")
    parser.add_argument("--whole", type=int, default=0, help="1: never answer in pieces")
    parser.add_argument("--choices", type=int, default=1, help="0: one choice, however many are asked for")
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--field", type=lambda text: text == "True", default=False)
    parser.add_argument("--slots", type=int, default=0, help="requests worked on at once; 0: all, without an engine")
    parser.add_argument("--token-s", type=float, default=0.0005)
    parser.add_argument("--slot-s", type=float, default=0.0)
    parser.add_argument("--queue", type=int, default=0, help="answer 503 when so many wait; 0: never")
    parser.add_argument(
        "--metrics-fail", type=int, default=0, help="answer 503 to so many looks at /metrics, from the second on"
    )
    parser.add_argument("--wait", type=int, default=0, help="1: begin at a line of standard input")
    parser.add_argument("--crash-after", type=int, default=0, help="die at this request")
    # Whatever else a starter of vLLM servers passes is not for a stub.
    asyncio.run(_main(parser.parse_known_args()[0]))
