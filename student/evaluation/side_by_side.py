"""Asks students side by side, each in a process of its own, which has its own GPU where a machine has several.

A process journals the replies of its student below `eval/asked`, and `take_over` moves them to the journal of all
students. So a student can be asked before the others are trained. Does not ask students that a server has.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.journal import Journal
from distill.artifacts.manifest import MANIFEST, fingerprint
from distill.jobs import JobPool
from distill.recipe.recipe import Recipe
from distill.recipe.sections.eval import BASE
from distill.types import ProgressCallback, unwatched
from student.evaluation import learned_rows, questions, students
from student.evaluation.collect_replies import REPLIES, read_replies, recorder, reply_fault
from student.evaluation.embedded_students import ask_embedded
from student.evaluation.students import EvaluatedStudent, fields_of_arms
from student.training.stage import Session

_ASKED = "asked"


def ask_side_by_side(
    recipe: Recipe, run: Path, jobs: int, on_progress: ProgressCallback, arms: Sequence[str]
) -> None:
    """Ask the students of these arms, `jobs` at a time."""
    with JobPool(jobs, on_progress) as pool:
        for arm in arms:
            pool.submit(arm, ask_alone, recipe, run, arm)
        for _, asked in pool.results():
            asked.result()


def asks_after(recipe: Recipe, run: Path, finished: Collection[str]) -> dict[str, Callable[..., None]]:
    """What can be asked once these stages are finished, by name: functions for processes of their own.

    Nothing where a server has the students, or where an evaluation is finished: `evaluate` sees what changed since.
    """
    if recipe.eval.engine != "embedded" or (run / "eval" / MANIFEST).is_file():
        return {}
    arms = {
        origin: arm
        for arm, origin in students.arms_of(recipe).items()
        if arm not in recipe.eval.students and (origin == BASE or origin in finished)
    }
    return {f"eval {arm}": partial(ask_alone, recipe, run, arm) for arm in arms.values()}


def ask_alone(recipe: Recipe, run: Path, arm: str, on_progress: ProgressCallback = unwatched) -> None:
    """Ask the student of an arm everything that it has not been asked."""
    evaluated = students.evaluated_student(recipe, run, arm, students.arms_of(recipe)[arm])
    samples, _ = questions.read_questions(recipe)
    path = _journal_path(recipe, run / "eval", evaluated)
    known = read_replies(run / "eval" / REPLIES, [evaluated]) | read_replies(path, [evaluated])
    sets = learned_rows.sets_of_arms(recipe, run, questions.question_sets(recipe, samples))
    for work in questions.find_unfinished({arm: evaluated}, sets, known):
        students.require_loadable(recipe, evaluated)
        with Journal(path) as journal:
            ask_embedded(recipe, work, Session(), recorder(work, journal, on_progress))


def take_over(
    recipe: Recipe, folder: Path, evaluated_students: Iterable[EvaluatedStudent], begin: Callable[[], None]
) -> float | None:
    """Move the replies of these students to the journal of all, after `begin`.

    Returns the seconds that they took, None where there are none.

    Replies to other questions, of other weights or with other settings are removed.
    """
    seconds: float | None = None
    for evaluated in evaluated_students:
        path = _journal_path(recipe, folder, evaluated)
        if not path.is_file():
            continue
        begin()
        seconds = seconds or 0.0
        Journal(path).close()  # BusyError while the process that writes it has not ended
        with Journal(folder / REPLIES) as replies:
            for line in recovered(path, reply_fault):
                replies.append(line)
                seconds += line.get("seconds", 0.0)
        path.unlink()
    shutil.rmtree(folder / _ASKED, ignore_errors=True)
    return seconds


def _journal_path(recipe: Recipe, folder: Path, evaluated: EvaluatedStudent) -> Path:
    """Named by everything that the replies depend on."""
    return folder / _ASKED / f"{fingerprint(fields_of_arms(recipe, {evaluated.arm: evaluated}))}.jsonl"
