"""Do the teachers agree, with themselves and with each other? Works without a gold answer.

Only traces that gave an answer vote, and none whose teacher was shown the gold answer. Two answers agree when the
answer judge calls them equivalent under the question's type. With a gold answer the share of correct traces is the
question's difficulty.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import pyarrow as pa

from distill.answers import equivalent, infer_type
from distill.recipe import Recipe
from distill.types import Sample, Trace
from filters.answer import judged
from filters.columns import NOT_APPLICABLE, OK, family


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    relative_tolerance: float = 0.0

    name: ClassVar[str] = "agreement"
    version: ClassVar[str] = "5"
    scope: ClassVar[Literal["trace", "sample"]] = "sample"
    columns: ClassVar[pa.Schema] = family(
        "agreement",
        self_consistency=("number", "share of this teacher's answers to the question that agree with this one"),
        teacher_agreement=("number", "share of the other teachers' answers that agree, each teacher counting once"),
        pass_rate=("number", "share of this teacher's traces of the question that are correct"),
        question_pass_rate=("number", "share of all traces of the question that are correct"),
        difficulty=("text", "hard when at most a third of the question's traces are correct, easy from two thirds"),
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
        correct = [self._correct(sample, trace) for trace in traces]
        solved = _share(correct)
        voters = [trace for trace in traces if trace.answer.strip()]
        agree = _agreement(_type(sample), sample.options)
        majority = majority_answer([trace.answer for trace in voters], agree)
        rows: list[dict[str, Any]] = []
        for trace in traces:
            own = [flag for flag, other in zip(correct, traces, strict=True) if other.teacher == trace.teacher]
            row: dict[str, Any] = {
                "pass_rate": _share(own),
                "question_pass_rate": solved,
                "difficulty": _difficulty(solved),
            }
            if trace.answer.strip():
                votes: dict[str, list[bool | None]] = {}
                for other in voters:
                    votes.setdefault(other.teacher, []).append(agree(trace.answer, other.answer))
                mine = votes.pop(trace.teacher)
                others = [
                    share for share in (_share(votes[teacher]) for teacher in sorted(votes)) if share is not None
                ]
                row |= {
                    "agreement_state": OK,
                    "self_consistency": _share(mine) if len(mine) > 1 else None,
                    "teacher_agreement": sum(others) / len(others) if others else None,
                    "majority_answer": majority,
                    "in_majority": None if majority is None else agree(trace.answer, majority),
                }
            else:
                row |= {"agreement_state": NOT_APPLICABLE, "majority_answer": majority}
            rows.append(row)
        return rows

    def _correct(self, sample: Sample, trace: Trace) -> bool | None:
        judgement = judged(sample, trace, self.relative_tolerance)
        return None if judgement is None or judgement.verdict == "undecided" else judgement.verdict == "correct"


def majority_answer(answers: list[str], agree: Callable[[str, str], bool]) -> str | None:
    """The most frequent spelling of the largest group of agreeing answers; None on a tie or without answers."""
    spellings = Counter(answers)
    groups: list[list[str]] = []
    for answer in sorted(spellings):
        joined = [group for group in groups if any(agree(answer, member) for member in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([answer, *(member for group in joined for member in group)])
    sizes = [(sum(spellings[member] for member in group), group) for group in groups]
    largest = max((size for size, _ in sizes), default=0)
    winners = [group for size, group in sizes if size == largest]
    if len(winners) != 1:
        return None
    return min(winners[0], key=lambda member: (-spellings[member], member))


def _share(flags: list[bool | None]) -> float | None:
    """Share of True among the decided; None when nothing is decided."""
    decided = [flag for flag in flags if flag is not None]
    return sum(decided) / len(decided) if decided else None


def _difficulty(solved: float | None) -> str | None:
    if solved is None:
        return None
    return "hard" if solved <= 1 / 3 else "easy" if solved >= 2 / 3 else "medium"


def _type(sample: Sample) -> str | None:
    if sample.options and not sample.answer_type:
        return None
    return sample.answer_type or (infer_type(sample.answers[0]) if sample.answers else None)


def _agreement(answer_type: str | None, options: tuple[str, ...]) -> Callable[[str, str], bool]:
    # Ordered by text, so that the result cannot depend on which trace came first.
    return lambda one, other: one == other or _equivalent(min(one, other), max(one, other), answer_type, options)


@lru_cache(maxsize=1 << 15)
def _equivalent(first: str, second: str, answer_type: str | None, options: tuple[str, ...]) -> bool:
    return equivalent(first, second, answer_type or (None if options else infer_type(first)), options=options)
