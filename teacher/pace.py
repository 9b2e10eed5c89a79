"""How many requests a server is given at once: as many as keep it busy, no more.

`Pace` decides from what it is told; it does not look for itself. A server that shows its queue (vLLM's /metrics) gets
a short one, so that a place that becomes free is filled at once; the limit rises while no queue forms and the tokens
that the server counts come no slower for it. Of a server that shows nothing the answers are counted instead. A
refusal (429, 503) or a missed deadline lowers the limit either way.
"""

from dataclasses import dataclass, field

START = 128
"""For a server that shows its queue: a few too many wait there, and cost nothing."""
BLIND_START = 32
MOST = 4096
_QUEUE_SHARE = 0.125
"""Requests kept waiting at the server, as a share of those it works on."""
_RAMP = 2.0
_STEP = 1.25
_BACK_OFF = 0.7
_CALM_S = 2.0
"""After a refusal the limit does not rise for so long."""
_WINDOW_S = 1.0
_SETTLE_S = 0.5
"""After a change of the limit the server's tokens are not counted for so long: it has new prompts to read."""
_COSTS = 0.95
"""A higher limit costs too much when the server's tokens come slower than this share of before. A full engine with a
short queue is what a server is made for, so it need not prove more; a second's count is too rough for that anyway."""
_PAYS = 1.03
"""Of a server that shows nothing, a higher limit pays when throughput grows at least by this factor."""
_HOLD_S = 20.0
"""After so long a limit that was found best is put to the test again; longer each time."""
_HOLD_WINDOWS = 15
"""The same in windows, where answers are counted."""


@dataclass(slots=True)
class Pace:
    """The limit of one server. Times are seconds of a monotonic clock."""

    cap: int | None = None
    """Upper limit; None: none but MOST."""
    start: int = START
    limit: int = field(init=False)
    _ramping: bool = field(default=True, init=False)
    _calm_until: float = field(default=0.0, init=False)
    _blind: bool = field(default=True, init=False)
    _running: float = field(default=0.0, init=False)
    # By the server's own count of tokens:
    _mark: tuple[float, float] | None = field(default=None, init=False)
    """When counting began at this limit, and the count then."""
    _changed_at: float = field(default=0.0, init=False)
    _best: tuple[int, float] = field(default=(0, 0.0), init=False)
    """The limit at which the tokens came fastest, and how many a second."""
    _hold_until: float = field(default=0.0, init=False)
    _hold_s: float = field(default=_HOLD_S, init=False)
    # By the answers that came back:
    _window_from: float = field(default=-1.0, init=False)
    _completed: int = field(default=0, init=False)
    _used: bool = field(default=False, init=False)
    _rate_before: float = field(default=0.0, init=False)
    _limit_before: int = field(default=0, init=False)
    _held: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.limit = self._bounded(self.start)

    def _bounded(self, limit: float) -> int:
        return max(1, min(round(limit), self.cap or MOST))

    def saw(self, running: float, waiting: float, in_flight: int, now: float, tokens: float | None = None) -> None:
        """The server works on `running` requests, `waiting` are queued; `in_flight` are ours on their way.

        `tokens`: how many it has generated since it started, if it counts them.
        """
        self._blind = False
        if self._mark is None and tokens is not None and now - self._changed_at >= _SETTLE_S:
            self._mark = now, tokens
        # A queue beside a number of running requests that still grows is only the reading of new prompts.
        filling, self._running = running > 1.02 * self._running, running
        queue = max(2.0, _QUEUE_SHARE * running)
        if waiting > 2 * queue:
            if not filling:
                self._ramping = False
                self._change(max(in_flight - (waiting - queue), running + queue, 1), now)
            return
        # Neither worked on nor queued: the server is still reading them, and more would not reach it sooner.
        unread = in_flight - running - waiting
        used = in_flight >= 0.9 * self.limit
        if waiting < queue / 2 and used and unread <= max(START, running) and now >= self._calm_until:
            self._try_more(now, tokens)

    def _try_more(self, now: float, tokens: float | None) -> None:
        """Raise the limit, or go back if the last rise cost throughput, as far as tokens are counted."""
        if tokens is not None:
            if self._mark is None or now - self._mark[0] < _WINDOW_S:
                return
            rate = (tokens - self._mark[1]) / (now - self._mark[0])
            best, fastest = self._best
            if best != self.limit and rate < _COSTS * fastest:
                self._change(best, now)
                self._ramping = False
                self._hold_until, self._hold_s = now + self._hold_s, 2 * self._hold_s
                return
            if rate > fastest or best == self.limit:
                self._best = self.limit, rate
        if now >= self._hold_until:
            self._change(self.limit * (_RAMP if self._ramping else _STEP) + 1, now)

    def _change(self, limit: float, now: float) -> None:
        self.limit = self._bounded(limit)
        self._changed_at, self._mark = now, None

    def refused(self, in_flight: int, now: float) -> None:
        """The server said that it has too much to do, or did not answer in time."""
        if now < self._calm_until - _CALM_S / 2:
            return  # one burst of refusals counts once
        self._ramping = False
        self._calm_until = now + _CALM_S
        self._change(min(self.limit, in_flight) * _BACK_OFF, now)
        self._restart(now)

    def completed(self, in_flight: int, now: float) -> None:
        """One request was answered while `in_flight` were under way, itself included."""
        if not self._blind:
            return
        if self._window_from < 0:
            self._restart(now)
        self._completed += 1
        self._used = self._used or in_flight >= self.limit
        # A window must see every place filled about twice, or it measures luck.
        if now - self._window_from >= _WINDOW_S and self._completed >= 2 * self.limit:
            self._judge(self._completed / (now - self._window_from), now)

    def _judge(self, rate: float, now: float) -> None:
        """Raise the limit while that pays, go back when it did not."""
        used, raised = self._used, self.limit > self._limit_before > 0
        self._restart(now)
        if not used or now < self._calm_until:
            return
        if raised and rate < _PAYS * self._rate_before:
            self.limit, self._limit_before, self._ramping = self._limit_before, 0, False
            self._held = 0
            return
        self._held += 1
        if raised or self._rate_before == 0 or self._held >= _HOLD_WINDOWS:
            self._rate_before, self._limit_before, self._held = rate, self.limit, 0
            self.limit = self._bounded(self.limit * (_RAMP if self._ramping else _STEP) + 1)

    def _restart(self, now: float) -> None:
        self._window_from, self._completed, self._used = now, 0, False
