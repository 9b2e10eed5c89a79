"""An S3 server on this machine, and a proxy before it that plants faults."""

import logging
import os
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from moto.server import ThreadedMotoServer
from servers import ceph_gateway

BUCKET = "bucket"
KEY, SECRET = ceph_gateway.KEY, ceph_gateway.SECRET
KEYS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
"""Environment variables, where users have their keys."""


def is_real() -> bool:
    """Whether tests use Ceph in the place of moto (`make scale`)."""
    return os.environ.get("S3_SERVER") == "ceph"


def config(endpoint: str) -> dict[str, Any]:
    return {"endpoint": endpoint, "access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}


def recipe_section(endpoint: str) -> str:
    """`[store]` of a recipe whose store is this server."""
    return f'[store]\nendpoint = "{endpoint}"\nregion = "us-east-1"\nallow_http = true\n'


def set_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server with an empty bucket: moto, or Ceph with S3_SERVER=ceph in the environment."""
    if is_real():
        yield ceph_gateway.of_this_process().with_empty_bucket(BUCKET)
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        # All servers of a process share one state.
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).read()
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).read()
        yield endpoint
    finally:
        server.stop()


@dataclass
class StoreFaults:
    """What the proxy does to the next requests, by method; an empty list does nothing."""

    away: bool = False
    """Every connection ends without an answer; the server does not see the request."""
    statuses: dict[str, list[int]] = field(default_factory=dict)
    """Answered at once; the server does not see the request."""
    refuse: Callable[[str], tuple[int, bytes] | None] = lambda method: None
    """Asked for each request by its method: status and body of an answer at once, or None."""
    cut_after: list[str] = field(default_factory=list)
    """Methods of requests that the server carries out while the connection ends without an answer."""
    before_cut: Callable[[], None] = lambda: None
    """Called when such a request has been carried out."""
    slow_s: list[float] = field(default_factory=list)
    """Seconds that the next answers are held back."""
    cut_within: int = 0
    """Next answers of which the second half does not come."""
    ignore_conditions: bool = False
    """If-None-Match does not reach the server."""
    ignore_ranges: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    requests: list[str] = field(default_factory=list)
    """Method and path of each request."""
    wait_before: Callable[[str], object] = lambda request: None
    """Called with method and path before a request reaches the server."""


@contextmanager
def faulty_proxy(upstream: str, faults: StoreFaults) -> Iterator[str]:
    """The endpoint of a proxy before another endpoint."""
    host = upstream.removeprefix("http://")

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            method = self.command
            faults.seen[method] += 1
            faults.requests.append(f"{method} {self.path}")
            faults.wait_before(faults.requests[-1])
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if faults.away:
                self.close_connection = True
                return
            if faults.statuses.get(method):
                self.reply(faults.statuses[method].pop(0), {}, b"")
                return
            if (refused := faults.refuse(method)) is not None:
                status, text = refused
                self.reply(status, {"Content-Type": "application/xml", "Content-Length": str(len(text))}, text)
                return
            headers = dict(self.headers)
            dropped = {"if-none-match"} if faults.ignore_conditions else set()
            dropped |= {"range"} if faults.ignore_ranges else set()
            connection = HTTPConnection(host)
            kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
            connection.request(method, self.path, body, kept)
            response = connection.getresponse()
            data = response.read()
            connection.close()
            if method in faults.cut_after:
                faults.cut_after.remove(method)
                faults.before_cut()
                self.close_connection = True
                return
            if faults.slow_s:
                time.sleep(faults.slow_s.pop(0))
            self.reply(response.status, dict(response.getheaders()), data)

        def reply(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("content-length", length)
            self.end_headers()
            if faults.cut_within and data:
                faults.cut_within -= 1
                data = data[: len(data) // 2]
                self.close_connection = True
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client does not wait for a slow answer
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
