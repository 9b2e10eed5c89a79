"""One request and its answer over HTTP, and what is wrong with an answer that is none.

Every failure has a reason, a kind (failures of one kind are alike) and the number of tries that prove a row to be the
cause. Does not decide what caused a failure.
"""

import socket
import time
from email.utils import parsedate_to_datetime

import aiohttp
import orjson

from distill.recipe.teachers import Teacher
from teacher.engines.http.chat_protocol import GarbledError, excerpt, parse_completion
from teacher.engines.http.replicas import Replica
from teacher.engines.http.server_info import proxy_of
from teacher.engines.http.streaming import CONTENT_TYPE, STREAM_SETTINGS, Streaming, assemble_completion
from teacher.engines.outage import MAX_TRIES, REFUSED, Failure
from teacher.messages.completion import Completion

MAX_ANSWER_BYTES = 64 << 20
CONNECTION, TIMEOUT = "connection", "timeout"
_CONNECT_S = 10.0
_BUSY_STATUSES = frozenset({429, 503})
_TEMPORARY_STATUSES = frozenset({408, 409, 425, 429})
_ACCESS_STATUSES = frozenset({401, 402, 403, 404, 407})
"""What these refuse is mostly a key, an account or an address; other refusals are about what the request says."""
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Seconds and tries: a peer that is gone without a word is found out in two minutes."""
_STREAMED = orjson.dumps(STREAM_SETTINGS)[1:]


def connector() -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=30, socket_factory=_socket_with_keepalive)


def _socket_with_keepalive(info: tuple[int, int, int, str, object]) -> socket.socket:
    family, kind, protocol, *_ = info
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


class Exchange:
    """Sends requests to the servers of one teacher."""

    def __init__(self, session: aiohttp.ClientSession, teacher: Teacher) -> None:
        self._session = session
        self._teacher = teacher
        self._tries = max(2, teacher.max_retries + 1)
        self._streaming = Streaming(teacher.timeout_s)
        self._timeout = aiohttp.ClientTimeout(
            total=teacher.timeout_s, sock_connect=min(_CONNECT_S, teacher.timeout_s)
        )
        self._proxies: dict[str, str | None] = {}

    async def send(self, replica: Replica, body: bytes, *, after_timeout: bool) -> Completion:
        """The answer to one request. `again`: it was given up once. Raises Failure."""
        streamed = self._streaming.should_stream(after_timeout=after_timeout)
        try:
            answer = await self._send_once(replica, body, streamed=streamed)
        except Failure as failure:
            if not (streamed and failure.refused and "stream" in str(failure) and self._streaming.refused()):
                raise
            streamed = False
            answer = await self._send_once(replica, body, streamed=False)
        self._streaming.answered(answer, streamed=streamed)
        return answer

    async def _send_once(self, replica: Replica, body: bytes, *, streamed: bool) -> Completion:
        url = f"{replica.url}/chat/completions"
        if replica.url not in self._proxies:
            self._proxies[replica.url] = proxy_of(replica.url)
        timeout = self._streaming_timeout() if streamed else self._timeout
        data = b"%s,%s" % (body[:-1], _STREAMED) if streamed else body
        started = time.monotonic()
        try:
            async with self._session.post(
                url, data=data, allow_redirects=False, timeout=timeout, proxy=self._proxies[replica.url]
            ) as response:
                status, headers, payload = response.status, response.headers, await _read_body(response)
        except TimeoutError:
            replica.concurrency.refused(replica.in_flight, time.monotonic())
            raise Failure(TIMEOUT, self._timeout_message(time.monotonic() - started, streamed=streamed)) from None
        except (aiohttp.ClientError, OSError, EOFError) as error:
            raise Failure(CONNECTION, str(error) or type(error).__name__, tries=self._tries) from None
        if status in _BUSY_STATUSES:
            replica.concurrency.refused(replica.in_flight, time.monotonic())
        if status != 200:
            raise self._failure(status, excerpt(payload), _retry_after(headers.get("retry-after")))
        latency_s, logprobs = time.monotonic() - started, bool(self._teacher.logprobs)
        try:
            if headers.get("content-type", "").startswith(CONTENT_TYPE):
                return assemble_completion(payload, latency_s, logprobs=logprobs)
            return parse_completion(payload, latency_s, logprobs=logprobs)
        except GarbledError as error:
            raise Failure(error.reason, error.detail, tries=self._tries) from None

    def _streaming_timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=max(self._teacher.longest_s, self._teacher.timeout_s),
            sock_connect=self._timeout.sock_connect,
            sock_read=self._streaming.silence_s(),
        )

    def _timeout_message(self, seconds: float, *, streamed: bool) -> str:
        if not streamed:
            return f"no answer within timeout_s = {self._teacher.timeout_s:g}"
        if seconds >= max(self._teacher.longest_s, self._teacher.timeout_s):
            return f"no end of the answer within longest_s = {self._teacher.longest_s:g}"
        return (
            f"nothing of the answer for {self._streaming.silence_s():g} s (timeout_s = {self._teacher.timeout_s:g})"
        )

    def _failure(self, status: int, message: str, wait_s: float | None) -> Failure:
        kind, detail = f"HTTP {status}", f"HTTP {status}: {message}"
        if status >= 500 or status in _TEMPORARY_STATUSES:
            if status == 429:  # a limit on all requests hits any row
                return Failure("rate_limited", detail, kind=kind, tries=max(MAX_TRIES, self._tries), wait_s=wait_s)
            return Failure("server_error", detail, kind=kind, tries=self._tries, wait_s=wait_s)
        tries = max(3, self._tries) if status in _ACCESS_STATUSES else 2
        return Failure(REFUSED, detail, kind=kind, tries=tries, wait_s=wait_s)


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer. Raises Failure when it is larger than any answer should be."""
    length = response.content_length
    if length is not None and length <= MAX_ANSWER_BYTES and "content-encoding" not in response.headers:
        return await response.read()
    payload = bytearray()
    async for chunk in response.content.iter_any():
        payload += chunk
        if len(payload) > MAX_ANSWER_BYTES:
            response.close()
            raise Failure("oversized_response", f"more than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(payload)


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
    except (ValueError, TypeError, OverflowError):
        return None
