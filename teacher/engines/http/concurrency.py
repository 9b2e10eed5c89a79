"""How many requests a server is given at once: as many as keep it busy, no more.

`ConcurrencyLimit` decides from the values that it is given; it measures nothing itself. A server that shows its queue
(vLLM's /metrics) gets a short one beside as many requests as it has lately worked on at once, so that a place that
becomes free is filled immediately. Of a server that shows nothing the throughput is watched: the limit rises while
that pays. A refusal (429, 503) or a missed deadline lowers the limit either way.
"""

from dataclasses import dataclass, field

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
_STEP = 1.25
_BACK_OFF = 0.7
_HOLD_AFTER_REFUSAL_S = 2.0
"""After a refusal the limit does not rise for so long."""
_WINDOW_S = 1.0
_MIN_GAIN = 1.03
"""Of a server that shows nothing, a higher limit pays when throughput grows at least by this factor."""
_HOLD_WINDOWS = 15
"""Windows after which a limit that was found best is put to the test again."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """The limit of one server. Times are seconds of a monotonic clock."""

    cap: int | None = None
    """Upper limit; None: none but MOST."""
    start: int = START
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

    def __post_init__(self) -> None:
        self.limit = self._bounded(self.start)

    def _bounded(self, limit: float) -> int:
        return max(1, min(round(limit), self.cap or MAX_IN_FLIGHT))

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
        # Neither worked on nor queued: the server is still reading them, and more would not reach it sooner.
        unread = in_flight - running - waiting
        used = in_flight >= 0.9 * self.limit
        if waiting < queue / 2 and used and unread <= max(START, running) and now >= self._calm_until:
            self.limit = self._bounded(self.limit * (_RAMP if self._ramping else _STEP) + 1)

    def refused(self, in_flight: int, now: float) -> None:
        """The server said that it has too much to do, or did not answer in time."""
        if now < self._calm_until - _HOLD_AFTER_REFUSAL_S / 2:
            return  # one burst of refusals counts once
        self._ramping = False
        self._calm_until = now + _HOLD_AFTER_REFUSAL_S
        self.limit = self._bounded(min(self.limit, in_flight) * _BACK_OFF)
        self._restart(now)

    def completed(self, in_flight: int, now: float) -> None:
        """One request was answered while `in_flight` were under way, itself included."""
        if not self._blind:
            return
        if self._window_from < 0:
            self._restart(now)
        self._completed += 1
        self._used = self._used or in_flight >= self.limit
        # A window must see every slot used about twice; a shorter one measures noise.
        if now - self._window_from >= _WINDOW_S and self._completed >= 2 * self.limit:
            self._judge(self._completed / (now - self._window_from), now)

    def _judge(self, rate: float, now: float) -> None:
        """Raise the limit while that pays, go back when it did not."""
        used, raised = self._used, self.limit > self._limit_before > 0
        self._restart(now)
        if not used or now < self._calm_until:
            return
        if raised and rate < _MIN_GAIN * self._rate_before:
            self.limit, self._limit_before, self._ramping = self._limit_before, 0, False
            self._held = 0
            return
        self._held += 1
        if raised or self._rate_before == 0 or self._held >= _HOLD_WINDOWS:
            self._rate_before, self._limit_before, self._held = rate, self.limit, 0
            self.limit = self._bounded(self.limit * (_RAMP if self._ramping else _STEP) + 1)

    def _restart(self, now: float) -> None:
        self._window_from, self._completed, self._used = now, 0, False
