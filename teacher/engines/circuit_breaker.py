"""The circuit breaker: stops a run in which too many rows fail, before it costs more."""

from collections import deque
from dataclasses import dataclass
from typing import Self

from distill.errors import CircuitOpen

WINDOW = 100
"""Requests over which the circuit breaker looks back."""


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
