"""Rows that the diagnosed student was trained on, asked like the questions of the test.

The answers separate two causes of a bad test. A student that does not answer its training rows has not learned. A
student that answers them has learned, but does not generalise to the test. The replies count in no metric of an arm.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from distill.artifacts.journal import read_jsonl
from distill.artifacts.json_lines import requiring
from distill.artifacts.layout import METRICS
from distill.data.reader import sample_id
from distill.errors import DistillError
from distill.rationale import NO_THINK
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage
from distill.types import Sample
from student.data import rows
from student.data.rows import TrainingRow
from student.evaluation.questions import QuestionSet
from student.evaluation.students import arms_of

ASKED: Final = 60
"""Rows that are asked: enough for an interval of some 25 points at most, and a second or two of a card."""
_READ: Final = 1000
"""Rows from the start of a stage's data that the diagnosis reads."""
FEWEST_EPOCHS: Final = 1.0
"""Of a stage with fewer epochs it is not known which of them it has learned."""
NAME: Final = "on rows that it learned"


def diagnosed_arm(recipe: Recipe) -> tuple[str, Stage | None]:
    """The arm that the diagnosis is about, and its stage: the last one that a stage trained, else the last one."""
    stages = {stage.name: stage for stage in recipe.stages}
    arms = arms_of(recipe)
    arm = next((name for name in reversed(arms) if arms[name] in stages), list(arms)[-1])
    return arm, stages.get(arms[arm])


def read_rows(recipe: Recipe, run: Path, stage: Stage | None) -> list[TrainingRow]:
    """The first rows that a stage learned from; none where they cannot be read any more."""
    try:
        return [*islice(rows.read(recipe, run, stage, Counter()), _READ)] if stage is not None else []
    except DistillError:
        return []


def last_line(run: Path, stage: Stage) -> Mapping[str, Any]:
    """The last line of a stage's log; empty where there is none."""
    lines = read_jsonl(run / "train" / stage.name / METRICS, check=requiring("step"), on_damage=lambda _: None)
    return max(lines, key=lambda line: line["step"], default={})


def sets_of_arms(recipe: Recipe, run: Path, rounds: Sequence[QuestionSet]) -> dict[str, list[QuestionSet]]:
    """What the student of each arm is asked: the questions of the evaluation, and the diagnosed one its own rows."""
    _, diagnosed = diagnosed_arm(recipe)
    learned = _questions(recipe, run, diagnosed) if diagnosed is not None else []
    own = [QuestionSet(samples=learned, without_image=False, name=NAME)] if learned else []
    return {
        arm: [*rounds, *own] if diagnosed is not None and origin == diagnosed.name else [*rounds]
        for arm, origin in arms_of(recipe).items()
    }


def learned_set(sets: Mapping[str, Sequence[QuestionSet]]) -> QuestionSet | None:
    """The rows that the diagnosed student is asked, if there are any."""
    return next((each for of_arm in sets.values() for each in of_arm if each.name == NAME), None)


def _questions(recipe: Recipe, run: Path, stage: Stage) -> list[Sample]:
    """Some own rows of the stage as questions, each with the answer that was learned; the same ones in every run."""
    if last_line(run, stage).get("epoch", 0.0) < FEWEST_EPOCHS:
        return []
    if stage.rollouts is not None or rows.max_pixels(recipe, stage) > recipe.data[recipe.eval.data].max_pixels:
        return []  # rollouts hold the student's own replies; a larger image would end the evaluation
    found: dict[str, Sample] = {}
    for row in sorted(read_rows(recipe, run, stage), key=lambda row: hashlib.sha256(row.id.encode()).digest()):
        answer = row.response[slice(*row.answer)].strip()
        if row.source != stage.data or row.rejected or not answer or row.question.endswith(NO_THINK):
            continue
        name = sample_id(row.question, [ref.sha256 for ref in row.images])
        if len(found) < ASKED:
            found.setdefault(name, Sample(id=name, images=row.images, question=row.question, answers=(answer,)))
    return list(found.values())
