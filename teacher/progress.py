"""The progress reports of a running `generate`: rate, requests in flight, outcomes so far, cost."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from distill.recipe.sections.teachers import Teacher
from distill.trace_records.token_counts import known_usage, output_tokens
from distill.types import Outcome, Progress, ProgressCallback

_REPORT_INTERVAL_S = 0.25


def announce(on_progress: ProgressCallback, activity: str) -> None:
    """Report an activity before the number of traces is known."""
    on_progress(Progress(stage="generate", done=0, total=0, unit="traces", facts={"now": activity}))


class GenerateProgress:
    """Turns finished traces into reports, a few a second."""

    def __init__(self, on_progress: ProgressCallback, *, done: int, total: int, outcomes: Mapping[str, int]) -> None:
        """`done` of `total` traces were there before, and ended like this."""
        self._on_progress = on_progress
        self._resumed = self._done = self._there = done
        self._total = max(total, done)
        self._tokens = self._without_usage = self._planned = 0
        self._cost = 0.0
        self._cost_is_known = True
        self._outcomes = Counter(outcomes)
        self._now = ""
        self._in_flight: list[Callable[[], int]] = []
        self._started = time.monotonic()
        self._reported = 0.0
        self._report()

    def found(self, outcomes: Mapping[str, int], elsewhere: int = 0) -> None:
        """Count wanted traces that existed before, or that other agents have made."""
        there = sum(outcomes.values())
        self._outcomes.update(outcomes)
        self._there += there
        self._resumed += there + elsewhere
        self._done += there + elsewhere

    def begin_round(self) -> None:
        """Count traces, tokens and seconds again: other teachers work from now on, at another rate."""
        self._resumed, self._tokens, self._without_usage, self._planned = self._done, 0, 0, 0
        self._started = time.monotonic()

    def follow(self, in_flight: Callable[[], int]) -> None:
        """Add an engine, by the function that counts its requests under way."""
        self._in_flight.append(in_flight)

    def note(self, activity: str) -> None:
        """Report an activity during which no trace can come, such as the start of a server."""
        self._now = activity
        self._report()

    def expect(self, more: int) -> None:
        """Change the number of traces that the run will have: more were called for, or fewer are enough."""
        self._total += more

    def spend(self, teacher: Teacher, seconds: float) -> None:
        """Add what a server costs by the hour."""
        self._cost += teacher.price.hour * seconds / 3600

    def count(self, teacher: Teacher, record: Mapping[str, Any], *, stands: bool = True) -> None:
        """Count a reply with its tokens; it is a trace of the run only if it `stands`: no further attempt follows."""
        output = output_tokens(record["usage"], record["outcome"])
        if stands:
            self._done += 1
            self._planned += teacher.after is None
            self._outcomes[record["outcome"]] += 1
        self._now = ""
        self._tokens += output or 0
        self._without_usage += output is None
        price = teacher.price
        if price.input or price.output:
            prompt = known_usage(record)["prompt"]
            self._cost += teacher.token_cost(prompt or 0, output or 0)
            self._cost_is_known &= not ((price.output and output is None) or (price.input and prompt is None))
        if time.monotonic() - self._reported >= _REPORT_INTERVAL_S:
            self._report()

    def facts(self, idle_s: float = 0.0) -> dict[str, Any]:
        """Figures of this process in this round so far, for those who watch a run of several processes.

        `planned`: traces that the plan of a run counts, without teachers that have `after`. `idle_s` of its seconds
        do not count.
        """
        return {
            "traces": self._done - self._resumed,
            "planned": self._planned,
            "seconds": round(max(0.0, time.monotonic() - self._started - idle_s), 1),
            "tokens": self._tokens,
            "without_usage": self._without_usage,
            "in_flight": sum(each() for each in self._in_flight),
            "outcomes": dict(self._outcomes),
            "cost": round(self._cost, 4),
        }

    def finish(self, outcomes: Mapping[str, int]) -> None:
        """The last report: what the run ended with."""
        self._outcomes = Counter(outcomes)
        self._done = self._total = self._outcomes.total()
        self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        seconds = max(self._reported - self._started, 1e-9)
        facts: dict[str, str | int | float] = {"now": self._now} if self._now else {}
        if self._done > self._resumed and (self._tokens or not self._without_usage):
            facts["tokens_per_s"] = round(self._tokens / seconds, 1)
        if self._without_usage:
            facts["without_usage"] = self._without_usage
        if in_flight := sum(each() for each in self._in_flight):
            facts["in_flight"] = in_flight
        facts |= {str(outcome): self._outcomes[outcome] for outcome in Outcome if self._outcomes[outcome]}
        if not self._cost_is_known:
            facts["cost"] = f">= {self._cost:.4g}" if self._cost else "not known"
        elif self._cost:
            facts["cost"] = round(self._cost, 4)
        self._on_progress(
            Progress(
                stage="generate",
                done=self._done,
                total=max(self._total, self._done),
                unit="traces",
                facts=facts,
                resumed=min(self._there, self._done),
            )
        )
