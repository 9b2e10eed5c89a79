"""Decides how many requests a server gets at once: as many as keep it busy.

`ConcurrencyLimit` decides from the values that it is given; it measures nothing itself. A server that reports its
queue (vLLM's /metrics) gets as many requests as it recently processed at once, plus a short queue, so that a free
slot is filled immediately. For a server that shows no queue, the limit follows its answers. Before the first answer,
the limit doubles whenever the texts of nearly all requests have begun, for a request in a queue has no text. Then it
rises with every answer, until answers no longer come faster; then in steps while that pays. The next run in the same
directory starts with the number that this run reached. A refusal (429, 503) or a missed deadline lowers the limit
either way.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from distill.artifacts.files import write_json
from distill.recipe.sections.teachers import Teacher

START = 128
"""For a server that shows its queue: a few too many wait there, and cost nothing."""
BLIND_START = 32
MAX_IN_FLIGHT = 4096
_QUEUE_SHARE = 0.125
"""Requests kept waiting at the server, as a share of those it works on."""
_PEAK_DECAY = 0.99
"""What a look leaves of the most requests that the server worked on at once."""
_FLAT_OBSERVATIONS = 4
"""A queue counts once that number has not grown for so many looks; before, it is prompts still being read."""
_RAMP = 2.0
_BLIND_RAMP = 8.0
"""Most that the limit grows in one round of answers while it rises with every answer, as a factor."""
_MIN_SHARE = 0.35
"""The limit no longer rises with every answer when more requests brought less than this share of the throughput that
they would bring at a server with room for all of them."""
_BEGUN_SHARE = 0.9
"""When the texts of this share of the requests in flight have begun, the server has room for more."""
_LATE_BEGIN = 0.5
"""Share of the time of the first answer: texts that begin later tell too little about a queue."""
_QUEUED_AFTER = 2.0
"""A request waits at the server when its text has not begun after this multiple of what others took to begin."""
_HEADROOM = 2.0
_FIRST_ANSWERS = 4
"""Number of answers that give the first estimate of a server's speed."""
_STEP = 1.25
_BACK_OFF = 0.7
_HOLD_AFTER_REFUSAL_S = 2.0
"""After a refusal the limit does not rise for so long."""
_WINDOW_S = 1.0
_MIN_GAIN = 1.03
"""For a server that shows no queue, a higher limit pays when throughput grows at least by this factor."""
_LONGEST_SHARE = 0.5
"""Share of a teacher's `timeout_s`: the longest time of an answer that waits at a server which shows no queue."""
_FOUND = "in_flight.json"
_HOLD_WINDOWS = 15
"""Windows after which a limit that was found best is put to the test again."""


@dataclass(frozen=True, slots=True)
class FoundLimit:
    """The limit that a run has found for a server that shows nothing, and whether it was still rising."""

    limit: int
    rising: bool


@dataclass(slots=True)
class ConcurrencyLimit:
    """The limit of one server. Times are seconds of a monotonic clock."""

    cap: int | None = None
    """Upper limit; None: MAX_IN_FLIGHT."""
    start: int = START
    warm: bool = False
    """Whether `start` is what an earlier run or a person has found: then it does not rise with every answer."""
    longest_s: float = float("inf")
    """No more are in flight than are answered in this time."""
    limit: int = field(init=False)
    _ramping: bool = field(default=True, init=False)
    _calm_until: float = field(default=0.0, init=False)
    _blind: bool = field(default=True, init=False)
    _peak: float = field(default=0.0, init=False)
    _flat: int = field(default=0, init=False)
    _window_from: float = field(default=-1.0, init=False)
    _completed: int = field(default=0, init=False)
    _used: bool = field(default=False, init=False)
    _rate_before: float = field(default=0.0, init=False)
    _limit_before: int = field(default=0, init=False)
    _held: int = field(default=0, init=False)
    _rising: bool = field(default=False, init=False)
    """Whether the limit of a server that shows nothing rises with every answer."""
    _level: float = field(default=0.0, init=False)
    """The limit with which the present round began."""
    _rise: float = field(default=_BLIND_RAMP - 1, init=False)
    """What an answer adds to the limit."""
    _begun: int = field(default=0, init=False)
    """Requests whose text began before the first answer."""
    _begin_s: float = field(default=0.0, init=False)
    """The longest time until one of them began."""
    _doubled_at: float = field(default=-1.0, init=False)
    """When they last raised the limit."""

    def __post_init__(self) -> None:
        self.limit = self._bounded(self.start)
        self._level, self._rising = self.limit, not self.warm

    def _bounded(self, limit: float) -> int:
        return max(1, min(round(limit), self.cap or MAX_IN_FLIGHT))

    @property
    def found(self) -> FoundLimit | None:
        """What a later run may start with; None for a server that shows its queue or has not answered."""
        return FoundLimit(limit=self.limit, rising=self._rising) if self._blind and self._window_from >= 0 else None

    def observe_queue(self, running: float, waiting: float, in_flight: int, now: float) -> None:
        """The server works on `running` requests, `waiting` are queued; `in_flight` are ours on their way."""
        self._blind = False
        self._flat = 0 if running > self._peak else self._flat + 1
        self._peak = max(running, _PEAK_DECAY * self._peak)
        queue = max(2.0, _QUEUE_SHARE * self._peak)
        if waiting > 2 * queue:
            if self._flat >= _FLAT_OBSERVATIONS:
                self._ramping = False
                self.limit = self._bounded(min(self.limit, self._peak + queue))
            return
        # The server still reads these requests, so they are not running and not queued; more requests would not help.
        unread = in_flight - running - waiting
        used = in_flight >= 0.9 * self.limit
        if waiting < queue / 2 and used and unread <= max(START, running) and now >= self._calm_until:
            self.limit = self._bounded(self.limit * (_RAMP if self._ramping else _STEP) + 1)

    def refused(self, in_flight: int, now: float) -> None:
        """The server said that it has too much to do, or did not answer in time."""
        if now < self._calm_until - _HOLD_AFTER_REFUSAL_S / 2:
            return  # one burst of refusals counts once
        self._ramping = self._rising = False
        self._calm_until = now + _HOLD_AFTER_REFUSAL_S
        self.limit = self._bounded(min(self.limit, in_flight) * _BACK_OFF)
        self._restart(now)

    def begun(self, in_flight: int, now: float, after_s: float) -> None:
        """The text of an answer has begun, `after_s` after its request. Before the first answer, that counts."""
        if not (self._blind and self._rising and self._window_from < 0):
            return
        self._begun += 1
        self._begin_s = max(self._begin_s, after_s)
        enough = _BEGUN_SHARE * self.limit
        if self._begun >= enough and in_flight >= enough and now >= self._calm_until:
            self.limit, self._doubled_at = self._bounded(self.limit * _RAMP), now

    def failed(self) -> None:
        """A request got no answer: texts that have begun no longer show what the server works on."""
        self._begun = 0

    def _look_at_begun(self, now: float, latency_s: float) -> None:
        """At the first answer: learn from the texts that have begun how many requests the server works on at once."""
        if self._doubled_at < 0 or self._begin_s > _LATE_BEGIN * latency_s:
            return
        waited_s = now - self._doubled_at
        if self._begun < _BEGUN_SHARE * self.limit and waited_s > _QUEUED_AFTER * self._begin_s:
            self._rising = False
            self.limit = self._bounded(min(self.limit, _HEADROOM * self._begun))
        self._level = self.limit

    def completed(self, in_flight: int, now: float, latency_s: float = 0.0) -> None:
        """One request was answered, after `latency_s`, while `in_flight` were under way, itself included."""
        if not self._blind:
            return
        if self._window_from < 0:
            self._look_at_begun(now, latency_s)
            self._restart(now - latency_s)
        self._completed += 1
        self._used = self._used or in_flight >= self.limit
        seconds = now - self._window_from
        if self._rising:
            self._rise_with_answer(in_flight, seconds, now)
        # A window must see every slot used about twice; a shorter one measures noise.
        elif seconds >= _WINDOW_S and self._completed >= 2 * self.limit:
            self._judge(self._completed / seconds, now)

    def _rise_with_answer(self, in_flight: int, seconds: float, now: float) -> None:
        """Raise the limit by one answer, and look at a round once each of its slots was used about once."""
        if seconds <= 0:
            return
        rate = self._completed / seconds
        if self._completed >= _FIRST_ANSWERS and in_flight >= self.limit:
            raised = self._level + self._rise * self._completed
            self.limit = self._bounded(min(raised, max(_FIRST_ANSWERS, rate * self.longest_s)))
        if self._completed < self._level:
            return
        used, level, before = self._used, self.limit, self._rate_before
        self._restart(now)
        if not used:
            return
        # By Little's law: the requests that the server worked on at once, if each still takes as long as before.
        paid = self._level if before == 0 else min(self._level, self._limit_before * rate / before)
        if paid < _MIN_SHARE * self._level:
            self._rising = False
            self.limit = self._bounded(max(self._limit_before, paid) * _HEADROOM)
            self._rate_before, self._limit_before = 0.0, 0
            return
        self._rate_before, self._limit_before = rate, round(self._level)
        self._level, self._rise = level, max(0.0, _BLIND_RAMP * paid / level - 1)

    def _judge(self, rate: float, now: float) -> None:
        """Raise the limit while that pays, go back when it did not."""
        used, raised = self._used, self.limit > self._limit_before > 0
        self._restart(now)
        if not used or now < self._calm_until:
            return
        if raised and rate < _MIN_GAIN * self._rate_before:
            self.limit, self._limit_before = self._limit_before, 0
            self._held = 0
            return
        self._held += 1
        if raised or self._rate_before == 0 or self._held >= _HOLD_WINDOWS:
            self._rate_before, self._limit_before, self._held = rate, self.limit, 0
            higher = min(self.limit * _STEP + 1, rate * self.longest_s)
            self.limit = self._bounded(max(self.limit, higher))

    def _restart(self, now: float) -> None:
        self._window_from, self._completed, self._used = now, 0, False


def new_limit(teacher: Teacher, found: FoundLimit | None) -> ConcurrencyLimit:
    """The limit with which a server of a teacher begins; `found` is what an earlier run found."""
    start, warm = (START, False) if teacher.capabilities.shows_queue else (BLIND_START, False)
    if teacher.start_in_flight is not None:
        start, warm = teacher.start_in_flight, True
    elif found is not None and not teacher.capabilities.shows_queue:
        start, warm = found.limit, not found.rising
    return ConcurrencyLimit(
        cap=teacher.max_in_flight, start=start, warm=warm, longest_s=_LONGEST_SHARE * teacher.timeout_s
    )


def read_found(folder: Path) -> FoundLimit | None:
    """The limit that an earlier run left in a teacher's folder."""
    try:
        values = orjson.loads((folder / _FOUND).read_bytes())
        return FoundLimit(limit=int(values["limit"]), rising=bool(values["rising"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_found(folder: Path, limits: Iterable[ConcurrencyLimit]) -> None:
    """Leave the largest limit that was found for one of a teacher's servers."""
    found = [limit.found for limit in limits if limit.found is not None]
    if found:
        largest = max(found, key=lambda each: each.limit)
        write_json(folder / _FOUND, {"limit": largest.limit, "rising": largest.rising}, durable=False)
