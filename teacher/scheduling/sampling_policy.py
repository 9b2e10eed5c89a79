"""Decides from the finished traces which requests one teacher still needs for one sample.

It covers adaptive sampling, the attempts that follow a bad outcome, escalation and chained teachers. Everything is a
pure function of the recipe, the sample and the finished traces, so a resumed run sends exactly the requests that an
uninterrupted run would have sent. Sends and writes nothing itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from distill.recipe.sections.generate import Outcomes
from distill.recipe.sections.teachers import Teacher
from distill.types import Outcome, Sample
from teacher.messages.request import Author, Request
from teacher.scheduling.routing import route


@dataclass(slots=True, kw_only=True)
class TraceStatus:
    """A finished trace: its outcome at hand, the rest of its record read only when a policy needs it."""

    outcome: str
    record: Callable[[], Mapping[str, Any]]

    @property
    def answer(self) -> str:
        return str(self.record()["answer"])


StatusLookup = Callable[[str], TraceStatus | None]
"""The finished trace with an id, if there is one."""


@dataclass(slots=True, kw_only=True)
class FinalAttempt:
    """The last attempt at one k, and whether later stages see it."""

    request: Request
    status: TraceStatus
    dropped: bool
    replaced: Sequence[Request]
    """The attempts before it."""

    @property
    def complete(self) -> bool:
        return self.status.outcome == Outcome.COMPLETE


@dataclass(slots=True, kw_only=True)
class SampleState:
    """One teacher's work on one sample. Done when no request is pending and no upstream teacher is unfinished."""

    open: Sequence[Request] = ()
    finals: Sequence[FinalAttempt] = ()
    waiting: bool = False
    """Whether another teacher has to finish first."""

    @property
    def done(self) -> bool:
        return not self.open and not self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The recipe's settings that the policies share."""

    teachers: Sequence[Teacher]
    outcomes: Outcomes
    relative_tolerance: float


class TeacherPolicy:
    """One teacher of a run with the teacher it comes after, and where their finished traces are looked up."""

    def __init__(self, author: Author, rules: Rules, status_of: StatusLookup, after: "TeacherPolicy | None") -> None:
        self.author = author
        self.teacher = author.teacher
        self.rules = rules
        self.status_of = status_of
        self._after = after

    def sample_policy(self, sample: Sample) -> "SamplingPolicy | None":
        """This teacher's policy for a sample; None while another teacher has to finish first."""
        if self.teacher not in route(self.rules.teachers, sample):
            return SamplingPolicy(self, sample, ())
        if self._after is None:
            return SamplingPolicy(self, sample, _independent_slots(self.teacher.samples))
        before = self._after.state_of(sample)
        return SamplingPolicy(self, sample, self._slots(sample, before.finals)) if before.done else None

    def state_of(self, sample: Sample) -> SampleState:
        sample_policy = self.sample_policy(sample)
        return SampleState(waiting=True) if sample_policy is None else sample_policy.state

    def _slots(self, sample: Sample, before: Sequence[FinalAttempt]) -> "Sequence[_Slot]":
        """The traces that follow from the traces of the teacher before."""
        match self.teacher.when:
            case "unsure" if not is_unsure(sample, before, self.teacher.sure_share, self.rules):
                return ()
            case "failed" if any(final.complete for final in before):
                return ()
        if not self.teacher.chained:
            return _independent_slots(self.teacher.samples)
        drafts = [final for final in before if final.complete and not final.dropped]
        return [
            _Slot(k=final.request.k * self.teacher.samples + copy, draft=final)
            for final in drafts
            for copy in range(self.teacher.samples)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    """A place for one trace: its k, and the draft it works on."""

    k: int
    draft: FinalAttempt | None = None


@lru_cache(maxsize=1024)  # all samples of a teacher have the same
def _independent_slots(traces: int) -> Sequence[_Slot]:
    return tuple(_Slot(k=k) for k in range(traces))


class SamplingPolicy:
    """One teacher's work on one sample. Each request is made once and kept."""

    def __init__(self, policy: TeacherPolicy, sample: Sample, slots: Sequence[_Slot]) -> None:
        self.sample = sample
        self._policy = policy
        self._slots = slots
        self._attempts: dict[int, list[Request]] = {}

    @property
    def state(self) -> SampleState:
        """The pending requests and the final attempts, by the traces that are finished now."""
        until = self._policy.teacher.until
        if until is None:
            return self._state_of_slots(self._slots)
        finals: list[FinalAttempt] = []
        position = 0
        while position < len(self._slots) and (lacking := self._lacking(finals)):
            batch = self._slots[position : position + (until.at_once or lacking)]
            state = self._state_of_slots(batch)
            finals += state.finals
            if state.open:
                return SampleState(open=state.open, finals=finals)
            position += len(batch)
        return SampleState(finals=finals)

    @property
    def attempts(self) -> list[Request]:
        """Every request that was made so far."""
        return [request for attempts in self._attempts.values() for request in attempts]

    def is_last(self, trace_id: str) -> bool:
        """Whether a trace is of the last attempt at its place that was made so far."""
        return any(attempts[-1].id == trace_id for attempts in self._attempts.values())

    @property
    def max_traces(self) -> int:
        """The largest number of traces, without repeated attempts."""
        return len(self._slots)

    def _state_of_slots(self, slots: Sequence[_Slot]) -> SampleState:
        opened: list[Request] = []
        finals: list[FinalAttempt] = []
        for slot in slots:
            last = self._open_or_final(slot)
            if isinstance(last, FinalAttempt):
                finals.append(last)
            else:
                opened.append(last)
        return SampleState(open=opened, finals=finals)

    def _open_or_final(self, slot: _Slot) -> Request | FinalAttempt:
        """The next attempt at a slot, or the final one."""
        author, outcomes, status_of = self._policy.author, self._policy.rules.outcomes, self._policy.status_of
        attempts = self._attempts.get(slot.k)
        if attempts is None:
            attempts = self._attempts[slot.k] = [self._first(slot)]
        while (status := status_of(attempts[-1].id)) is not None:
            # Complete traces have no policy and stay; errors are asked again by the next run.
            policy = str(vars(outcomes).get(status.outcome, "keep"))
            following = None if policy == "keep" else next_attempt(author, outcomes, attempts[-1], policy)
            if following is None:
                *replaced, last = attempts
                return FinalAttempt(request=last, status=status, dropped=policy == "drop", replaced=replaced)
            attempts.append(following)
        return attempts[-1]

    def _first(self, slot: _Slot) -> Request:
        author = self._policy.author
        if slot.draft is None:
            return author.first_attempt(self.sample, slot.k)
        text = draft_text(slot.draft.status.record())
        return author.first_attempt(self.sample, slot.k, draft=slot.draft.request.id, draft_text=text)

    def _lacking(self, finals: Sequence[FinalAttempt]) -> int:
        """How many more good traces would be enough; 0 when there are enough."""
        until = self._policy.teacher.until
        assert until is not None
        answers = (final.status.answer for final in finals if final.complete)
        if self.sample.answer is not None and until.correct is not None:
            good = sum(verdict(self.sample, answer, self._policy.rules) == "correct" for answer in answers)
            return max(0, until.correct - good)
        if self.sample.answer is None and until.agree is not None:
            return max(0, until.agree - len(common_answers(answers, self.sample.answer_type, self.sample.options)))
        return len(self._slots)


def draft_text(record: Mapping[str, Any]) -> str:
    """What a prompt shows of a finished trace."""
    return "\n\n".join(part for part in (record["reasoning"], record["answer"]) if part)


def next_attempt(author: Author, outcomes: Outcomes, request: Request, policy: str) -> Request | None:
    """The attempt after one whose outcome has this policy; None when it was the last. Never the same request."""
    sampling = request.sampling
    if request.attempt + 1 >= outcomes.attempts:
        return None
    match policy:
        case "resample" if sampling.temperature > 0:
            return author.next_attempt(request, sampling, reseed=True)
        case "raise_cap":
            cap = round(sampling.max_tokens * outcomes.cap_factor)
            return author.next_attempt(request, sampling.model_copy(update={"max_tokens": cap}), reseed=False)
        case "budget":
            budget = max(1, round(sampling.max_tokens * outcomes.budget_share ** (request.attempt + 1)))
            if budget < (sampling.thinking_budget or budget + 1):
                less = sampling.model_copy(update={"thinking_budget": budget})
                return author.next_attempt(request, less, reseed=False)
    return None


def is_unsure(sample: Sample, finals: Sequence[FinalAttempt], sure_share: float, rules: Rules) -> bool:
    """Whether traces leave a sample open: none complete, too little agreement, or the common answer wrong."""
    answers = [final.status.answer for final in finals if final.complete]
    common = common_answers(answers, sample.answer_type, sample.options)
    if not common or len(common) < sure_share * len(finals):
        return True
    return sample.answer is not None and verdict(sample, common[0], rules) == "wrong"


def verdict(sample: Sample, answer: str, rules: Rules) -> str:
    """The judge's verdict on an answer, with the tolerance that the filter will use."""
    from distill.answers.verdicts import judge

    return judge(
        answer,
        sample.answers,
        sample.answer_type,
        relative_tolerance=rules.relative_tolerance,
        options=sample.options,
        question=sample.question,
    ).verdict


def common_answers(answers: Iterable[str], answer_type: str | None, options: Sequence[str] = ()) -> Sequence[str]:
    """The answers of the largest group that mean the same; of equally large groups the first."""
    from distill.answers.verdicts import equivalent

    groups: list[list[str]] = []
    for answer in answers:
        for group in groups:
            if equivalent(group[0], answer, answer_type, options=options):
                group.append(answer)
                break
        else:
            groups.append([answer])
    return max(groups, key=len, default=[])
