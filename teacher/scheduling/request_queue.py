"""The requests of one teacher: from the source when they are needed, and those that follow from finished traces.

Holds the samples under way and a bounded window of those to come, never the whole source. A teacher that comes after
another one waits for each of its samples until the other is done with it; both read the source in step.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef, Sample
from teacher.messages.request import Request, join_choices
from teacher.scheduling.ordering import Lengths, Window
from teacher.scheduling.sampling_policy import SampleState, SamplingPolicy, TeacherPolicy

HELD = 8192
"""Most samples that wait for the teacher before."""


class RequestQueue:
    """The requests of one teacher, in the order in which they are to be sent."""

    def __init__(
        self,
        policy: TeacherPolicy,
        samples: Iterator[Sample],
        upstream: "RequestQueue | None" = None,
        on_done: Callable[[Teacher, Sample, SampleState], None] | None = None,
        *,
        on_found: Callable[[Mapping[str, int]], None] = lambda outcomes: None,
        on_expect: Callable[[int], None] = lambda more: None,
    ) -> None:
        """`upstream` is the queue of the teacher that this one comes after, while that teacher works, too.

        `on_done` gets the state of each sample when the teacher is done with it. `on_found` gets the outcomes of
        wanted traces that exist already and were not asked here; a replaced attempt is none. `on_expect` gets the
        change of the expected number of traces; at first only teachers without `after` have expected traces.
        """
        self.policy = policy
        self._comes_after = policy.teacher.after is not None
        """Whether the traces are expected only as they come, because another teacher decides on them."""
        self._on_done, self._on_found, self._on_expect = on_done, on_found, on_expect
        self._lengths = Lengths()
        self._window = Window(samples, self._lengths)
        self._ready: deque[Request] = deque()
        self._active: dict[str, SamplingPolicy] = {}
        self._asked: set[str] = set()
        self._held: dict[str, Sample] = {}
        self._elsewhere: dict[str, str] = {}
        """Samples that another attempt has drawn, by id, with the attempt."""
        self._left: dict[str, Sample] = {}
        """Samples that another agent has drawn, by id, while it works on them."""
        self._upstream = upstream
        self._dependents: list[RequestQueue] = []
        self._drained = False
        self._closed = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when a request may have become ready, or the last one has been answered."""
        if upstream is not None:
            upstream._dependents.append(self)

    @property
    def finished(self) -> bool:
        """Whether no request will ever come again."""
        return self._drained and not (self._ready or self._active or self._held or self._left)

    @property
    def undrawn(self) -> int:
        """Samples that are read and not drawn; few only at the end of the source."""
        return self._window.count

    def upcoming(self, samples: int) -> Iterator[ImageRef]:
        """Images that come next, of about so many samples."""
        return self._window.upcoming(samples)

    def holds(self, sample: Sample) -> bool:
        """Whether requests about a sample are under way."""
        return sample.id in self._active

    @property
    def under_way(self) -> list[str]:
        """The samples with requests that are not answered, by id."""
        return list(self._active)

    @property
    def waits(self) -> bool:
        """Whether samples are left to another agent."""
        return bool(self._left)

    def leave(self, sample_ids: Iterable[str], attempt: str) -> None:
        """Leave samples to another attempt that has drawn them, but those that are under way here too."""
        self._elsewhere.update(dict.fromkeys(sample_ids, attempt))

    def give_up_on_lost(self, alive: Collection[str], heir: str | None) -> None:
        """Leave to `heir` what was left to attempts that are not `alive`; where it is None, ask it here."""
        lost = [sample_id for sample_id, attempt in self._elsewhere.items() if attempt not in alive]
        if heir is not None:
            return self.leave(lost, heir)
        for sample_id in lost:
            del self._elsewhere[sample_id]
            if sample_id in self._left:
                self._add_sample(self._left.pop(sample_id))
        self.on_change()

    def found(self, record: Mapping[str, Any]) -> None:
        """Take note that the index has a trace that another agent has made."""
        sample_id = record["sample_id"]
        self._asked.discard(record["id"])
        if sample_id in self._active:
            known = self.policy.status_of
            self._ready = deque(each for each in self._ready if not all(known(part.id) for part in each.parts))
            if self._go_on(self._active[sample_id], record["id"]):
                self._on_found({record["outcome"]: 1})
        elif sample_id in self._left:
            self._settle(sample_id)
        self.on_change()

    def _settle(self, sample_id: str) -> None:
        """End a sample that is left to another agent, if that is done with it."""
        sample = self._left[sample_id]
        if self.policy.state_of(sample).done:
            del self._left[sample_id]
            self._add_sample(sample)

    def prepare(self) -> bool:
        """Draw samples until a request is ready; whether one is."""
        while not self._ready:
            if not self._draw():
                return False
        return True

    def take(self) -> Request | None:
        """The next request; None when none is ready now."""
        return self._ready.popleft() if self.prepare() else None

    def done(self, request: Request, record: dict[str, Any]) -> bool:
        """Record that the trace of a request is in the index; returns whether the trace is final (no further attempt
        follows)."""
        usage = record["usage"]
        self._lengths.add(request.sample, usage["reasoning"] + usage["answer"])
        self._asked.discard(request.id)
        stands = self._go_on(self._active[request.sample.id], request.id)
        self.on_change()
        return stands

    def _go_on(self, sample_policy: SamplingPolicy, trace_id: str) -> bool:
        """Queue the requests that follow from a new trace; returns whether the trace is final."""
        self._queue_open(sample_policy, first=False)
        stands = sample_policy.is_last(trace_id)
        self._on_expect(int(stands and self._comes_after))
        return stands

    def close(self) -> None:
        """End this teacher's work in this round, so that no other teacher waits for it."""
        self._closed = True
        for dependent in self._dependents:
            dependent._release()

    def _draw(self) -> bool:
        """Look at the next sample of the source; whether there was one."""
        if len(self._held) >= HELD:
            return False
        sample = self._window.next()
        if sample is None:
            self._drained = True
            return False
        if sample.id in self._elsewhere:
            self._left[sample.id] = sample
            self._settle(sample.id)
        else:
            self._add_sample(sample)
        return True

    def _add_sample(self, sample: Sample) -> None:
        sample_policy = self.policy.sample_policy(sample)
        if sample_policy is not None:
            self._queue_open(sample_policy, first=True)
        elif self._upstream is not None and not self._upstream._closed:
            self._held[sample.id] = sample

    def _queue_open(self, sample_policy: SamplingPolicy, *, first: bool) -> None:
        """Queue the open requests of a sample, or drop the sample when it is done."""
        state, sample = sample_policy.state, sample_policy.sample
        if first and state.finals:
            self._on_found(Counter(final.status.outcome for final in state.finals))
            self._on_expect(len(state.finals) * self._comes_after)
        if state.done:
            self._active.pop(sample.id, None)
            if self._on_done is not None:
                self._on_done(self.policy.teacher, sample, state)
            if not self._comes_after:  # stopped early
                self._on_expect(len(state.finals) - sample_policy.max_traces)
            for dependent in self._dependents:
                dependent._wake(sample.id)
            return
        self._active[sample.id] = sample_policy
        new_requests = [request for request in state.open if request.id not in self._asked]
        self._asked.update(request.id for request in new_requests)
        new_requests = join_choices(new_requests, self.policy.teacher.choices)
        if first:
            self._ready.extend(new_requests)
        else:
            # What follows from a trace goes first: its sample is then soon finished, its image still at hand.
            self._ready.extendleft(reversed(new_requests))

    def _wake(self, sample_id: str) -> None:
        sample = self._held.pop(sample_id, None)
        if sample is not None:
            self._add_sample(sample)
        elif sample_id in self._left:
            self._settle(sample_id)
        self.on_change()

    def _release(self) -> None:
        held, self._held = self._held, {}
        for sample in held.values():
            self._add_sample(sample)
        self.on_change()
