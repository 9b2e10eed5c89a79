"""Faults of most gold answers of a source: of another type than their rows state, or named by their questions."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from distill.reports.findings import is_above, share
from distill.types import Sample

MOST: Final = 0.5
"""Above this share it is the type that is wrong, and not an answer of an odd form."""
TOLD: Final = 0.8
"""Above this share of questions name their answer; "Is the tree or the house taller?" does so rightly."""


def stated_types(samples: Iterable[Sample]) -> Iterator[tuple[str, str]]:
    """The first gold answer of each sample that states an answer type, with this type."""
    return ((each.answers[0], each.answer_type) for each in samples if each.answers and each.answer_type)


def wrongly_typed(golds: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A sentence for each type that most of its gold answers do not look like."""
    from distill.answers.answer_types import looks_like  # the judge's number words take 0.2 s to load

    answers_of: dict[str, list[str]] = {}
    for gold, answer_type in golds:
        answers_of.setdefault(answer_type, []).append(gold)
    for answer_type, answers in answers_of.items():
        unlike = [answer for answer in answers if not looks_like(answer, answer_type)]
        if is_above(len(unlike), len(answers), MOST):
            yield (
                f"{share(len(unlike), len(answers), f'gold answers of the type {answer_type!r}')} do not look like "
                f"one, such as {unlike[0][:80]!r}"
            )


def find(samples: Collection[Sample]) -> tuple[tuple[str, ...], str]:
    """What `wrongly_typed` and `told_answers` find."""
    return tuple(wrongly_typed(stated_types(samples))), told_answers(samples)


def told_answers(samples: Iterable[Sample]) -> str:
    """A sentence where nearly all questions name their gold answer; empty otherwise. Options may name it."""
    asked = [each for each in samples if each.answers and not each.options]
    told = [each for each in asked if _names(each.question, each.answers[0])]
    if not is_above(len(told), len(asked), TOLD):
        return ""
    return (
        f"{share(len(told), len(asked), 'questions')} contain their gold answer, such as {told[0].answers[0][:40]!r} "
        f"in {told[0].question[-80:]!r}: they can be answered without the image"
    )


def _names(question: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer.strip().casefold())}(?!\w)", question.casefold()) is not None
