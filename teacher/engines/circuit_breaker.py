"""The circuit breaker: stops a run in which too many rows fail, before it costs more."""

from collections import deque

from distill.errors import CircuitOpen

WINDOW = 100
"""Requests over which the circuit breaker looks back."""


class Breaker:
    """Opens when more than `max_failure_share` of the last WINDOW requests failed."""

    def __init__(self, max_failure_share: float) -> None:
        self._max_failure_share = max_failure_share
        self._recent: deque[bool] = deque(maxlen=WINDOW)

    def record(self, where: str, error: str) -> None:
        """Count one finished request; `error` is empty when it succeeded. Raises CircuitOpen.

        An image that cannot be read does not count: it says nothing about the server.
        """
        if error.startswith("image:"):
            return
        self._recent.append(bool(error))
        if not error or len(self._recent) < WINDOW:
            return
        failures = sum(self._recent)
        if failures > self._max_failure_share * WINDOW:
            raise CircuitOpen(
                f"{where}: {failures} of the last {WINDOW} requests failed, more than generate.max_failure_share = "
                f"{self._max_failure_share}; the last one: {error}\n"
                "finished traces are kept: repair the server or the recipe, then run the same command again"
            )
