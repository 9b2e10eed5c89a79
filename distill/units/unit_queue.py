"""The open units of a run, as they are given out. Commits say what is done, so a new driver makes a new queue."""

import threading
from collections import deque
from collections.abc import Iterable

from distill.units.commits import Unit


class UnitQueue:
    """The open units, by name. Its methods may be called from several threads."""

    def __init__(self, units: Iterable[Unit]) -> None:
        self._open = deque(sorted(units, key=lambda unit: (unit.round, unit.partition)))
        self._at_work: set[Unit] = set()
        self._lock = threading.Lock()

    def draw(self) -> Unit | None:
        """The next unit; None when all are given out."""
        with self._lock:
            if not self._open:
                return None
            unit = self._open.popleft()
            self._at_work.add(unit)
            return unit

    def done(self, unit: Unit) -> None:
        """Take note that a unit is committed."""
        with self._lock:
            self._at_work.discard(unit)

    @property
    def ended(self) -> bool:
        """Whether every unit is committed."""
        with self._lock:
            return not self._open and not self._at_work
