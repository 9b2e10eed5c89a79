"""The questions of an evaluation, with and without images, and which of them a student has not been asked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from distill.data import reader
from distill.errors import DataError
from distill.recipe.recipe import Recipe
from distill.types import Sample
from student.data.rows import NO_ANSWER
from student.evaluation.students import EvaluatedStudent

Reply = dict[str, Any]
"""The fields of generation.Reply, and `seconds`: of its batch's wall clock an equal part, from a server its own."""
Key = tuple[tuple[str, str], bool, str]
"""A student's identity, whether the images were left out, and the question's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Questions asked in the same way."""

    samples: Sequence[Sample]
    without_image: bool
    name: str = ""
    """What the progress line says of it after the arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The questions that one student has not been asked yet, by round."""

    evaluated: EvaluatedStudent
    missing: Sequence[tuple[QuestionSet, frozenset[str]]]


class OnReplies(Protocol):
    """Gets the replies to some questions, and what else the progress line is to say."""

    def __call__(self, question_set: QuestionSet, replies: Sequence[tuple[Sample, Reply]], **facts: str) -> None: ...


def read_questions(recipe: Recipe) -> tuple[list[Sample], Counter[str]]:
    """The questions that can be asked and judged, and the number of all other rows by their reason."""
    samples, left_out = list[Sample](), Counter[str]()
    for sample in reader.samples(recipe, recipe.eval.data, on_bad=lambda row: left_out.update([row.reason])):
        if sample.answers:
            samples.append(replace(sample, question=f"{sample.question}{recipe.eval.ending}"))
        else:
            left_out[NO_ANSWER] += 1
    if not samples:
        raise DataError(f"[data.{recipe.eval.data}]: no question has a gold answer; nothing can be judged")
    return samples, left_out


def question_sets(recipe: Recipe, samples: Sequence[Sample]) -> list[QuestionSet]:
    """The questions as they are, and, where the recipe wants it, those with images without their images."""
    result = [QuestionSet(samples=samples, without_image=False)]
    blind = [replace(sample, images=()) for sample in samples if sample.images]
    if recipe.eval.without_image and blind:
        result.append(QuestionSet(samples=blind, without_image=True, name="without images"))
    return result


def find_unfinished(
    evaluated_students: Mapping[str, EvaluatedStudent],
    sets_of_arms: Mapping[str, Sequence[QuestionSet]],
    known: Mapping[Key, Reply],
) -> list[Work]:
    """What is still to be asked, in the order of arms; equal students are asked once."""
    work: dict[tuple[str, str], Work] = {}
    for arm, evaluated in evaluated_students.items():
        missing, student = [], evaluated.identity
        there = set(known)  # a question that two sets hold is asked once
        for each in sets_of_arms[arm]:
            keys = {(student, each.without_image, sample.id) for sample in each.samples}
            missing.append((each, frozenset(name for *_, name in keys - there)))
            there |= keys
        if any(ids for _, ids in missing) and student not in work:
            work[student] = Work(evaluated=evaluated, missing=missing)
    return list(work.values())
