"""What is still wanted of one teacher for one sample, given what has been finished: the policies of `generate`.

Here live adaptive sampling, the attempts that follow a bad outcome, escalation and chained teachers. Everything is a
pure function of the recipe, the sample and the finished traces, so a run that was killed wants exactly what an
uninterrupted one would have wanted. Asks nobody and writes nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distill.answers.verdicts import equivalent, judge
from distill.recipe.generate import Outcomes
from distill.recipe.teachers import Sampling, Teacher
from distill.types import Outcome, Sample
from teacher.messages.request import Author, Request
from teacher.scheduling.routing import route


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatus:
    """A finished trace: its outcome at hand, the rest of its record read only when a policy needs it."""

    outcome: str
    record: Callable[[], Mapping[str, Any]]

    @property
    def answer(self) -> str:
        return str(self.record()["answer"])


Found = Callable[[str], TraceStatus | None]
"""The finished trace with an id, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The last attempt at one k, and whether later stages see it."""

    request: Request
    finding: TraceStatus
    dropped: bool = False
    replaced: Sequence[Request] = ()
    """The attempts before it."""

    @property
    def complete(self) -> bool:
        return self.finding.outcome == Outcome.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleState:
    """The state of one teacher's work on one sample. Settled when nothing is open and nobody is waited for."""

    open: Sequence[Request] = ()
    finals: Sequence[Final] = ()
    waiting: bool = False
    """Whether another teacher has to finish first."""

    @property
    def settled(self) -> bool:
        return not self.open and not self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The recipe's settings that the policies share."""

    teachers: Sequence[Teacher]
    outcomes: Outcomes
    relative_tolerance: float


class TeacherPolicy:
    """One teacher of a run with the teacher it comes after, and where their finished traces are looked up."""

    def __init__(self, author: Author, rules: Rules, found: Found, after: "TeacherPolicy | None") -> None:
        self.author = author
        self.teacher = author.teacher
        self._rules = rules
        self.found = found
        self._after = after

    def agenda(self, sample: Sample) -> "SamplingPolicy | None":
        """What this teacher is to do about a sample; None while another teacher has to finish first."""
        if self.teacher not in route(self._rules.teachers, sample):
            return SamplingPolicy(self.author, self._rules, sample, ())
        if self._after is None:
            return SamplingPolicy(self.author, self._rules, sample, _plain(self.teacher))
        before = self._after.look(sample)
        if not before.settled:
            return None
        return SamplingPolicy(self.author, self._rules, sample, self._slots(sample, before.finals))

    def look(self, sample: Sample) -> SampleState:
        agenda = self.agenda(sample)
        return SampleState(waiting=True) if agenda is None else agenda.look(self.found)

    def _slots(self, sample: Sample, before: Sequence[Final]) -> "Sequence[_Slot]":
        """The traces that follow from those of the teacher before."""
        match self.teacher.when:
            case "unsure" if not unsure(sample, before, self.teacher.sure_share, self._rules):
                return ()
            case "failed" if any(final.complete for final in before):
                return ()
        if not self.teacher.chained:
            return _plain(self.teacher)
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
    draft: Final | None = None


def _plain(teacher: Teacher) -> Sequence[_Slot]:
    return [_Slot(k=k) for k in range(teacher.samples)]


class SamplingPolicy:
    """One teacher's work on one sample. Requests are worked out once and remembered."""

    def __init__(self, author: Author, rules: Rules, sample: Sample, slots: Sequence[_Slot]) -> None:
        self.sample = sample
        self._author = author
        self._rules = rules
        self._slots = slots
        self._attempts: dict[int, list[Request]] = {}

    def look(self, found: Found) -> SampleState:
        """What is open and what is final, with these traces finished."""
        until = self._author.teacher.until
        if until is None:
            return self._look(self._slots, found)
        finals: list[Final] = []
        position = 0
        while position < len(self._slots) and (lacking := self._lacking(finals)):
            batch = self._slots[position : position + (until.at_once or lacking)]
            look = self._look(batch, found)
            finals += look.finals
            if look.open:
                return SampleState(open=look.open, finals=finals)
            position += len(batch)
        return SampleState(finals=finals)

    @property
    def most(self) -> int:
        """Traces that may be wanted at most, repeated attempts aside."""
        return len(self._slots)

    def _look(self, slots: Sequence[_Slot], found: Found) -> SampleState:
        opened: list[Request] = []
        finals: list[Final] = []
        for slot in slots:
            last = self._last(slot, found)
            if isinstance(last, Final):
                finals.append(last)
            else:
                opened.append(last)
        return SampleState(open=opened, finals=finals)

    def _last(self, slot: _Slot, found: Found) -> Request | Final:
        """The attempt at a slot that is to be made, or the final one."""
        outcomes = self._rules.outcomes
        attempts = self._attempts.get(slot.k)
        if attempts is None:
            attempts = self._attempts[slot.k] = [self._first(slot)]
        while (finding := found(attempts[-1].id)) is not None:
            following = follow(self._author, outcomes, attempts[-1], finding.outcome)
            if following is None:
                *replaced, last = attempts
                dropped = _policy(outcomes, finding.outcome) == "drop"
                return Final(request=last, finding=finding, dropped=dropped, replaced=replaced)
            attempts.append(following)
        return attempts[-1]

    def _first(self, slot: _Slot) -> Request:
        if slot.draft is None:
            return self._author.first(self.sample, slot.k)
        text = draft_text(slot.draft.finding.record())
        return self._author.first(self.sample, slot.k, draft=slot.draft.request.id, draft_text=text)

    def _lacking(self, finals: Sequence[Final]) -> int:
        """How many more good traces would be enough; 0 when there are enough."""
        until = self._author.teacher.until
        assert until is not None
        complete = [final for final in finals if final.complete]
        if self.sample.answer is not None and until.correct is not None:
            good = sum(verdict(self.sample, final.finding.answer, self._rules) == "correct" for final in complete)
            return max(0, until.correct - good)
        if self.sample.answer is None and until.agree is not None:
            answers = [final.finding.answer for final in complete]
            return max(0, until.agree - len(common_answers(answers, self.sample.answer_type, self.sample.options)))
        return len(self._slots)


def draft_text(record: Mapping[str, Any]) -> str:
    """What a prompt shows of a finished trace."""
    return "\n\n".join(part for part in (record["reasoning"], record["answer"]) if part)


def follow(author: Author, outcomes: Outcomes, request: Request, outcome: str) -> Request | None:
    """The attempt that follows one that ended so; None when that was the last. Never the same request again."""
    sampling = request.sampling
    if request.attempt + 1 >= outcomes.attempts:
        return None
    match _policy(outcomes, outcome):
        case "resample" if sampling.temperature > 0:
            return author.again(request, sampling, reseed=True)
        case "raise_cap":
            cap = round(sampling.max_tokens * outcomes.cap_factor)
            return author.again(request, _changed(sampling, max_tokens=cap), reseed=False)
        case "budget":
            budget = max(1, round(sampling.max_tokens * outcomes.budget_share ** (request.attempt + 1)))
            if budget < (sampling.thinking_budget or budget + 1):
                return author.again(request, _changed(sampling, thinking_budget=budget), reseed=False)
    return None


def _changed(sampling: Sampling, **values: int) -> Sampling:
    return sampling.model_copy(update=values)


def _policy(outcomes: Outcomes, outcome: str) -> str:
    """What the recipe says about an outcome. Complete traces stay; errors are asked again by the next run."""
    return str(getattr(outcomes, outcome, "keep"))


def unsure(sample: Sample, finals: Sequence[Final], sure_share: float, rules: Rules) -> bool:
    """Whether traces leave a sample open: none complete, too little agreement, or the common answer wrong."""
    answers = [final.finding.answer for final in finals if final.complete]
    common = common_answers(answers, sample.answer_type, sample.options)
    if not common or len(common) < sure_share * len(finals):
        return True
    return sample.answer is not None and verdict(sample, common[0], rules) == "wrong"


def verdict(sample: Sample, answer: str, rules: Rules) -> str:
    """The judge's verdict on an answer, with the tolerance that the filter will use."""
    return judge(
        answer,
        sample.answers,
        sample.answer_type,
        relative_tolerance=rules.relative_tolerance,
        options=sample.options or None,
    ).verdict


def common_answers(answers: Iterable[str], answer_type: str | None, options: Sequence[str] = ()) -> Sequence[str]:
    """The answers of the largest group that mean the same; of equally large groups the first."""
    groups: list[list[str]] = []
    for answer in answers:
        for group in groups:
            if equivalent(group[0], answer, answer_type, options=options):
                group.append(answer)
                break
        else:
            groups.append([answer])
    return max(groups, key=len, default=[])
