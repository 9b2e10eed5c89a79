"""HTTP as servers of models speak it: every split of the bytes, broken answers, limits, and kept connections."""

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from distill.recipe.sections.teachers import Teacher
from teacher.engines.http import connections
from teacher.engines.http.concurrency import new_limit
from teacher.engines.http.connections import ConnectionPool, fetch
from teacher.engines.http.exchange import CONNECTION, Exchange
from teacher.engines.http.replicas import Replica
from teacher.engines.http.response_parser import (
    BrokenResponseError,
    HttpResponse,
    OversizedResponseError,
    ResponseParser,
)
from teacher.engines.outage import Failure

TEXT = b'{"choices": []}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: 15\r\n\r\n" + TEXT
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    b'5;name=value\r\n{"cho\r\nA\r\nices": []}\r\n0\r\ntrailer: 1\r\n\r\n'
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE
PACKED = gzip.compress(TEXT, mtime=0)
COMPRESSED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(PACKED), PACKED)


def parsed(data: bytes, size: int, limit: int = 1000) -> HttpResponse:
    """The response that these bytes are when they come `size` at a time, the last piece with the end."""
    parser, response = ResponseParser(limit), None
    for start in range(0, len(data), size):
        assert response is None
        response = parser.feed(data[start : start + size])
    return response or parser.end()


@pytest.mark.parametrize("data", [WHOLE, CHUNKED, CONTINUED, COMPRESSED])
def test_an_answer_is_the_same_however_its_bytes_are_split(data: bytes) -> None:
    for size in range(1, len(data) + 1):
        response = parsed(data, size)
        assert (response.status, response.body, response.reusable) == (200, TEXT, True)


@pytest.mark.parametrize(
    "chunks", [[b"data: 1\n\n"] * 3, [b"a\r\n", b"b"], [b"a", b"2\r\nbc\r\n", b"d"], [b"\r\n", b"\r\n0"]]
)
def test_chunks_are_cut_by_their_sizes_whatever_line_breaks_they_have(chunks: list[bytes]) -> None:
    body = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    for size in range(1, len(data) + 1):
        response = parsed(data, size)
        assert (response.body, response.reusable) == (b"".join(chunks), True)
    more = parsed(data + body, len(data + body))
    assert (more.body, more.reusable) == (b"".join(chunks), False)


def test_a_body_without_a_length_ends_with_the_connection_which_is_not_used_again() -> None:
    for size in (1, 7, 1000):
        response = parsed(b"HTTP/1.0 502 Bad Gateway\r\nRetry-After: 3\r\n\r\nbad", size)
        assert (response.status, response.body, response.reusable) == (502, b"bad", False)
        assert response.headers == {"retry-after": "3"}


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nna me: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1e3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK",
        b"",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (1 << 17),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b" " * 9000,
    ],
)
def test_bytes_that_are_no_answer_are_refused_however_they_are_split(data: bytes) -> None:
    for size in (1, 13, len(data) or 1) if len(data) < 10_000 else (4096, len(data)):
        with pytest.raises(BrokenResponseError):
            parsed(data, size)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + gzip.compress(bytes(100_000), mtime=0),
    ],
)
def test_more_than_an_answer_may_have_is_refused_before_it_fills_the_memory(data: bytes) -> None:
    for size in (1, len(data)):
        with pytest.raises(OversizedResponseError):
            parsed(data, size)


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_it_has_bytes() -> None:
    size = 1 << 19
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"2\r\nxy\r\n" * (size // 2) + b"0\r\n\r\n"
    parser, response = ResponseParser(1 << 20), None
    tracemalloc.start()
    try:
        for start in range(0, len(data), 1 << 16):
            response = parser.feed(data[start : start + (1 << 16)])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response is not None and response.body == b"xy" * (size // 2)
    assert most < 4 * size


def test_bytes_after_an_answer_cost_the_connection_and_not_the_answer() -> None:
    response = parsed(WHOLE + b"HTTP/1.1 200 OK\r\n", 1000)
    assert (response.body, response.reusable) == (TEXT, False)


async def asked(
    *answers: bytes, requests: int, total_s: float = 5, silence_s: float | None = None
) -> tuple[int, list]:
    """Connections that were opened and what came of `requests`, one after the other, to a server of these answers."""
    opened, left, results = 0, iter(answers), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
            answer = next(left)
            for piece in answer.split(b"|"):
                writer.write(piece)
                await asyncio.sleep(0.15 if b"|" in answer else 0)
            if answer.endswith(b"|") or not answer:
                writer.close()
                return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = ConnectionPool(f"http://127.0.0.1:{port}/v1", {}, proxy=None, max_body_bytes=1000)
    for _ in range(requests):
        try:
            results.append((await pool.send([b"{}"], total_s=total_s, silence_s=silence_s)).body)
        except (OSError, BrokenResponseError) as error:
            results.append(type(error))
    pool.close()
    server.close()
    return opened, results


def test_a_connection_carries_one_request_after_the_other() -> None:
    assert asyncio.run(asked(WHOLE, CHUNKED, WHOLE, requests=3)) == (1, [TEXT] * 3)


def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    closing = WHOLE.replace(b"content-length", b"connection: close\r\ncontent-length")
    assert asyncio.run(asked(closing, WHOLE, WHOLE, requests=3)) == (2, [TEXT] * 3)


def test_a_kept_connection_that_ends_as_the_next_request_comes_costs_no_request() -> None:
    assert asyncio.run(asked(WHOLE, b"", WHOLE, b"", WHOLE, requests=3)) == (3, [TEXT] * 3)


def test_a_new_connection_that_ends_without_an_answer_is_a_failure() -> None:
    opened, results = asyncio.run(asked(b"", WHOLE, requests=2))
    assert (opened, results) == (2, [BrokenResponseError, TEXT])


def test_half_an_answer_is_none_and_the_next_request_gets_a_new_connection() -> None:
    opened, results = asyncio.run(asked(WHOLE[:-3] + b"|", WHOLE, requests=2))
    assert (opened, results) == (2, [BrokenResponseError, TEXT])


def test_silence_and_the_whole_time_are_limited_each_by_itself() -> None:
    slow = b"|".join([CHUNKED[:60], CHUNKED[60:70], CHUNKED[70:80], CHUNKED[80:]])
    assert asyncio.run(asked(slow, requests=1, silence_s=5)) == (1, [TEXT])
    assert asyncio.run(asked(slow, WHOLE, requests=2, silence_s=0.05)) == (2, [TimeoutError, TEXT])
    assert asyncio.run(asked(slow, WHOLE, requests=2, total_s=0.25, silence_s=0.2)) == (2, [TimeoutError, TEXT])


async def _never(*_: object, **__: object) -> None:
    await asyncio.sleep(60)


def test_a_server_that_takes_no_connection_has_not_kept_a_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_CONNECT_S", 0.05)
    monkeypatch.setattr(connections, "start_connection", _never)
    teacher = Teacher(name="t", model="m", base_url="http://127.0.0.1:9/v1")

    async def send() -> None:
        replica = Replica(teacher.urls[0], new_limit(teacher, None))
        await Exchange(teacher, {}, lambda: None).send(replica, [b"{}"], after_timeout=False)

    with pytest.raises(Failure, match=r"connection: no connection to 127.0.0.1:9 within 0.05 s") as failure:
        asyncio.run(send())
    assert failure.value.reason == CONNECTION


def test_a_peer_that_is_gone_without_a_word_is_a_broken_connection_and_no_late_answer() -> None:
    class Transport:
        def writelines(self, pieces: Sequence[bytes]) -> None:
            asyncio.get_running_loop().call_soon(connection.connection_lost, TimeoutError(110, "timed out"))

        def abort(self) -> None:
            pass

    async def run() -> None:
        nonlocal connection
        connection = connections.HttpConnection(1000)
        connection._transport = Transport()
        await connection.exchange([b""], started=asyncio.get_running_loop().time(), total_s=5)

    connection: connections.HttpConnection
    with pytest.raises(ConnectionError, match="timed out"):
        asyncio.run(run())


def test_pieces_that_come_while_the_socket_is_left_alone_are_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PAUSE_S", (0.0, 0.05))
    monkeypatch.setattr(connections, "_PAUSE_SHARE", 10.0)
    slow = b"|".join(CHUNKED[start : start + 20] for start in range(0, len(CHUNKED), 20))
    assert asyncio.run(asked(slow, WHOLE, requests=2)) == (1, [TEXT, TEXT])


def test_the_end_of_a_program_waits_for_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked_for = threading.Event(), []

    def silent(*_: object, **__: object) -> list[object]:
        answered.wait(30)
        asked_for.append("answered")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with pytest.raises(ConnectionError, match=r"no connection to nowhere.invalid:80"):
        asyncio.run(fetch("http://nowhere.invalid/v1", {}, proxy=None, max_bytes=10, limit_s=0.2))
    assert asked_for == []
    answered.set()
    for thread in threading.enumerate():
        if thread.name == "resolve nowhere.invalid":
            thread.join()


async def _ask_at_once(host: str, requests: int) -> list[bytes]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        await asyncio.sleep(0.1)
        writer.write(WHOLE)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = ConnectionPool(f"http://{host}:{port}/v1", {}, proxy=None, max_body_bytes=1000)
    first = asyncio.create_task(pool.send([b"{}"], total_s=5))
    given_up = asyncio.create_task(pool.send([b"{}"], total_s=5))
    others = [asyncio.create_task(pool.send([b"{}"], total_s=5)) for _ in range(requests - 1)]
    await asyncio.sleep(0)
    given_up.cancel()
    responses = await asyncio.gather(first, *others)
    pool.close()
    server.close()
    return [response.body for response in responses]


def test_connections_that_are_opened_at_once_ask_a_name_server_once_and_none_for_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for, look_up = [], socket.getaddrinfo

    def counted(host: str, *arguments: object, **options: object) -> object:
        asked_for.append(host)
        return look_up("127.0.0.1" if host == "server.test" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    assert asyncio.run(_ask_at_once("server.test", 20)) == [TEXT] * 20
    assert asked_for.count("server.test") == 1
    asked_for.clear()
    assert asyncio.run(_ask_at_once("127.0.0.1", 3)) == [TEXT] * 3
    assert set(asked_for) <= {"127.0.0.1"} and len(asked_for) <= 1  # by the test's own server


def test_no_header_can_be_smuggled_in_and_an_address_must_be_one() -> None:
    for url, headers in (("http://host/v1", {"authorization": "a\r\nb: c"}), ("ftp://host", {}), ("http://", {})):
        with pytest.raises(ValueError, match=r"line break|no address"):
            ConnectionPool(url, headers, proxy=None, max_body_bytes=10)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl program to make a certificate")
def test_a_server_behind_tls_is_asked_directly_and_through_a_tunnel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    names = ["-keyout", key, "-out", certificate]
    subprocess.run(["openssl", *command.split(), *names], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    asked_for: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.write(WHOLE)

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked_for.append(head)
        inner_reader, inner_writer = await asyncio.open_connection(
            "127.0.0.1", int(head.split()[1].rpartition(b":")[2])
        )
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                target.write(data)

        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    async def ask(trusted: bool) -> list[bytes]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        through = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        port, proxy_port = (each.sockets[0].getsockname()[1] for each in (server, through))
        bodies = []
        for proxy in (None, f"http://me:word@127.0.0.1:{proxy_port}"):
            pool = ConnectionPool(f"https://localhost:{port}/v1", {}, proxy=proxy, max_body_bytes=1000)
            for _ in range(2):
                if trusted:
                    bodies.append((await pool.send([b"{}"], total_s=30)).body)
                else:
                    with pytest.raises(ssl.SSLCertVerificationError):
                        await pool.send([b"{}"], total_s=30)
            pool.close()
        server.close()
        through.close()
        return bodies

    assert asyncio.run(ask(trusted=False)) == []
    asked_for.clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert asyncio.run(ask(trusted=True)) == [TEXT] * 4
    (head,) = asked_for
    assert head.startswith(b"CONNECT localhost:") and b"proxy-authorization: Basic bWU6d29yZA==" in head


def test_a_proxy_that_refuses_leaves_no_connection_behind_however_often_it_is_asked() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
            address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            pool = ConnectionPool("https://teacher.example/v1", {}, proxy=address, max_body_bytes=10)
            for _ in range(3):
                with pytest.raises(ConnectionRefusedError, match="answers HTTP 407"):
                    await pool.send([b""], total_s=5.0)
            assert not pool._all

    asyncio.run(run())
