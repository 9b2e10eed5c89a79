"""A `distill view` server for tests, in a thread of its own."""

import asyncio
import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from distill.view.server import HOST, ViewServer


def unfiltered(run: Path, folder: Path) -> Path:
    """A copy of a run without its filter stage and its labels."""
    return Path(shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("filter", "labels")))


def make_read_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New folders and writes below `run` fail as on a read-only file system, for root too."""
    mkdir, open_path = Path.mkdir, Path.open

    def refuse(path: Path) -> None:
        if path.is_relative_to(run):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def make(path: Path, *arguments: Any, **options: Any) -> None:
        if not path.is_dir():
            refuse(path)
        mkdir(path, *arguments, **options)

    def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if set(mode) & set("awx+"):
            refuse(path)
        return open_path(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "open", opened)


class Visitor:
    """A browser's requests to a view: what it asks, with its cookie and the right host and origin by default."""

    def __init__(self, address: str) -> None:
        self.port = int(address.split(":")[2].split("/")[0])
        self.cookie = f"distill_view_{self.port}={address.split('token=')[1]}"

    def ask(self, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any, dict[str, str]]:
        """Status, body (JSON where it is), and headers. A header of None is left out."""
        sent: dict[str, str | None] = {"Host": f"{HOST}:{self.port}", "Cookie": self.cookie}
        if body is not None:
            sent["Origin"] = f"http://{HOST}:{self.port}"
        sent |= headers
        connection = HTTPConnection(HOST, self.port, timeout=120)
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            given = {name: value for name, value in sent.items() if value is not None}
            connection.request("GET" if body is None else "POST", path, data, given)
            answer = connection.getresponse()
            read = answer.read()
            kind = answer.headers.get("Content-Type", "")
            return (
                answer.status,
                json.loads(read) if kind.startswith("application/json") else read,
                dict(answer.headers),
            )
        finally:
            connection.close()


@contextmanager
def viewed(run: Path, other: Path | None = None, recipe: Path | None = None) -> Iterator[tuple[Visitor, str]]:
    """A visitor of a run's view, and what a person reads on the terminal: the address, and why labelling is off."""
    server = ViewServer(run, other, recipe=recipe)
    started, told = threading.Event(), []

    async def serve() -> None:
        await server.serve(0, lambda lines: (told.append(lines), started.set())[0])

    loop = asyncio.new_event_loop()
    task = loop.create_task(serve())

    def work() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait(20)
        yield Visitor(server.address), told[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
        server.close()
