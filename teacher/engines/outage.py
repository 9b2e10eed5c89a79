"""Whose fault a failure is: a row's own, or that of something which many rows need.

A row is guilty only when it alone fails while others pass. So a failure is a suspicion first. The row is tried again,
and its next failure counts only when another row has passed in between; enough of them, with a pass of another row
after the last one, prove the row guilty. How many are enough depends on how many other rows fail in the same way.
What is not proven is an outage: it is waited for, then the run stops, and nothing is written about rows that wait.

Decides from the failures and successes that it is given. It sends nothing and reads nothing.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from distill.errors import CircuitOpen

RECENT = 100
"""Rows whose first try says how often rows fail at the moment."""
DOUBT = 1e-4
"""A row is guilty when a row without fault would fail as often as it did with at most this probability."""
MOST_TRIES = 10
_STRIKES = 3
"""So many rows that fail one after the other, and none that passes: it is not the rows."""
_UNPROVEN_REFUSAL_S = 30.0
"""A refusal of what the request says is waited for so long at most where no request has ever passed: waiting does not
cure it."""

Say = Callable[[str], None]


class Failure(Exception):
    """One try of a row that failed, for a reason that is the row's or not."""

    def __init__(
        self, reason: str, detail: str, *, kind: str = "", tries: int = 2, wait_s: float | None = None
    ) -> None:
        """`kind`: failures of one kind are alike. `tries`: failures that prove a row guilty at least. `wait_s`: the
        server asks to wait so long."""
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.kind = kind or reason
        self.tries = tries
        self.wait_s = wait_s

    @property
    def refused(self) -> bool:
        """Whether the server refuses the request."""
        return self.reason == REFUSED

    @property
    def of_the_request(self) -> bool:
        """Whether it is what the request says that the server refuses, and not who asks, or when."""
        return self.refused and self.tries == 2


REFUSED = "refused_request"


class Dependency:
    """What many rows need: the servers of a teacher, or a folder of images. Who passed, who failed, since when."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.passes = 0
        self.why: Failure | None = None
        self._clock = clock
        self._failing_since: float | None = None
        self._strikes: set[str] = set()
        self._first_tries: OrderedDict[str, str] = OrderedDict()
        self._said = False

    def passed(self, row: str) -> None:
        """A row, or a control, got what it needs."""
        self.passes += 1
        if row not in self._first_tries:
            self._note(row, "")
        if self._failing_since is not None:
            self.recovered()

    def failed(self, row: str, failure: Failure) -> None:
        if self._failing_since is None:
            self._failing_since = self._clock()
        self.why = failure
        self._strikes.add(row)
        if row not in self._first_tries:
            self._note(row, failure.kind)

    def recovered(self) -> None:
        """It is there again, although no row has passed yet."""
        self._failing_since = None
        self._strikes.clear()
        self._said = False

    def _note(self, row: str, kind: str) -> None:
        self._first_tries[row] = kind
        if len(self._first_tries) > RECENT:
            self._first_tries.popitem(last=False)

    @property
    def out(self) -> bool:
        """Whether it fails for everybody, as far as is known."""
        return len(self._strikes) >= _STRIKES

    @property
    def strikes(self) -> int:
        """Rows and controls that failed since the last pass."""
        return len(self._strikes)

    def pause_s(self, first_s: float, longest_s: float) -> float:
        """Seconds until the next look at something that fails: the longer it has failed, the more."""
        return min(max(first_s, self.failing_s / 4), longest_s)

    @property
    def failing_s(self) -> float:
        """Seconds since the first failure after the last pass."""
        return 0.0 if self._failing_since is None else self._clock() - self._failing_since

    def tries_needed(self, row: str, failure: Failure) -> int:
        """Failures that prove a row guilty: more where other rows fail at first, too."""
        others = [kind for other, kind in self._first_tries.items() if other != row]
        share = others.count(failure.kind) / len(others) if others else 0.0
        if not share:
            return failure.tries
        by_share = math.ceil(math.log(DOUBT) / math.log(min(share, 0.99)))
        return max(failure.tries, min(by_share, MOST_TRIES))

    def convict(self, row: str) -> None:
        """A row is guilty: its failures say nothing about the others."""
        self._first_tries.pop(row, None)
        self._strikes.discard(row)

    def wait(self, patience_s: float, say: Say, *, idle: bool) -> None:
        """Say once what is waited for. Raises CircuitOpen when that has lasted for `patience_s`.

        `idle`: nothing else is under way that may still pass. One row that fails while others are under way is no
        outage.
        """
        if self._failing_since is None or self.why is None or not (self.out or idle or self.strikes > 1):
            return
        if self.why.of_the_request and not self.passes:
            patience_s = min(patience_s, _UNPROVEN_REFUSAL_S)
        waited_s = self.failing_s
        if waited_s >= patience_s:
            raise CircuitOpen(
                f"{self.name}: nothing has passed for {_shown(waited_s)} (generate.patience_s = {patience_s:g}); "
                f"the last failure: {self.why}\n"
                "no row is blamed for it and finished traces are kept: repair it, then run the same command again"
            )
        if not self._said and (self.out or idle):
            self._said = True
            say(f"waiting for {self.name}, for {_shown(patience_s)} at most: {self.why}")


class Suspicion:
    """What speaks against one row at one dependency."""

    def __init__(self, row: str) -> None:
        self.row = row
        self.failures = 0
        """Those that count."""
        self.tries = 0
        self._passes = -1

    def failed(self, dependency: Dependency, failure: Failure) -> None:
        dependency.failed(self.row, failure)
        self.tries += 1
        if dependency.passes > self._passes:
            self.failures += 1
        self._passes = dependency.passes

    def open(self, dependency: Dependency) -> bool:
        """Whether no other row has passed since the last failure."""
        return dependency.passes == self._passes

    def enough(self, dependency: Dependency, failure: Failure) -> bool:
        return self.failures >= dependency.tries_needed(self.row, failure)

    def proven(self, dependency: Dependency, failure: Failure) -> bool:
        return not self.open(dependency) and self.enough(dependency, failure)


def _shown(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
