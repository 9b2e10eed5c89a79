"""Collect the replies of the students of an evaluation, with and without images, in a journal.

Replies are journaled verbatim under the key of their student, so scoring again asks nothing, and an interrupted
evaluation resumes. Does not score (student/inference/scoring.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.artifacts.damaged_lines import recovered
from distill.artifacts.journal import Journal
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.types import Progress, ProgressCallback, Sample
from student.evaluation import students
from student.evaluation.embedded_students import ask_embedded
from student.evaluation.questions import Key, OnReplies, QuestionSet, Reply, Work
from student.evaluation.served_students import Connect, RemoteServer, ask_exported, ask_remote
from student.evaluation.students import EvaluatedStudent
from student.export.check_report import Serve
from student.training.stage import Session

REPLIES = "replies.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Functions that ask students elsewhere than in this process; None where the caller has none."""

    vllm: Callable[[], Serve] | None = None
    """Called once, before anything is asked, when the recipe has students served for the evaluation."""
    connect: Connect | None = None
    side_by_side: Callable[[Sequence[str]], None] | None = None
    """Asks the students of several arms at the same time; their replies are not in the journal afterwards."""


def read_replies(path: Path, evaluated_students: Iterable[EvaluatedStudent] = ()) -> dict[Key, Reply]:
    """Every reply in a journal, whose damaged lines are set aside.

    Replies that one of these students gave with other weights are left out. A record with `unasked` is for a question
    that its student cannot be asked.
    """
    weights_of: dict[str, list[str]] = {}
    for evaluated in evaluated_students:
        weights_of.setdefault(evaluated.key, []).append(evaluated.weights)
    result: dict[Key, Reply] = {}
    for line in recovered(path, reply_fault):
        student, *question = (line.pop(name) for name in ("student", "without_image", "sample_id"))
        asked = line.pop("weights", None)  # earlier versions noted none
        for weights in weights_of.get(student, [asked or ""]):
            if asked in (None, weights):
                result[(student, weights), *question] = line
    return result


def reply_fault(line: Mapping[str, Any]) -> str:
    """What is wrong with a line of the journal; empty for a reply."""
    missing = [name for name in ("student", "without_image", "sample_id") if name not in line]
    if "unasked" not in line:
        missing += [name for name in ("text", "tokens", "rationale_tokens", "truncated") if name not in line]
    return f"it has no {missing[0]}" if missing else ""


def collect_replies(
    recipe: Recipe,
    folder: Path,
    work: Sequence[Work],
    engines: Engines,
    begin: Callable[[], None],
    on_progress: ProgressCallback,
) -> None:
    """Ask what is missing.

    Raises for students that cannot work before `begin` is called and the first question asked.
    """
    served = recipe.eval.engine == "vllm"
    limits = {"max_new_tokens": recipe.eval.max_new_tokens, "max_pixels": recipe.data[recipe.eval.data].max_pixels}
    with ExitStack() as stack:
        servers = {
            each.evaluated.arm: stack.enter_context(_connection(each.evaluated, engines, limits))
            for each in work
            if each.evaluated.server is not None
        }
        for each in work:
            students.require_loadable(recipe, each.evaluated)
        local_work = [each for each in work if each.evaluated.server is None]
        serve = _require_vllm(recipe, engines)() if served and local_work else None
        begin()
        if engines.side_by_side is not None and serve is None and len(local_work) > 1:
            engines.side_by_side([each.evaluated.arm for each in local_work])
            work = [each for each in work if each.evaluated.server is not None]
        journal = stack.enter_context(Journal(folder / REPLIES))
        session = Session()
        for each in work:
            on_replies = recorder(each, journal, on_progress)
            if each.evaluated.server is not None:
                ask_remote(servers[each.evaluated.arm], each, on_replies, recipe.filter.rationale)
            elif serve is not None:
                ask_exported(recipe, folder, each, serve, limits, on_replies)
            else:
                ask_embedded(recipe, each, session, on_replies)


def _connection(
    evaluated: EvaluatedStudent, engines: Engines, limits: Mapping[str, int]
) -> AbstractContextManager[RemoteServer]:
    if engines.connect is None:
        raise RecipeError(
            f"eval.students.{evaluated.arm} is on a server, and this function cannot ask servers; use `distill eval`"
        )
    return engines.connect(evaluated.arm, evaluated.server, **limits)


def _require_vllm(recipe: Recipe, engines: Engines) -> Callable[[], Serve]:
    if engines.vllm is None:
        raise RecipeError(
            f'{recipe.path}: eval.engine = "vllm", but this function starts no servers; use `distill eval`, or '
            '"embedded"'
        )
    return engines.vllm


def recorder(work: Work, journal: Journal, on_progress: ProgressCallback) -> OnReplies:
    """A function that journals replies and reports progress."""
    done = {each.name: len(each.samples) - len(ids) for each, ids in work.missing}
    notices: dict[str, str] = {}

    def on_replies(question_set: QuestionSet, replies: Sequence[tuple[Sample, Reply]], **facts: str) -> None:
        notices.update(facts)
        for sample, reply in replies:
            key = {"student": work.evaluated.key, "without_image": question_set.without_image, "sample_id": sample.id}
            # A stage that is trained again with the same settings keeps its key.
            weights = {"weights": work.evaluated.weights} if work.evaluated.weights else {}
            journal.append({**key, **weights, **reply})
        done[question_set.name] += len(replies)
        stage = f"eval {work.evaluated.arm} {question_set.name}".rstrip()
        total = len(question_set.samples)
        if replies or facts:
            counts = {"done": done[question_set.name], "total": total}
            on_progress(Progress(stage=stage, **counts, unit="questions", facts=notices))

    return on_replies
