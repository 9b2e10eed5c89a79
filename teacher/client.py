"""The HTTP client of OpenAI-compatible chat servers (vLLM, SGLang, llama.cpp, hosted APIs).

Keeps as many requests under way as the servers keep busy, draws each only when there is a place for it, retries what
may pass, and gives each row that fails for good its error instead of stopping the run; a circuit breaker stops a run
in which too much fails. Does not start servers and does not parse what they answer.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Self

import aiohttp
import orjson

from distill import redact
from distill.errors import CircuitOpen, ImageError, TeacherError
from distill.recipe import Teacher
from teacher.completion import Completion, Served
from teacher.identity import Model, Request
from teacher.pace import BLIND_START, START, Pace
from teacher.pictures import Pictures
from teacher.prompts import messages
from teacher.replicas import Place, Replica, choose, well
from teacher.served import model_served, queue
from teacher.wire import GarbledError, api_key, completion, excerpt, parsed, sampling_body

WINDOW = 100
"""Requests over which the circuit breaker looks back."""
MAX_ANSWER_BYTES = 64 << 20
_BACKOFF_S = 0.5
_LONGEST_WAIT_S = 60.0
_CHECK_TIMEOUT_S = 15.0
_DRAIN_S = 0.05
_LOOK_S = (0.25, 2.0)
"""How often a server's queue is looked at: while the limit changes, and later. A look takes the server's CPU, too."""
_RETRIED = frozenset({408, 409, 425, 429})
_BUSY = frozenset({429, 503})
_CONNECTION = "connection"
_SUSPECT_AFTER, _GUILTY_AFTER = 2, 4
"""A request that has seen so many crashes is suspected of causing them, and asked with nothing else under way; when
it has seen so many, it does cause them."""

Done = Callable[[Request, Completion], None]
Get = Callable[[], Awaitable[Request | None]]
Revive = Callable[[str], Awaitable[bool]]


class _Attempt(Exception):
    """One try that failed but may pass when repeated."""

    def __init__(self, reason: str, detail: str, wait_s: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
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
        if not error or len(self.recent) < WINDOW:
            return
        failures = sum(self.recent)
        if failures > self.max_failure_share * WINDOW:
            raise CircuitOpen(
                f"{where}: {failures} of the last {WINDOW} requests failed, more than generate.max_failure_share = "
                f"{self.max_failure_share}; the last one: {error}\n"
                "finished traces are kept: repair the server or the recipe, then run the same command again"
            )


class ChatClient:
    """One teacher behind one or several URLs. Use as an async context manager; `check` comes before `answer`."""

    def __init__(
        self,
        teacher: Teacher,
        model: Model,
        *,
        urls: Sequence[str],
        max_pixels: int,
        max_failure_share: float,
        local_media: bool = False,
        revive: Revive | None = None,
    ) -> None:
        """`local_media`: the servers may read image files. `revive` is asked to bring back a server that broke."""
        self.teacher = teacher
        self.model = model
        start = START if teacher.backend == "vllm" else BLIND_START
        self.replicas = [Replica(url.rstrip("/"), Pace(teacher.max_in_flight, start)) for url in urls]
        self.served = Served(
            model=teacher.served_model or teacher.model, engine={"name": teacher.backend, "version": ""}
        )
        self._revive = revive
        self._breaker = Breaker.closed(max_failure_share)
        self._pictures = Pictures(teacher, max_pixels=max_pixels, local_media=local_media, urls=tuple(urls))
        self._place = asyncio.Event()
        self._turn = asyncio.Lock()
        self._suspects = 0

    @property
    def in_flight(self) -> int:
        return sum(replica.in_flight for replica in self.replicas)

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=self.teacher.timeout_s, sock_connect=min(10, self.teacher.timeout_s)),
            headers=self.headers(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def headers(self) -> dict[str, str]:
        """The headers of every request. Raises RecipeError when the key's variable is not set."""
        headers = {"content-type": "application/json"}
        key = api_key(self.teacher)
        return headers | {"authorization": f"Bearer {key}"} if key else headers

    async def check(self) -> None:
        """Ask every server what it serves. Raises TeacherError when one does not answer or serves another model."""
        for replica in self.replicas:
            self.served = await self._check(replica.url)

    async def _check(self, url: str) -> Served:
        status, listed = await self._get(f"{url}/models")
        if status in (401, 403):
            raise TeacherError(
                f"{url} refuses the key of teacher '{self.teacher.name}' (HTTP {status}); set api_key_env to "
                "the name of the environment variable that holds it"
            )
        if status >= 500 or status == 429:
            raise TeacherError(f"{url} answers HTTP {status}; wait until the server is up and run again")
        cards = listed.get("data") if isinstance(listed, dict) else None
        cards = cards if isinstance(cards, list) else []
        name = model_served(self.teacher, self.model, url, cards)
        _, version = await self._get(f"{url.removesuffix('/v1')}/version")
        known = version.get("version") if isinstance(version, dict) else None
        engine = {"name": "vllm" if known else self.teacher.backend, "version": str(known or "")}
        card = next((card for card in cards if isinstance(card, dict) and card.get("id") == name), {})
        facts = {
            "urls": [redact.url(replica.url) for replica in self.replicas],
            "max_model_len": card.get("max_model_len"),
        }
        return Served(model=name, engine=engine, facts=facts)

    async def _get(self, url: str) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(total=_CHECK_TIMEOUT_S)
        try:
            async with self._session.get(url, timeout=timeout) as response:
                body = await response.read()
                return response.status, parsed(body)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise TeacherError(
                f"teacher '{self.teacher.name}': no answer from {url} ({_told(error)}); start the server "
                f"(vllm serve {self.teacher.model}), leave base_url out to have it started, or correct base_url, "
                "then run the same command again"
            ) from None

    async def answer(self, get: Get, done: Done) -> None:
        """Send every request that `get` gives until it gives None; `done` is told of each as soon as it is finished.

        A request is drawn when a server has a place for it, not before. Raises CircuitOpen; then, and when `done`
        raises, what is under way is given up.
        """
        looking = [asyncio.create_task(self._look(replica)) for replica in self.replicas]
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    while self._suspects or not any(
                        replica.free for replica in well(self.replicas, time.monotonic())
                    ):
                        self._place.clear()
                        await self._place.wait()
                    request = await get()
                    if request is None:
                        break
                    replica = choose(self.replicas, request, time.monotonic())
                    replica.in_flight += 1
                    group.create_task(self._finish(request, replica, done))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            for look in looking:
                look.cancel()
            await asyncio.gather(*looking, return_exceptions=True)

    async def _finish(self, request: Request, replica: Replica, done: Done) -> None:
        finished = await self.ask(request, replica)
        done(request, finished)
        if not finished.error.startswith("image:"):
            self._breaker.record(f"teacher '{self.teacher.name}' at {replica.url}", finished.error)

    async def _look(self, replica: Replica) -> None:
        """Tell a server's pace how long its queue is, for as long as the server says it."""
        if self.teacher.backend != "vllm":
            return
        url = f"{replica.url.removesuffix('/v1')}/metrics"
        pause_s, most_s = _LOOK_S
        shown = False
        while True:
            await asyncio.sleep(pause_s)
            try:
                async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=_CHECK_TIMEOUT_S)) as response:
                    status = response.status
                    found = queue(await response.text()) if status == 200 else None
            except (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError):
                continue
            if found is None:
                if not shown and status in (200, 404):
                    return  # it never will; one that is starting again, or too busy to say, may
                continue
            shown = True
            before = replica.pace.limit
            replica.pace.saw(*found, replica.in_flight, time.monotonic())
            pause_s = _LOOK_S[0] if replica.pace.limit != before else min(1.25 * pause_s, most_s)
            self._place.set()

    async def ask(self, request: Request, replica: Replica) -> Completion:
        """The completion of one request, for which `replica` has counted a place in flight; it is given back.

        Its `error` says why there is none. Raises TeacherError when the server is lost.
        """
        place = Place(replica)
        try:
            body = await self.body(request)
            return await self._ask(request, place, body)
        except ImageError as error:
            return Completion(error=f"image: {error.reason}: {error}")
        finally:
            place.replica.in_flight -= 1
            self._place.set()

    async def _ask(self, request: Request, place: Place, body: bytes) -> Completion:
        tries = lost = 0
        async with AsyncExitStack() as alone:
            while True:
                started = time.monotonic()
                server = place.replica
                try:
                    finished = await self._send(server, body, started)
                except _Refused as error:
                    if self._pictures.may_not_read(body, str(error), refused=True):
                        body = await self.body(request, inside=True)
                        continue
                    return Completion(error=f"refused_request: {error}", latency_s=time.monotonic() - started)
                except _Attempt as error:
                    if error.reason == _CONNECTION and self._revive and await self._revive(server.url):
                        lost += 1
                        if lost >= _GUILTY_AFTER:
                            return Completion(
                                error=f"server_lost: the server went down {lost} times under this request"
                            )
                        if lost == _SUSPECT_AFTER:
                            await alone.enter_async_context(self._alone())
                        continue
                    if self._pictures.may_not_read(body, str(error), refused=False):
                        body = await self.body(request, inside=True)
                        continue
                    tries += 1
                    if tries > self.teacher.max_retries:
                        return Completion(error=f"{error} ({tries} tries)", latency_s=time.monotonic() - started)
                    # Waiting times differ at random, so that requests that failed together don't return together.
                    most_s = error.wait_s * 1.25 if error.wait_s else _BACKOFF_S * 2 ** (tries - 1)
                    await asyncio.sleep(
                        min(most_s * random.uniform(0.8 if error.wait_s else 0.5, 1), _LONGEST_WAIT_S)
                    )
                    if error.reason == _CONNECTION:
                        self._move(request, place)
                else:
                    server.pace.completed(server.in_flight, time.monotonic())
                    return finished

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nothing else is under way inside: no new request is drawn, and suspects take turns."""
        self._suspects += 1
        try:
            async with self._turn:
                while self.in_flight > self._suspects:
                    await asyncio.sleep(_DRAIN_S)
                yield
        finally:
            self._suspects -= 1
            self._place.set()

    def _move(self, request: Request, place: Place) -> None:
        """Take a request's place to another server, if there is one, because this one broke."""
        if len(self.replicas) > 1:
            now = time.monotonic()
            place.replica.rest(now)
            place.move(choose(self.replicas, request, now))
            self._place.set()

    async def body(self, request: Request, *, inside: bool = False) -> bytes:
        """The body of a request as it is sent; with `inside` its images are in it. Raises ImageError."""
        part = self._pictures.inside if inside else self._pictures.part
        parts = [await part(ref) for ref in request.prompt.images]
        return orjson.dumps(
            {
                "model": self.served.model,
                "messages": messages(request.prompt, parts),
                "seed": request.seed,
                **sampling_body(self.teacher, request.sampling),
            }
        )

    async def _send(self, replica: Replica, body: bytes, started: float) -> Completion:
        url = f"{replica.url}/chat/completions"
        try:
            async with self._session.post(url, data=body, allow_redirects=False) as response:
                status, headers, payload = response.status, response.headers, await _bounded(response)
        except TimeoutError:
            replica.pace.refused(replica.in_flight, time.monotonic())
            raise _Attempt("timeout", f"no answer within timeout_s = {self.teacher.timeout_s:g}") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _Attempt(_CONNECTION, _told(error)) from None
        if status in _BUSY:
            replica.pace.refused(replica.in_flight, time.monotonic())
        if status in _RETRIED or status >= 500:
            kind = "rate_limited" if status == 429 else "server_error"
            raise _Attempt(kind, f"HTTP {status}: {excerpt(payload)}", _retry_after(headers.get("retry-after")))
        if status != 200:
            raise _Refused(f"HTTP {status}: {excerpt(payload)}")
        try:
            return completion(payload, time.monotonic() - started)
        except GarbledError as error:
            raise _Attempt(error.reason, error.detail) from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer. Raises _Attempt when it is larger than any answer should be."""
    length = response.content_length
    if length is not None and length <= MAX_ANSWER_BYTES and "content-encoding" not in response.headers:
        return await response.read()
    payload = bytearray()
    async for chunk in response.content.iter_any():
        payload += chunk
        if len(payload) > MAX_ANSWER_BYTES:
            response.close()
            raise _Attempt("oversized_response", f"more than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(payload)


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
