"""Which of several equal servers answers a request.

Questions about one image go to the same server, which then prepares the image once; a server with clearly more to do
than the others passes some on. A server that fails gets no requests for a while, unless all fail.
"""

import hashlib
import time
from collections.abc import Sequence

from teacher.engines.http.concurrency import ConcurrencyLimit
from teacher.messages.request import Request

_REST_S = 5.0
_FAILED_ROWS = 2
"""Rows that fail at a server one after the other until it gets no requests for a while."""
_OVERLOAD = 1.25


class Replica:
    """One server and what is under way there."""

    def __init__(self, url: str, concurrency: ConcurrencyLimit) -> None:
        self.url = url
        self.concurrency = concurrency
        self.in_flight = 0
        self.broken_until = 0.0
        self.passes = 0
        """Rows and controls that it has answered."""
        self.checked = False
        """Whether a check has shown that it serves the teacher's model."""
        self._failed_rows: set[str] = set()
        self._salt = url.encode()

    @property
    def free(self) -> bool:
        return self.in_flight < self.concurrency.limit

    def passed(self) -> None:
        self.passes += 1
        if self._failed_rows:
            self._failed_rows.clear()
            self.broken_until = 0.0

    def failed(self, row: str, now: float, *, connection: bool) -> None:
        """A row got no answer here; where the connection broke, it is the server's fault at once."""
        self._failed_rows.add(row)
        if connection or len(self._failed_rows) >= _FAILED_ROWS:
            self.broken_until = now + _REST_S

    def score(self, key: bytes) -> bytes:
        """Rendezvous hashing: of equal servers the one with the highest score for a key is its home."""
        return hashlib.blake2b(key, key=hashlib.blake2b(self._salt, digest_size=32).digest(), digest_size=8).digest()


def available(replicas: Sequence[Replica], now: float) -> Sequence[Replica]:
    """Healthy servers; all of them if none is healthy. A server whose model was not checked is left out."""
    checked = [replica for replica in replicas if replica.checked] or replicas
    return [replica for replica in checked if replica.broken_until <= now] or checked


def take_slot(replicas: Sequence[Replica], request: Request) -> Replica:
    """The server for a request, which counts as under way there."""
    replica = choose(replicas, request, time.monotonic())
    replica.in_flight += 1 + len(request.siblings)
    return replica


def choose_other(replicas: Sequence[Replica], request: Request, failed: Replica, now: float) -> Replica:
    """The server to try a request at that failed at one: another one, if there is one."""
    others = [each for each in replicas if each is not failed and each.checked]
    return choose(others, request, now) if others else failed


def choose(replicas: Sequence[Replica], request: Request, now: float) -> Replica:
    """The server for a request: its home if that is healthy and not overloaded, else the next best."""
    if len(replicas) == 1:
        return replicas[0]
    usable = available(replicas, now)
    free = [replica for replica in usable if replica.free] or usable
    fair = _OVERLOAD * sum(replica.in_flight for replica in usable) / len(usable) + 1
    key = (request.prompt.images[0].sha256 if request.prompt.images else request.prompt_sha).encode()
    light = [replica for replica in free if replica.in_flight <= fair] or free
    return max(light, key=lambda replica: replica.score(key))
