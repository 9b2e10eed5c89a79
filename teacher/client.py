"""The HTTP client of an OpenAI-compatible chat server (vLLM, SGLang, llama.cpp, hosted APIs).

Keeps `max_in_flight` requests under way while it draws them from an iterator, retries what may pass, and gives
each row that fails for good its error instead of stopping the run; a circuit breaker stops a run in which too
much fails. Does not start servers and does not parse what they answer.
"""

import asyncio
import base64
import random
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from os import environ
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson

from distill import images
from distill.errors import CircuitOpen, ImageError, RecipeError, TeacherError
from distill.recipe import Sampling, Teacher
from distill.types import ImageRef
from teacher.completion import Completion, Served
from teacher.identity import Model, Request
from teacher.parse import compose
from teacher.prompts import messages

WINDOW = 100
"""Requests over which the circuit breaker looks back."""
_IMAGE_CACHE_BYTES = 64 << 20
_BACKOFF_S = 0.5
_LONGEST_WAIT_S = 60.0
_CHECK_TIMEOUT_S = 15.0
_RETRIED = frozenset({408, 409, 425, 429})
_FAILED_FINISHES = frozenset({"abort", "error"})
_VLLM_ONLY: Mapping[str, float] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

Done = Callable[[Request, Completion], None]


class _Attempt(Exception):
    """One try that failed but may pass when repeated."""

    def __init__(self, reason: str, detail: str, wait_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.wait_s = wait_s


class _Refused(Exception):
    """The server refuses this very request; repeating it is useless."""


@dataclass(slots=True)
class Breaker:
    """Opens when more than `max_failure_share` of the last WINDOW requests failed."""

    max_failure_share: float
    recent: deque[bool]

    @classmethod
    def closed(cls, max_failure_share: float) -> Self:
        return cls(max_failure_share, deque(maxlen=WINDOW))

    def record(self, where: str, error: str) -> None:
        """Count one finished request; `error` is empty when it succeeded. Raises CircuitOpen."""
        self.recent.append(bool(error))
        failures = sum(self.recent)
        if error and len(self.recent) == WINDOW and failures > self.max_failure_share * WINDOW:
            raise CircuitOpen(
                f"{where}: {failures} of the last {WINDOW} requests failed, more than generate.max_failure_share = "
                f"{self.max_failure_share}; the last one: {error}\n"
                "finished traces are kept: repair the server or the recipe, then run the same command again"
            )


class ChatClient:
    """One teacher behind a URL. Use as an async context manager; `check` comes before the first `answer`."""

    def __init__(
        self,
        teacher: Teacher,
        model: Model,
        *,
        urls: Sequence[str],
        max_pixels: int,
        max_failure_share: float,
        local_media: bool = False,
        revive: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self.teacher = teacher
        self.model = model
        self.url = urls[0]
        self.served = Served(
            model=teacher.served_model or teacher.model, engine={"name": teacher.backend, "version": ""}
        )
        self._breaker = Breaker.closed(max_failure_share)
        self._pictures = _Pictures(max_pixels)
        self.in_flight = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=self.teacher.timeout_s, sock_connect=min(10, self.teacher.timeout_s)),
            headers=self._headers(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        variable = self.teacher.api_key_env
        if variable:
            if not environ.get(variable):
                raise RecipeError(
                    f"teachers.{self.teacher.name}: api_key_env names {variable}, which is not set; export it first"
                )
            headers["authorization"] = f"Bearer {environ[variable]}"
        return headers

    async def check(self) -> None:
        """Ask the server what it serves. Raises TeacherError when it does not answer or serves another model."""
        status, listed = await self._get(f"{self.url}/models")
        if status in (401, 403):
            raise TeacherError(
                f"{self.url} refuses the key of teacher '{self.teacher.name}' (HTTP {status}); set api_key_env to "
                "the name of the environment variable that holds it"
            )
        if status >= 500 or status == 429:
            raise TeacherError(f"{self.url} answers HTTP {status}; wait until the server is up and run again")
        cards = listed.get("data") if isinstance(listed, dict) else None
        name = _choose(self.teacher, self.model, self.url, cards if isinstance(cards, list) else [])
        _, version = await self._get(f"{self.url.removesuffix('/v1')}/version")
        known = version.get("version") if isinstance(version, dict) else None
        engine = {"name": "vllm" if known else self.teacher.backend, "version": str(known or "")}
        self.served = Served(model=name, engine=engine)

    async def _get(self, url: str) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=_CHECK_TIMEOUT_S)
        try:
            async with self._session.get(url, timeout=timeout) as response:
                body = await response.read()
                return response.status, _json(body)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise TeacherError(
                f"teacher '{self.teacher.name}': no answer from {self.url} ({_told(error)}); start the server "
                f"(vllm serve {self.teacher.model}) or correct base_url, then run the same command again"
            ) from None

    async def answer(self, get: Callable[[], Awaitable[Request | None]], done: Done) -> None:
        """Send every request, `max_in_flight` at once; `done` is told of each as soon as it is finished.

        Raises CircuitOpen; then, and when `done` raises, what is under way is given up.
        """

        async def work() -> None:
            while request := await get():
                self.in_flight += 1
                completion = await self.ask(request)
                self.in_flight -= 1
                done(request, completion)
                if not completion.error.startswith("image:"):
                    self._breaker.record(f"teacher '{self.teacher.name}' at {self.url}", completion.error)

        workers = [asyncio.create_task(work()) for _ in range(self.teacher.max_in_flight or 64)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def ask(self, request: Request) -> Completion:
        """The completion of one request; its `error` says why there is none."""
        try:
            body = await self._body(request)
        except ImageError as error:
            return Completion(error=f"image: {error.reason}: {error}")
        tries = 0
        while True:
            started = time.monotonic()
            try:
                return await self._send(body, started)
            except _Refused as error:
                return Completion(error=f"refused_request: {error}", latency_s=time.monotonic() - started)
            except _Attempt as error:
                tries += 1
                if tries > self.teacher.max_retries:
                    return Completion(error=f"{error} ({tries} tries)", latency_s=time.monotonic() - started)
                # Waiting times differ at random, so that requests that failed together don't return together.
                wait_s = error.wait_s or _BACKOFF_S * 2 ** (tries - 1) * random.uniform(0.5, 1.0)
                await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))

    async def _body(self, request: Request) -> bytes:
        pictures = [await self._pictures.get(ref) for ref in request.prompt.images]
        parts = [{"type": "image_url", "image_url": {"url": orjson.Fragment(url)}} for url in pictures]
        return orjson.dumps(
            {
                "model": self.served.model,
                "messages": messages(request.prompt, parts),
                "seed": request.seed,
                **sampling_body(self.teacher, request.sampling),
            }
        )

    async def _send(self, body: bytes, started: float) -> Completion:
        try:
            async with self._session.post(f"{self.url}/chat/completions", data=body) as response:
                status, headers, payload = response.status, response.headers, await response.read()
        except TimeoutError:
            raise _Attempt("timeout", f"no answer within timeout_s = {self.teacher.timeout_s:g}") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _Attempt("connection", _told(error)) from None
        if status in _RETRIED or status >= 500:
            kind = "rate_limited" if status == 429 else "server_error"
            raise _Attempt(kind, f"HTTP {status}: {_excerpt(payload)}", _retry_after(headers.get("retry-after")))
        if status != 200:
            raise _Refused(f"HTTP {status}: {_excerpt(payload)}")
        return _read(payload, time.monotonic() - started)


class _Pictures:
    """Data URLs (as JSON strings) of the images in use, each encoded once for all of its samples."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._ready: OrderedDict[str, asyncio.Task[bytes]] = OrderedDict()
        self._bytes = 0

    async def get(self, ref: ImageRef) -> bytes:
        task = self._ready.get(ref.sha256)
        if task is None:
            task = self._ready[ref.sha256] = asyncio.create_task(asyncio.to_thread(self._encode, ref))
            task.add_done_callback(self._weigh)
        else:
            self._ready.move_to_end(ref.sha256)
        return await asyncio.shield(task)

    def _encode(self, ref: ImageRef) -> bytes:
        data, mime = images.portable(images.read_bytes(ref), max_pixels=self._max_pixels)
        return b'"data:%s;base64,%s"' % (mime.encode(), base64.b64encode(data))

    def _weigh(self, task: asyncio.Task[bytes]) -> None:
        if task.cancelled() or task.exception():
            return
        self._bytes += len(task.result())
        while self._bytes > _IMAGE_CACHE_BYTES and len(self._ready) > 1:
            name, oldest = next(iter(self._ready.items()))
            if not oldest.done():
                return
            del self._ready[name]
            if not oldest.cancelled() and oldest.exception() is None:
                self._bytes -= len(oldest.result())


def sampling_body(teacher: Teacher, sampling: Sampling) -> dict[str, Any]:
    """The sampling part of a request body.

    A vLLM server is told every value: what is left out it takes from the model's generation_config.json, and the
    trace would record something that was not in force. Other servers get only what differs from neutral.
    """
    body: dict[str, Any] = {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if teacher.chat_template_kwargs:
        body["chat_template_kwargs"] = dict(teacher.chat_template_kwargs)
    if teacher.backend == "vllm":
        return body | {"top_p": sampling.top_p} | {key: getattr(sampling, key) for key in _VLLM_ONLY}
    unknown = [key for key, neutral in _VLLM_ONLY.items() if getattr(sampling, key) != neutral]
    if unknown:
        raise RecipeError(
            f"teachers.{teacher.name}.sampling: {', '.join(unknown)} cannot be sent by backend 'openai'; "
            'leave them out, or set backend = "vllm" for a vLLM server'
        )
    return body | ({"top_p": sampling.top_p} if sampling.top_p != 1 else {})


def _choose(teacher: Teacher, model: Model, url: str, cards: list[Any]) -> str:
    """The name under which a server serves the teacher's model. Raises TeacherError when it serves another."""
    served = {str(card["id"]): card.get("root") for card in cards if isinstance(card, dict) and "id" in card}
    wanted = teacher.served_model or model.name
    if not served or wanted in served:
        return wanted
    listing = ", ".join(served)
    if teacher.served_model:
        raise TeacherError(
            f"{url} does not serve served_model = {wanted!r} of teacher '{teacher.name}'; it serves: {listing}"
        )
    roots = {name: root for name, root in served.items() if _same_place(root, model)}
    if len(roots) >= 1:
        return next(iter(roots))
    if len(served) == 1 and next(iter(served.values())) in (None, next(iter(served))):
        return next(iter(served))
    raise TeacherError(
        f"{url} serves {listing}, not model = {model.name!r} of teacher '{teacher.name}'; start the right server, or "
        "set served_model if it is the same model under another name"
    )


def _same_place(root: object, model: Model) -> bool:
    if not isinstance(root, str):
        return False
    if not model.local:
        return root == model.name
    return Path(root).is_dir() and model.revision == _digest_of(Path(root))


def _digest_of(path: Path) -> str:
    from distill.artifacts import directory_sha256

    return directory_sha256(path.resolve())


def _read(payload: bytes, latency_s: float) -> Completion:
    """A server's answer as a completion. Raises _Attempt when it is not one."""
    body = _json(payload)
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content = _text(message.get("content"))
        reasoning = _text(message.get("reasoning") or message.get("reasoning_content"))
        refusal = _text(message.get("refusal"))
        finish = str(choice.get("finish_reason") or "stop")
        usage = body.get("usage") or {}
        details = usage.get("completion_tokens_details") or {}
        media = (usage.get("prompt_tokens_details") or {}).get("multimodal_tokens") or {}
        completion = Completion(
            text=compose(content or refusal, reasoning),
            finish_reason="content_filter" if refusal and not content else finish,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            image_tokens=int(media.get("image") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            reasoning_tokens=details.get("reasoning_tokens") or None,
            latency_s=latency_s,
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        raise _Attempt("garbled_response", f"not a chat completion: {_excerpt(payload)}") from None
    if finish in _FAILED_FINISHES:
        raise _Attempt("server_error", f"finish_reason {finish}")
    return completion


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value)
    return "" if value is None else str(value)


def _json(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


def _excerpt(payload: bytes) -> str:
    body = _json(payload)
    if isinstance(body, dict):
        inner = body.get("error", body.get("message", body))
        body = inner.get("message", inner) if isinstance(inner, dict) else inner
    text = body if isinstance(body, str) else payload.decode(errors="replace") if body is None else str(body)
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
