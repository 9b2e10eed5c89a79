"""A server that shows no queue, on a clock of its own: so many slots, first come first served, latencies as given."""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable

from teacher.engines.http.concurrency import ConcurrencyLimit

LATENCIES: dict[str, Callable[[random.Random], float]] = {
    "equal": lambda rng: rng.uniform(0.98, 1.02),
    "uniform": lambda rng: rng.uniform(0.5, 1.5),
    "heavy-tailed": lambda rng: math.exp(rng.gauss(-0.5, 1.0)),  # log-normal
}
"""Of one request beside the mean."""


def seconds_of(
    limit: ConcurrencyLimit | int, slots: int, latencies: list[float], *, begin_share: float | None = None
) -> float:
    """Seconds until all requests are answered, with a limit that learns, or with a fixed one.

    `begin_share`: the text of an answer in pieces begins after this share of the request's latency.
    """
    now, sent, answered, busy = 0.0, 0, 0, 0
    waiting: deque[tuple[int, float]] = deque()
    events: list[tuple[float, bool, float]] = []
    """Time, whether it is an answer or the beginning of one, and when the request was sent."""
    while answered < len(latencies):
        most = limit if isinstance(limit, int) else limit.limit
        while sent < len(latencies) and sent - answered < most:
            waiting.append((sent, now))
            sent += 1
        while waiting and busy < slots:
            number, since = waiting.popleft()
            busy += 1
            heapq.heappush(events, (now + latencies[number], True, since))
            if begin_share is not None:
                heapq.heappush(events, (now + begin_share * latencies[number], False, since))
        now, ends, since = heapq.heappop(events)
        if not isinstance(limit, int):
            if ends:
                limit.completed(sent - answered, now, now - since)
            else:
                limit.begun(sent - answered, now, now - since)
        busy -= ends
        answered += ends
    return now


def drawn_latencies(kind: str, mean_s: float, requests: int, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [mean_s * LATENCIES[kind](rng) for _ in range(requests)]
