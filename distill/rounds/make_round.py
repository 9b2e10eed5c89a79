"""One round: the student answers, its failures go to the teachers, and the run of the round is made.

How a student is asked and a stage is run is the caller's: `distill run` and `distill ablate` do it in their own ways.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.artifacts.layout import RECIPE
from distill.artifacts.manifest import require
from distill.errors import DistillError, NothingKept, TooFewRows
from distill.local_paths import as_argument
from distill.recipe.recipe import Recipe
from distill.rounds.returned_questions import write_returned
from distill.rounds.round_recipes import QUESTIONS, attempt_folder, evaluation_recipe, round_folder, round_recipe
from distill.word_tables import counted

Step = Callable[[Recipe, Path], Any]
"""Do one thing in a run directory, or find that it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSteps:
    """What a round is made with."""

    ask: Step
    """An evaluation on questions that are no test."""
    generate: Step
    filter_traces: Step
    train: Step
    """Train the stage of the round, and evaluate its student where that is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMade:
    """What a round found; `ended` says why it could not be made, and is empty where it was."""

    returned: int
    traces: int = 0
    ended: str = ""


def make_round(recipe: Recipe, run: Path, number: int, steps: RoundSteps) -> RoundMade:
    """Make round `number`, from 1 on, after the round before it is finished. Finished parts of it are kept."""
    try:
        return _make_round(recipe, run, number, steps)
    except DistillError as error:
        if not error.has_remedy:
            raise
        # The error of a stage names the command of its stage, which works on round 0.
        raise type(error)(
            error.problem,
            f"this is round {number} in {round_folder(run, number)}; change the settings in the recipe, and "
            "`distill run --redo-stale` makes each stage again that the change reaches, those of round 0 too; "
            f"or end with the rounds before it: rounds.count = {number - 1}",
        ) from error


def _make_round(recipe: Recipe, run: Path, number: int, steps: RoundSteps) -> RoundMade:
    attempts = [attempt_folder(run, number, attempt) for attempt in range(recipe.rounds.attempts)]
    source = recipe.rounds.questions
    for attempt, folder in enumerate(attempts):
        steps.ask(evaluation_recipe(recipe, run, number - 1, source, attempt), folder)
    returned = write_returned(recipe, attempts, round_folder(run, number) / QUESTIONS).counts["returned"]
    if not returned:
        ended = f"there is no round {number}: the student answers no question of [data.{source}] wrong"
        return RoundMade(returned=0, ended=ended)
    planned, folder = round_recipe(recipe, run, number), round_folder(run, number)
    steps.generate(planned, folder)
    try:
        steps.filter_traces(planned, folder)
    except NothingKept:
        ended = (
            f"there is no round {number}: the filter kept no new trace for {counted(returned, 'question')}; `distill "
            f"filter {as_argument(folder / RECIPE)} --run {as_argument(folder)}` says why"
        )
        return RoundMade(returned=returned, ended=ended)
    traces = selected_traces(folder)
    try:
        steps.train(planned, folder)
    except TooFewRows as error:
        # Teachers are paid, and the students before are as good as they were: the rounds end, not the run.
        return RoundMade(returned=returned, traces=traces, ended=f"there is no round {number}: {error}")
    return RoundMade(returned=returned, traces=traces)


def selected_traces(run: Path) -> int:
    """How many traces the filter of a run has selected."""
    return require(run, "filter", next_step="run `distill run` again").counts["selected"]
