"""Estimates the rest of a run from its traces: tokens, disk, time, cost.

It takes the mean over the finished samples, by teacher and domain, with a 95 % interval; for a teacher without
finished samples, the maximum that its settings allow. The values are sums per sample, so they include adaptive
sampling, further attempts and escalation. The interval covers chance only: samples that were asked first because they
were expected to take long, or a server that will be busier, are outside it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from distill.artifacts.journal import read_jsonl
from distill.recipe.recipe import Recipe
from distill.recipe.sections.generate import Outcomes
from distill.recipe.sections.teachers import Teacher
from distill.trace_records.token_counts import output_tokens
from distill.trace_records.trace_lines import trace_fault
from distill.types import Outcome, Sample
from teacher.scheduling.concurrent_teachers import group_teachers
from teacher.scheduling.sampling_policy import TeacherPolicy
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import trace_parts

_RECORD_BYTES = 1600
"""A record without its texts, roughly."""
_TOKEN_BYTES = 9
"""Bytes of a record for each generated token, roughly: 4.5 characters, stored as raw and as parsed text."""
_LOGPROB_BYTES = 5
"""Bytes of one entry of the log-probabilities, roughly, compressed and as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """An expected number and the bounds of its interval."""

    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def times(self, factor: float) -> "Amount":
        return Amount(mean=self.mean * factor, low=self.low * factor, high=self.high * factor)

    def plus(self, other: "Amount") -> "Amount":
        return Amount(mean=self.mean + other.mean, low=self.low + other.low, high=self.high + other.high)


@dataclass(slots=True)
class Moments:
    """Number, sum and sum of squares of a quantity."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value * value

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def variance(self) -> float:
        """Unbiased estimate of the variance; 0 for fewer than two values."""
        if self.count < 2:
            return 0.0
        return max(0.0, (self.squares - self.total**2 / self.count) / (self.count - 1))


QUANTITIES = ("traces", "prompt", "output")


@dataclass(slots=True, kw_only=True)
class TeacherUsage:
    """Cost of one teacher's finished samples, and the samples that are left."""

    journals: "JournalSummary"
    left: Counter[str] = field(default_factory=Counter)
    """Samples by domain that are not done."""
    done: int = 0
    there: int = 0
    """Traces, those of samples that are not done included."""
    moments: dict[str, dict[str, Moments]] = field(default_factory=lambda: {name: {} for name in QUANTITIES})
    """Moments over the finished samples, by quantity and domain."""

    def add(self, domain: str, traces: int, prompt: int | None, output: int | None) -> None:
        """Count a finished sample; None means "not known"."""
        self.done += 1
        for name, value in zip(QUANTITIES, (traces, prompt, output), strict=True):
            if value is not None:
                self.moments[name].setdefault(domain, Moments()).add(value)

    def expected(self, quantity: str) -> Amount | None:
        """Estimated cost of the samples left, by the finished ones of which it is known; None without any."""
        if not self.left.total():
            return Amount()
        return extrapolate(self.moments[quantity], self.left) if self.moments[quantity] else None


def extrapolate(seen: Mapping[str, Moments], left: Mapping[str, int]) -> Amount:
    """The sum of a quantity over the samples that are left, with its 95 % interval.

    A domain with fewer than two finished samples gets the mean of all domains.
    """
    pooled = Moments()
    for moments in seen.values():
        pooled.count += moments.count
        pooled.total += moments.total
        pooled.squares += moments.squares
    mean = variance = 0.0
    pooled_samples = 0
    for domain, count in left.items():
        moments = seen.get(domain, pooled)
        if moments.count < 2:
            pooled_samples += count
            continue
        mean += count * moments.mean
        variance += moments.variance * (count**2 / moments.count + count)
    # The domains share one mean, so its error counts for all of them together.
    mean += pooled_samples * pooled.mean
    variance += pooled.variance * (pooled_samples**2 / pooled.count + pooled_samples)
    half_width = _quantile(pooled.count - 1) * math.sqrt(variance)
    if pooled.count < 2 and any(left.values()):
        return Amount(mean=mean, low=0.0, high=math.inf)
    return Amount(mean=mean, low=max(0.0, mean - half_width), high=mean + half_width)


def _quantile(freedom: int) -> float:
    """Student's 97.5 % quantile."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1), 0.975))


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSummary:
    """Totals of a teacher's journals."""

    samples: frozenset[str]
    records: int
    bytes: int
    tokens_per_s: float
    """Output tokens in a second in which any request was under way; 0 without a measurement."""


def summarize_journals(folder: Path) -> JournalSummary:
    """Read a teacher's journals once."""
    samples: set[str] = set()
    spans: list[tuple[float, float]] = []
    records = tokens = 0
    # Lines that are no traces will be asked again.
    parts = (read_jsonl(part, check=trace_fault, on_damage=lambda _: None) for part in trace_parts(folder))
    for record in chain.from_iterable(parts):
        if record["outcome"] == Outcome.ERROR:
            continue
        samples.add(record["sample_id"])
        records += 1
        count = output_tokens(record["usage"], record["outcome"])
        if count is None:
            continue
        tokens += count
        ended = datetime.fromisoformat(record["created"]).timestamp()
        spans.append((ended - record["latency_s"], ended))
    busy_s = sum(end - start for start, end in _merge_spans(spans))
    return JournalSummary(
        samples=frozenset(samples),
        records=records,
        bytes=sum(part.stat().st_size for part in trace_parts(folder)),
        tokens_per_s=tokens / busy_s if busy_s else 0.0,
    )


def _merge_spans(spans: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The time in which at least one span was open."""
    open_from = open_to = -math.inf
    for start, end in sorted(spans):
        if start > open_to:
            if open_to > open_from:
                yield open_from, open_to
            open_from, open_to = start, end
        open_to = max(open_to, end)
    if open_to > open_from:
        yield open_from, open_to


def sample_usage(
    policy: TeacherPolicy, index: TraceIndex, sample: Sample
) -> tuple[int, int | None, int | None] | None:
    """Traces, prompt tokens and output tokens that a sample took of a teacher; None while it is not done.

    Tokens are None if the server did not report the tokens of a reply.
    """
    state = policy.state_of(sample)
    if not state.done:
        return None
    attempts = [request for final in state.finals for request in (*final.replaced, final.request)]
    entries = [entry for request in attempts if (entry := index.entry(request.id))]
    prompt = sum(entry.usage["prompt"] for entry in entries)
    outputs = [output_tokens(entry.usage, entry.outcome) for entry in entries]
    output = None if None in outputs else sum(filter(None, outputs))
    return len(entries), (prompt if prompt or not entries else None), output


def traces_there(policy: TeacherPolicy, index: TraceIndex, sample: Sample) -> int:
    """Replies of a teacher to a sample that the plan wants, those included that later attempts replaced."""
    sample_policy = policy.sample_policy(sample)
    if sample_policy is None:
        return 0
    _ = sample_policy.state  # which makes every attempt that follows from the traces
    return sum(request.id in index for request in sample_policy.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Remaining work of one teacher. An infinite time is unknown."""

    measured: bool
    """Whether it is a mean of traces, or the most that the settings allow."""
    traces: Amount
    prompt: Amount | None
    """None where it is unknown."""
    output: Amount | None
    disk: Amount
    seconds: Amount | None
    cost: Amount | None


def forecast(recipe: Recipe, teacher: Teacher, usage: TeacherUsage) -> Forecast:
    """Estimated cost of the samples that a teacher has left."""
    if not usage.done:
        return _upper_bound(recipe, teacher, sum(usage.left.values()))
    journals = usage.journals
    output, prompt = usage.expected("output"), usage.expected("prompt")
    traces = extrapolate(usage.moments["traces"], usage.left)
    seconds = None if usage.left else Amount()
    if output and journals.tokens_per_s:
        seconds = output.times(1 / journals.tokens_per_s)
    return Forecast(
        measured=True,
        traces=traces,
        prompt=prompt,
        output=output,
        disk=traces.times(journals.bytes / journals.records if journals.records else 0.0),
        seconds=seconds,
        cost=_cost(teacher, prompt, output, seconds),
    )


def _upper_bound(recipe: Recipe, teacher: Teacher, samples: int) -> Forecast:
    """The maximum for a teacher: every trace and every attempt up to its cap."""
    first = samples * recipe.most_traces(teacher)
    attempts, share = attempt_growth(recipe.generate.outcomes)
    traces = first * attempts
    tokens = first * teacher.sampling.max_tokens * share
    entry_bytes = _TOKEN_BYTES + (_LOGPROB_BYTES * (1 + teacher.logprobs) if teacher.logprobs else 0)
    output = Amount(high=tokens)
    price = teacher.price
    return Forecast(
        measured=False,
        traces=Amount(high=traces),
        prompt=None,
        output=output,
        disk=Amount(high=traces * _RECORD_BYTES + tokens * entry_bytes),
        seconds=None,
        # The requests and the hours of a server are not known, so a cost by tokens or hours is not known either.
        cost=output.times(teacher.token_cost(0, 1)) if price.output and not (price.input or price.hour) else None,
    )


def attempt_growth(outcomes: Outcomes) -> tuple[int, float]:
    """Most attempts at one trace, and most tokens of all of them in terms of the first one's cap."""
    policies = outcomes.policies & {"resample", "raise_cap", "budget"}
    if not policies:
        return 1, 1.0
    factor = outcomes.cap_factor if "raise_cap" in policies else 1.0
    return outcomes.attempts, sum(factor**attempt for attempt in range(outcomes.attempts))


def _cost(teacher: Teacher, prompt: Amount | None, output: Amount | None, seconds: Amount | None) -> Amount | None:
    price = teacher.price
    paid = (
        (price.input, prompt, teacher.token_cost(1, 0)),
        (price.output, output, teacher.token_cost(0, 1)),
        (price.hour, seconds, price.hour / 3600),
    )
    priced = [(amount, one) for has_price, amount, one in paid if has_price]
    cost = Amount()
    for amount, one in priced:
        if amount is None:
            return None
        cost = cost.plus(amount.times(one))
    return cost if priced else None


def total_time(recipe: Recipe, forecasts: Mapping[str, Forecast]) -> Amount | None:
    """The time of all teachers: the teachers of a round work at the same time, and rounds follow one another."""
    total = Amount()
    for group in group_teachers(recipe.teachers):
        times: list[Any] = [forecasts[teacher.name].seconds for teacher in group]
        if not all(times):
            return None
        total = total.plus(
            Amount(
                mean=max(each.mean for each in times),
                low=max(each.low for each in times),
                high=max(each.high for each in times),
            )
        )
    return total
