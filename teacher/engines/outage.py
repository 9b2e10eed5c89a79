"""Decides whether a failure is caused by one row, or by something that many rows need.

A row is blamed only when it alone fails while others pass. So a first failure proves nothing. The row is tried again,
and its next failure counts only when another row has passed in between. Enough such failures, with a pass of another
row after the last one, prove that the row is the cause. How many are enough depends on how many other rows fail in
the same way. Every other failure is an outage: the client waits, then stops the run, and writes nothing about the
rows that wait.

Decides from the failures and successes that it is given. It sends nothing and reads nothing; outages and failed tries
it reports to the log of the run.
"""

import logging
import math
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from distill.errors import CircuitOpen
from distill.reports.text_table import time_span

RECENT = 100
"""Rows whose first try says how often rows fail at the moment."""
FALSE_BLAME_PROBABILITY = 1e-4
"""A row is blamed when a sound row would fail as often with at most this probability."""
MAX_TRIES = 10
"""Most failures that are needed to prove a row to be the cause, if the server refuses the content of its request."""
_MAX_UNEXPLAINED_TRIES = 40
"""The largest number for failures that tell nothing about the request.

If 80 of 100 tries fail, 10 in a row are common.
"""
_BACKOFF_S = 0.5
_REFUSED_BACKOFF_S = 0.1
MAX_WAIT_S = 60.0
_FAILING_ROWS = 3
"""Number of different failing rows without a pass after which the dependency counts as down."""
_UNPROVEN_S = 30.0
"""If no request has ever passed, the run waits at most so long at a refusal of a request's content, and at answers
that cannot be used: waiting does not cure it."""
_TRY_PAUSE_S = (0.5, 15.0)
"""While a dependency is down for all rows, one row at a time tries whether it is up again: so often at first, and
later. Each try may cost money, and refused ones count against the limits of an API."""

Say = Callable[[str], None]

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
"""For the log of the run: `say` shows the same on the terminal."""


class Failure(Exception):
    """One try of a row that failed, for a reason that is the row's or not."""

    def __init__(
        self,
        reason: str,
        detail: str,
        *,
        kind: str = "",
        tries: int = 2,
        wait_s: float | None = None,
        remedy: str = "",
        paid: bool = False,
    ) -> None:
        """`kind`: failures of one kind are alike. `tries`: failures that prove a row to be the cause, at least.
        `wait_s`: the server asks to wait so long. `remedy`: what to change in the recipe, where that is the cause.
        `paid`: the server has written an answer, which cannot be used."""
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.kind = kind or reason
        self.tries = tries
        self.wait_s = wait_s
        self.remedy = remedy
        self.paid = paid

    @property
    def refused(self) -> bool:
        """Whether the server refuses the request."""
        return self.reason == REFUSED

    @property
    def of_the_request(self) -> bool:
        """Whether the server refuses the content of the request, and not its sender or its time."""
        return self.refused and self.tries == 2


REFUSED = "refused_request"


class Dependency:
    """What many rows need: the servers of a teacher, or a folder of images. It counts passes and failures."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.passes = 0
        self._last_failure: Failure | None = None
        self._clock = clock
        self._failing_since: float | None = None
        self._last_failed = 0.0
        self._failing_rows: set[str] = set()
        """Rows and controls that failed since the last pass."""
        self._first_tries: OrderedDict[str, str] = OrderedDict()
        self._next_try = 0.0
        self._reported = False
        self._failures: Counter[str] = Counter()

    def passed(self, row: str) -> None:
        """A row, or a control request, succeeded."""
        self.passes += 1
        if row not in self._first_tries:
            self._note(row, "")
        if self._failing_since is not None:
            self.recovered()

    def failed(self, row: str, failure: Failure) -> None:
        self._last_failed = self._clock()
        if self._failing_since is None:
            self._failing_since = self._last_failed
        self._last_failure = failure
        self._failing_rows.add(row)
        self._failures[failure.kind] += 1
        if row not in self._first_tries:
            self._note(row, failure.kind)

    def recovered(self) -> None:
        """The dependency is available again, although no row has passed yet."""
        if self._reported:
            log.info("%s answers again after %s", self.name, time_span(self.failing_s))
        self._failing_since = None
        self._failing_rows.clear()
        self._reported = False

    def _note(self, row: str, kind: str) -> None:
        self._first_tries[row] = kind
        if len(self._first_tries) > RECENT:
            self._first_tries.popitem(last=False)

    @property
    def is_down(self) -> bool:
        """Whether it fails for all rows, as far as is known."""
        return len(self._failing_rows) >= _FAILING_ROWS

    def may_try(self, patience_s: float) -> bool:
        """Whether a row may try again now."""
        now = self._clock()
        if self.is_down and now < self._next_try:
            return False
        self._next_try = now + min(self.pause_s(*_TRY_PAUSE_S), max(_TRY_PAUSE_S[0], patience_s / 4))
        return True

    def pause_s(self, first_s: float, longest_s: float) -> float:
        """Seconds until the next look at something that fails: the longer it has failed, the more."""
        return min(max(first_s, self.failing_s / 4), longest_s)

    @property
    def failing_s(self) -> float:
        """Seconds since the first failure after the last pass."""
        return 0.0 if self._failing_since is None else self._clock() - self._failing_since

    def tries_needed(self, row: str, failure: Failure) -> int:
        """Failures that prove a row to be the cause; more of them if other rows also fail at their first try."""
        others = [kind for other, kind in self._first_tries.items() if other != row]
        share = others.count(failure.kind) / len(others) if others else 0.0
        if not share:
            return failure.tries
        by_share = math.ceil(math.log(FALSE_BLAME_PROBABILITY) / math.log(min(share, 0.99)))
        most = MAX_TRIES if failure.of_the_request else _MAX_UNEXPLAINED_TRIES
        return max(failure.tries, min(by_share, most))

    def blame(self, row: str) -> None:
        """Record that a row itself is the cause: its failures say nothing about other rows."""
        self._first_tries.pop(row, None)
        self._failing_rows.discard(row)

    def wait(self, patience_s: float, say: Say, *, idle: bool) -> None:
        """Report once what the run waits for. Raises CircuitOpen when a try fails `patience_s` after the first one.

        Time alone proves nothing: where this machine stood still, it asks once more before the run stops. `idle`:
        nothing else is under way that may still pass. One row that fails while others are under way is no outage.
        """
        if self._failing_since is None or self._last_failure is None:
            return
        if not (self.is_down or idle or len(self._failing_rows) > 1):
            return
        if (self._last_failure.of_the_request or self._last_failure.paid) and not self.passes:
            patience_s = min(patience_s, _UNPROVEN_S)
        waited_s = self._last_failed - self._failing_since
        if waited_s >= patience_s:
            raise CircuitOpen(
                f"{self.name}: no request has succeeded for {time_span(waited_s)} (generate.patience_s = "
                f"{patience_s:g}); the last failure: {self._last_failure}\nno row gets an error for this, and "
                "finished traces are kept: correct the cause, then run the same command again"
            )
        if not self._reported and (self.is_down or idle):
            self._reported = True
            text = f"waiting for {self.name}, for {time_span(patience_s)} at most: {self._last_failure}"
            log.warning("%s", text)
            say(text)

    def log_failures(self) -> None:
        """Report how many tries failed, by kind, and begin to count again."""
        if self._failures:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in self._failures.most_common())
            log.warning("%s: %s failed tries: %s", self.name, f"{self._failures.total():,}", kinds)
            self._failures.clear()


class RowServer(Protocol):
    """What a row fails at: one server of several, or a dependency as a whole."""

    @property
    def passes(self) -> int:
        """Rows and controls that have passed there."""


class RowFailures:
    """The failures of one row at one dependency.

    A failure counts where the server at which it happened passes another row before the row's next failure there. So
    servers without any answer prove nothing about a row, also beside a server that works.
    """

    def __init__(self, row: str) -> None:
        self.row = row
        self.tries = 0
        self._counts: Counter[RowServer] = Counter()
        """Failures at each server. The last one counts only where another row has passed there since."""
        self._passes: dict[RowServer, int] = {}
        """Passes of each server when the row last failed there."""
        self._last: RowServer | None = None

    def failed(self, dependency: Dependency, failure: Failure, server: RowServer) -> None:
        """`server` is the one of the dependency's servers at which the row failed."""
        dependency.failed(self.row, failure)
        self.tries += 1
        self._counts[server] += self._another_passed(server)
        self._passes[server] = server.passes
        self._last = server

    def _another_passed(self, server: RowServer) -> bool:
        """Whether another row has passed at a server since this one failed there."""
        return server.passes > self._passes.get(server, -1)

    @property
    def no_other_passed(self) -> bool:
        """Whether no other row has passed since the last failure, at the server of that failure."""
        return self._last is not None and not self._another_passed(self._last)

    def has_enough(self, dependency: Dependency, failure: Failure) -> bool:
        """Whether the row is the cause if another row passes at the server of the last failure."""
        count = self._confirmed + self.no_other_passed
        return count >= dependency.tries_needed(self.row, failure)

    def proven(self, dependency: Dependency, failure: Failure) -> bool:
        return self._confirmed >= dependency.tries_needed(self.row, failure)

    @property
    def _confirmed(self) -> int:
        """Failures that another row's pass has followed."""
        return sum(count - (not self._another_passed(server)) for server, count in self._counts.items())

    def backoff_s(self, failure: Failure, patience_s: float) -> float:
        """Until the next try. It has a random part, so that requests that failed together do not return together."""
        if failure.wait_s:
            wait_s = failure.wait_s * random.uniform(1, 1.25)
        else:
            first_s = _REFUSED_BACKOFF_S if failure.of_the_request else _BACKOFF_S
            wait_s = first_s * 2 ** min(self.tries - 1, 10) * random.uniform(0.5, 1)
        return min(wait_s, MAX_WAIT_S, max(_BACKOFF_S, patience_s / 4))
