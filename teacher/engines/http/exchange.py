"""Sends one request over HTTP, and turns a missing or faulty answer into a Failure.

Every failure has a reason, a kind and the number of tries that prove a row to be the cause. Does not decide what
caused a failure.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import orjson

from distill import live_text
from distill.recipe.sections.teachers import Teacher
from teacher.engines.asked_waits import asked_wait_s
from teacher.engines.http.chat_protocol import excerpt, parse_json, refused_parameter
from teacher.engines.http.choices import completions_from_body
from teacher.engines.http.connections import CONNECTION_ERRORS, ConnectionPool
from teacher.engines.http.given_texts import scored_text
from teacher.engines.http.heard_pieces import FirstText, HeardPieces
from teacher.engines.http.replicas import Replica
from teacher.engines.http.request_bodies import Body
from teacher.engines.http.response_parser import HttpResponse, OnBody, OversizedResponseError
from teacher.engines.http.server_info import moved_to, proxy_of
from teacher.engines.http.streaming import STREAM_SETTINGS, Streaming, assemble_body, comes_in_pieces
from teacher.engines.outage import MAX_TRIES, REFUSED, Failure
from teacher.messages.completion import Completion
from teacher.messages.request import Request

MAX_ANSWER_BYTES = 64 << 20
CONNECTION, TIMEOUT = "connection", "timeout"
CONTROL_AFTER_S = 1.0
"""After so long without a pass of another row, a request that is known to pass is sent again as a control."""
_BUSY_STATUSES = frozenset({429, 498, 503, 529})
"""The last two are no standard: Groq without capacity, Anthropic overloaded."""
_CONTENT_STATUSES = frozenset({400, 413, 414, 415, 422, 431, 451})
"""These refuse what the request says."""
_ACCESS_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 410})
"""What these refuse is mostly a key, an account or an address. All other failures are the server's, and may pass."""
_STREAMED = orjson.dumps(STREAM_SETTINGS)[1:]


@dataclass(frozen=True, slots=True)
class Control:
    """A request that is known to pass, how long it took, and whether its images went inside it."""

    request: Request
    latency_s: float = CONTROL_AFTER_S
    inside: bool = False


class Exchange:
    """Sends requests to the servers of one teacher."""

    def __init__(self, teacher: Teacher, headers: Mapping[str, str], on_begun: Callable[[str], None]) -> None:
        """`on_begun` gets the model's name when the text of an answer in pieces begins."""
        self._teacher = teacher
        self._on_begun = on_begun
        self._headers = headers
        self._tries = max(2, teacher.max_retries + 1)
        self._streaming = Streaming(teacher.timeout_s)
        self._longest_s = max(teacher.longest_s, teacher.timeout_s)
        self._pools: dict[str, ConnectionPool] = {}

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    async def send(
        self, replica: Replica, body: Body, *, after_timeout: bool, given: str | None = None
    ) -> list[Completion]:
        """The answers to one request, one for each choice. Raises Failure.

        `after_timeout`: it was given up once. `given`: the text that the body asks to score, which cannot come in
        pieces.
        """
        if given is not None:
            return await self._send_once(replica, body, streamed=False, given=given)
        streamed = self._streaming.should_stream(after_timeout=after_timeout)
        try:
            answers = await self._send_once(replica, body, streamed=streamed)
        except Failure as failure:
            replica.concurrency.failed()
            if not (streamed and failure.refused and "stream" in str(failure) and self._streaming.refused()):
                raise
            streamed = False
            answers = await self._send_once(replica, body, streamed=False)
        self._streaming.answered(answers[0], streamed=streamed)
        return answers

    async def _send_once(
        self, replica: Replica, body: Body, *, streamed: bool, given: str | None = None
    ) -> list[Completion]:
        started = time.monotonic()
        try:
            response = await self._post(replica, body, streamed=streamed)
        except TimeoutError:
            replica.concurrency.refused(replica.in_flight, time.monotonic())
            raise Failure(TIMEOUT, self._timeout_message(time.monotonic() - started, streamed=streamed)) from None
        except OversizedResponseError:
            raise Failure("oversized_response", f"more than {MAX_ANSWER_BYTES >> 20} MiB") from None
        except CONNECTION_ERRORS as error:
            raise Failure(CONNECTION, str(error) or type(error).__name__, tries=self._tries) from None
        status, headers, payload = response.status, response.headers, response.body
        if status in _BUSY_STATUSES:
            replica.concurrency.refused(replica.in_flight, time.monotonic())
        if moved := moved_to(response):
            raise Failure("server_error", f"the address has moved{moved}", kind=f"HTTP {status}", tries=self._tries)
        if status != 200:
            raise request_failure(self._teacher, status, payload, headers)
        latency_s, logprobs = time.monotonic() - started, bool(self._teacher.logprobs)
        try:
            in_pieces = comes_in_pieces(headers.get("content-type", ""), payload)
            answer = assemble_body(payload) if in_pieces else parse_json(payload)
            if given is not None:
                return [scored_text(answer, payload[:2000], latency_s, given, self._teacher.logprobs)]
            return completions_from_body(answer, payload[:2000], latency_s, logprobs=logprobs)
        except Failure as failure:
            failure.tries = self._tries
            failure.paid = b'"choices"' in payload
            raise

    def _post(self, replica: Replica, body: Body, *, streamed: bool) -> Awaitable[HttpResponse]:
        url = replica.url
        pool = self._pools.get(url)
        if pool is None:
            address = f"{url}/chat/completions"
            pool = self._pools[url] = ConnectionPool(
                address, self._headers, proxy=proxy_of(url), max_body_bytes=MAX_ANSWER_BYTES
            )
        if not streamed:
            return pool.send(body, total_s=self._teacher.timeout_s)
        data = [*body[:-1], body[-1][:-1], b",", _STREAMED]
        silence_s, hear = self._streaming.silence_s(), self._hearer(replica)
        return pool.send(data, total_s=self._longest_s, silence_s=silence_s, on_body=hear)

    def _hearer(self, replica: Replica) -> OnBody:
        """The listener to the next answer: the progress display, or the request limit of its server."""
        listener = live_text.current()
        if listener is not None:
            return HeardPieces(listener).feed
        started = time.monotonic()

        def begun(model: str) -> None:
            now = time.monotonic()
            replica.concurrency.begun(replica.in_flight, now, now - started)
            self._on_begun(model)

        return FirstText(begun).feed

    def _timeout_message(self, seconds: float, *, streamed: bool) -> str:
        if not streamed:
            return f"no answer within timeout_s = {self._teacher.timeout_s:g}"
        if seconds >= self._longest_s:
            return f"no end of the answer within longest_s = {self._teacher.longest_s:g}"
        return (
            f"nothing of the answer for {self._streaming.silence_s():g} s (timeout_s = {self._teacher.timeout_s:g})"
        )


def request_failure(teacher: Teacher, status: int, payload: bytes, headers: Mapping[str, str]) -> Failure:
    """What a status other than 200 says of a request. Names of headers are in lower case."""
    kind, detail, tries = f"HTTP {status}", f"HTTP {status}: {excerpt(payload)}", max(2, teacher.max_retries + 1)
    wait_s = asked_wait_s(status, headers, payload)
    if status in _CONTENT_STATUSES:
        remedy = refused_parameter(teacher, payload)
        return Failure(REFUSED, f"{detail}; {remedy}" if remedy else detail, kind=kind, wait_s=wait_s, remedy=remedy)
    if status in _ACCESS_STATUSES:
        return Failure(REFUSED, detail, kind=kind, tries=max(3, tries), wait_s=wait_s)
    if status == 429:  # a limit on all requests hits any row
        return Failure("rate_limited", detail, kind=kind, tries=max(MAX_TRIES, tries), wait_s=wait_s)
    # What is below 400 refuses nothing: a log-in page or a proxy answers in place of the server.
    return Failure("server_error", detail, kind=kind, tries=tries, wait_s=wait_s)
