"""Do the teachers agree, with themselves and with each other? Works without a gold answer.

Only traces that gave an answer vote, and none whose teacher was shown the gold answer. Two answers agree when the
answer judge calls them equivalent under the question's type. With a gold answer the share of correct traces is the
question's difficulty.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.recipe.recipe import Recipe
from distill.types import Outcome, Sample, Trace
from filters.signals.base import NOT_APPLICABLE, OK, family
from filters.signals.families.answer import judge_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    relative_tolerance: float

    name: ClassVar[str] = "agreement"
    version: ClassVar[str] = "33"
    scope: ClassVar[Literal["trace", "sample"]] = "sample"
    columns: ClassVar[pa.Schema] = family(
        "agreement",
        self_consistency=(
            "number",
            "share of this teacher's answers to the question, this one included, that agree with this one",
        ),
        teacher_agreement=("number", "share of the other teachers' answers that agree, each teacher counting once"),
        pass_rate=(
            "number",
            "share of this teacher's traces of the question that are correct; undecided ones do not count",
        ),
        question_pass_rate=(
            "number",
            "share of all traces of the question that are correct; undecided ones do not count",
        ),
        difficulty=("text", "by question_pass_rate: hard up to a third, easy from two thirds"),
        majority_answer=("text", "the answer that more traces gave than any other; empty on a tie"),
        in_majority=("flag", "this trace gave the majority answer"),
    )

    @classmethod
    def from_recipe(cls, recipe: Recipe) -> "Agreement":
        return cls(relative_tolerance=recipe.filter.answer.relative_tolerance)

    def measure(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        rows = iter(self._unhinted(sample, [trace for trace in traces if not trace.hinted]))
        return [{"agreement_state": NOT_APPLICABLE} if trace.hinted else next(rows) for trace in traces]

    def _unhinted(self, sample: Sample, traces: list[Trace]) -> list[dict[str, Any]]:
        correct: dict[str, list[bool | None]] = {}
        answers: dict[str, list[str]] = {}
        for trace in traces:
            correct.setdefault(trace.teacher, []).append(self._correct(sample, trace))
            if trace.answer.strip():
                answers.setdefault(trace.teacher, []).append(trace.answer)
        pass_rate = _share(list(chain.from_iterable(correct.values())))
        pass_rates = {teacher: _share(flags) for teacher, flags in correct.items()}
        shared = {"question_pass_rate": pass_rate, "difficulty": _difficulty(pass_rate)}
        agree = _answer_comparison(_answer_type(sample), sample.options)
        majority = majority_answer(list(chain.from_iterable(answers.values())), agree)

        # What a teacher says twice is judged once.
        @cache
        def row(teacher: str, answer: str) -> dict[str, Any]:
            row_values = shared | {"pass_rate": pass_rates[teacher], "majority_answer": majority}
            if not answer.strip():
                return row_values | {"agreement_state": NOT_APPLICABLE}
            shares = {
                teacher_name: sum(agree(answer, reply) for reply in answers[teacher_name])
                / len(answers[teacher_name])
                for teacher_name in sorted(answers)
            }
            own_share = shares.pop(teacher)
            return row_values | {
                "agreement_state": OK,
                "self_consistency": own_share if len(answers[teacher]) > 1 else None,
                "teacher_agreement": sum(shares.values()) / len(shares) if shares else None,
                "in_majority": None if majority is None else agree(answer, majority),
            }

        return [dict(row(trace.teacher, trace.answer)) for trace in traces]

    def _correct(self, sample: Sample, trace: Trace) -> bool | None:
        if trace.outcome == Outcome.ERROR:
            return None  # a server failed, and no teacher was wrong
        judgement = judge_trace(sample, trace, self.relative_tolerance)
        return None if judgement is None or judgement.verdict == "undecided" else judgement.verdict == "correct"


def majority_answer(answers: list[str], agree: Callable[[str, str], bool]) -> str | None:
    """The most frequent spelling of the answer that most others agree with; None on a tie or without answers.

    "3" agrees with "3 cm" and with "3 m", which differ: it counts for both of them, and they do not count together.
    """
    spellings = Counter(answers)
    if len(spellings) == 1:
        return answers[0]
    groups: list[list[str]] = []
    for answer in sorted(spellings):
        joined = [group for group in groups if any(agree(answer, member) for member in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([answer, *(member for group in joined for member in group)])

    def support(answer: str) -> int:
        return sum(count for other, count in spellings.items() if agree(answer, other))

    leaders = [min(group, key=lambda member: (-spellings[member], member)) for group in groups]
    leader = max(leaders, key=support, default=None)
    if leader is None:
        return None
    most = support(leader)
    contested = any(support(answer) >= most and not agree(leader, answer) for answer in spellings)
    return None if contested else leader


def _share(flags: list[bool | None]) -> float | None:
    """Share of True among the decided; None when nothing is decided."""
    decided = [flag for flag in flags if flag is not None]
    return sum(decided) / len(decided) if decided else None


def _difficulty(pass_rate: float | None) -> str | None:
    if pass_rate is None:
        return None
    return "hard" if pass_rate <= 1 / 3 else "easy" if pass_rate >= 2 / 3 else "medium"


def _answer_type(sample: Sample) -> str | None:
    from distill.answers.answer_types import infer_type

    if sample.options and not sample.answer_type:
        return None
    return sample.answer_type or (infer_type(sample.answers[0]) if sample.answers else None)


def _answer_comparison(answer_type: str | None, options: tuple[str, ...]) -> Callable[[str, str], bool]:
    # Ordered by text, so that the result cannot depend on which trace came first.
    return lambda left, right: left == right or _equivalent(min(left, right), max(left, right), answer_type, options)


@lru_cache(maxsize=1 << 15)
def _equivalent(first: str, second: str, answer_type: str | None, options: tuple[str, ...]) -> bool:
    from distill.answers.answer_types import infer_type
    from distill.answers.verdicts import equivalent

    return equivalent(first, second, answer_type or (None if options else infer_type(first)), options=options)
