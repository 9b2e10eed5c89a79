"""Requests to one address, over connections that are kept for the next request.

It has only what a teacher's requests need: TLS, proxies, limits of time and size. A general client took more CPU time
than everything else about a request (docs/log.md). No redirects, no cookies, HTTP/1.1 only. What an answer means is
decided in `exchange.py`.
"""

import asyncio
import base64
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from aiohappyeyeballs import AddrInfoType, start_connection

from teacher.engines.http.host_addresses import resolve, written_address
from teacher.engines.http.response_parser import (
    BrokenResponseError,
    HttpResponse,
    OnBody,
    OversizedResponseError,
    ResponseParser,
)

_CONNECT_S = 10.0
_KEEP_S = 30.0
"""A connection that was idle for longer is not used again: servers and routers forget it."""
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
"""Seconds and tries of TCP keepalive: a peer that vanished is noticed in two minutes."""
_PAUSE_SHARE, _PAUSE_S = 1 / 200, (0.005, 0.5)
"""Between two pieces of a long answer the socket is not looked at for this share of the time since the request, so
that an answer in thousands of pieces does not wake the process as often. At least and at most so many seconds."""
_PORTS = {"http": 80, "https": 443}

CONNECTION_ERRORS = (BrokenResponseError, OversizedResponseError, OSError, EOFError, ValueError)
"""The errors of a broken connection or an invalid address; TimeoutError is an OSError."""


class StaleConnectionError(ConnectionResetError):
    """A kept connection that ended before the first byte of an answer: the server had dropped it."""


class HttpConnection(asyncio.Protocol):
    """One connection, which carries one request at a time."""

    def __init__(self, max_body_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_body_bytes = max_body_bytes
        self._transport: Any = None
        self._parser: ResponseParser | None = None
        self._answer: asyncio.Future[HttpResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._started = self._heard = 0.0
        self._total_s = 0.0
        self._silence_s: float | None = None
        self._unsent = 0
        self._kept = False
        """Whether it has carried a request."""
        self._silent = True
        """Whether no byte of the answer has come."""
        self.open = True
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        connection = transport.get_extra_info("socket")
        if connection is not None and self._timer is None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE:
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    async def exchange(
        self,
        pieces: Sequence[bytes],
        *,
        started: float,
        total_s: float,
        silence_s: float | None = None,
        has_body: bool = True,
        on_body: OnBody | None = None,
    ) -> HttpResponse:
        """Send a request and return its answer.

        Raises TimeoutError `total_s` after `started`, or after so long without a byte, StaleConnectionError, what
        `feed` and `end` of ResponseParser raise, and OSError.
        """
        if not self.open:
            raise StaleConnectionError("the server closed the connection")
        self._silent = True
        self._parser = ResponseParser(self._max_body_bytes, has_body=has_body, on_body=on_body)
        self._answer = self._loop.create_future()
        self._started, self._total_s, self._silence_s = started, total_s, silence_s
        self._heard, self._unsent = self._loop.time(), sum(map(len, pieces))
        self._watch()
        self._transport.writelines(pieces)
        try:
            response = await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = self._parser = None
        self._kept = True
        if not response.reusable:
            self.close()
        return response

    def close(self) -> None:
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Encrypt everything from here on, as behind a proxy."""
        self._transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._parser is None or self._answer.done():
            self.close()  # nothing was asked
            return
        self._heard, self._silent = self._loop.time(), False
        try:
            response = self._parser.feed(data)
        except (BrokenResponseError, OversizedResponseError) as error:
            self._answer.set_exception(error)
            return
        if response is not None:
            self._answer.set_result(response)
        elif self._parser.streams:
            self._pause()

    def _pause(self) -> None:
        shortest, longest = _PAUSE_S
        pause_s = min(longest, _PAUSE_SHARE * (self._heard - self._started))
        if pause_s >= shortest:
            self._transport.pause_reading()
            self._loop.call_later(pause_s, self._resume)

    def _resume(self) -> None:
        if self.open:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        answer = self._answer
        if answer is None or self._parser is None or answer.done():
            return
        try:
            if self._kept and self._silent:
                raise StaleConnectionError("the server closed the connection")
            if isinstance(error, TimeoutError):
                raise ConnectionError(str(error))  # a peer that vanished is a broken connection, not a time-out
            if error is not None:
                raise error
            answer.set_result(self._parser.end())
        except Exception as failure:
            answer.set_exception(failure)

    def _watch(self) -> None:
        """Have `_check` called when the answer is due, unless it will be called by then anyway."""
        due = self._due()
        if self._timer is not None and not self._timer.cancelled():
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._check)

    def _due(self) -> float:
        total = self._started + self._total_s
        return total if self._silence_s is None else min(total, self._heard + self._silence_s)

    def _check(self) -> None:
        """Give up an answer that is overdue. One timer serves all requests of a connection one after the other."""
        self._timer = None
        answer = self._answer
        if answer is None or answer.done():
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:  # the request is still on its way
            self._unsent, self._heard = unsent, self._loop.time()
        if self._loop.time() >= self._due():
            answer.set_exception(TimeoutError())
        else:
            self._watch()


class ConnectionPool:
    """The connections to one address. Its requests differ in their bodies only."""

    def __init__(
        self, url: str, headers: Mapping[str, str], *, proxy: str | None, max_body_bytes: int, method: str = "POST"
    ) -> None:
        """Raises ValueError for an address, or a header, that cannot be sent."""
        parts = urlsplit(url)
        self._proxy = urlsplit(proxy) if proxy else None
        self._max_body_bytes = max_body_bytes
        self._host, self._port = _address(parts)
        self._tls = parts.scheme == "https"
        self._context: ssl.SSLContext | None = None
        self._idle: list[HttpConnection] = []
        self._all: set[HttpConnection] = set()
        self._look_up: asyncio.Task[list[AddrInfoType]] | None = None
        """The address of the server, or of the proxy, that connections wait for."""
        host = parts.netloc.rpartition("@")[2]
        target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
        fields = {"host": host, "accept": "*/*", "accept-encoding": "identity", "user-agent": "cot-distill"}
        fields = {**fields, **_authorization("authorization", parts), **headers}
        if self._proxy and not self._tls:
            target = f"http://{host}{target}"
            fields |= _authorization("proxy-authorization", self._proxy)
        self._head = _head(f"{method} {target}", fields)[:-2] + b"content-length: "

    async def send(
        self, body: Sequence[bytes], *, total_s: float, silence_s: float | None = None, on_body: OnBody | None = None
    ) -> HttpResponse:
        """The answer to a request with these pieces as its body. Raises what HttpConnection.exchange raises.

        A server may drop a kept connection at the moment of the next request. That is no failure of the request: it
        is sent again at once, over a new connection.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        pieces = [b"%b%d\r\n\r\n" % (self._head, sum(map(len, body))), *body]
        connection = self._kept(started)
        while True:
            kept = connection is not None
            connection = connection or await self._connected(min(_CONNECT_S, total_s))
            try:
                return await connection.exchange(
                    pieces, started=started, total_s=total_s, silence_s=silence_s, on_body=on_body
                )
            except StaleConnectionError:
                if not kept:
                    raise
            finally:
                if connection.open:
                    connection.idle_since = loop.time()
                    self._idle.append(connection)
                else:
                    self._all.discard(connection)
            connection = None

    def _kept(self, now: float) -> HttpConnection | None:
        """The connection that was used last, if it can be used again."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open and now - connection.idle_since < _KEEP_S:
                return connection
            connection.close()
            self._all.discard(connection)
        return None

    async def _connected(self, limit_s: float) -> HttpConnection:
        """A new connection. Raises OSError, and never TimeoutError: no request was sent that could be overdue."""
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect(limit_s)
        except TimeoutError:
            host, port = _address(self._proxy) if self._proxy else (self._host, self._port)
            raise ConnectionError(f"no connection to {host}:{port} within {limit_s:g} s") from None

    async def _connect(self, limit_s: float) -> HttpConnection:
        loop = asyncio.get_running_loop()
        if self._tls and self._context is None:
            self._context = ssl.create_default_context()
        host, port = _address(self._proxy) if self._proxy else (self._host, self._port)
        secured = self._proxy.scheme == "https" if self._proxy else self._tls
        context = (self._context or ssl.create_default_context()) if secured else None
        opened = await start_connection(await self._addresses(host, port), happy_eyeballs_delay=0.25)
        _, connection = await loop.create_connection(
            lambda: HttpConnection(self._max_body_bytes),
            sock=opened,
            ssl=context,
            server_hostname=host if context else None,
        )
        self._all.add(connection)
        if self._proxy and self._tls:
            assert self._context is not None
            try:
                await self._tunnel(connection, self._proxy, limit_s)
                await connection.start_tls(self._context, self._host)
            except BaseException:
                connection.close()
                self._all.discard(connection)
                raise
        return connection

    async def _addresses(self, host: str, port: int) -> list[AddrInfoType]:
        """The addresses of a host; connections that are opened at the same time ask once. Raises OSError."""
        if known := written_address(host, port):
            return known
        if self._look_up is None or self._look_up.done():
            self._look_up = asyncio.create_task(resolve(host, port))
        try:
            return await asyncio.shield(self._look_up)
        except asyncio.CancelledError:
            self._look_up = None  # a name server may be silent: the next connection asks again
            raise

    async def _tunnel(self, connection: HttpConnection, proxy: SplitResult, limit_s: float) -> None:
        target = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        asked = _head(f"CONNECT {target}", {"host": target} | _authorization("proxy-authorization", proxy))
        started = asyncio.get_running_loop().time()
        response = await connection.exchange([asked], started=started, total_s=limit_s, has_body=False)
        if response.status != 200 or not connection.open:
            raise ConnectionRefusedError(f"the proxy {proxy.hostname} answers HTTP {response.status}")

    def close(self) -> None:
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._idle.clear()
        if self._look_up is not None:
            self._look_up.cancel()


async def fetch(
    url: str, headers: Mapping[str, str], *, proxy: str | None, max_bytes: int, limit_s: float, body: bytes = b""
) -> HttpResponse:
    """The answer to a GET, or to a POST of this body. Raises ValueError and what HttpConnection.exchange raises."""
    pool = ConnectionPool(url, headers, proxy=proxy, max_body_bytes=max_bytes, method="POST" if body else "GET")
    try:
        return await pool.send([body], total_s=limit_s)
    finally:
        pool.close()


def _address(parts: SplitResult) -> tuple[str, int]:
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{parts.scheme}://{parts.hostname or ''} is no address of an HTTP server")
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
    return host, parts.port or _PORTS[parts.scheme]


def _authorization(name: str, parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {name: f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _head(request: str, fields: Mapping[str, str]) -> bytes:
    lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    if any(character in line for line in lines for character in "\r\n\0"):
        raise ValueError("a header holds a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
