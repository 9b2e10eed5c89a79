"""The recipes of rounds: an ordinary recipe for each run directory below `rounds/`. Trains and asks nothing.

RUN                          round 0
RUN/rounds/N                 round N, with generate, filter, train and eval as in any run
RUN/rounds/N/answers         an evaluation: the student of the round before answers the questions of the rounds;
                             answers-2 and so on: its further attempts
RUN/rounds/N/questions       what it fails: the questions of round N
RUN/rounds/N/validation      an evaluation: the student of round N answers the validation questions (N from 0)
"""

from pathlib import Path
from typing import Any

from distill.artifacts.layout import DATASET, ROUNDS, model_folder
from distill.artifacts.manifest import require
from distill.local_paths import run_command
from distill.recipe.loading import derived_recipe, given_values
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import start_of
from distill.recipe.student_evaluation import student_evaluation_recipe

_LEFT_OUT = ("rounds", "ablate")
"""Sections that the recipe of a part of a round does not need."""
ANSWERS, VALIDATION, QUESTIONS = "answers", "validation", "questions"
QUESTIONS_FILE = "questions.parquet"
_EARLIER = "rounds_pass_"
"""With the number of a round: the source that holds its traces."""


def round_folder(run: Path, number: int) -> Path:
    """What belongs to one round; number 0 has only the validation of round 0."""
    return run / ROUNDS / str(number)


def run_of_round(run: Path, number: int) -> Path:
    """The run directory of a round; that of round 0 is the run itself."""
    return round_folder(run, number) if number else run


def student_of_round(recipe: Recipe, run: Path, number: int) -> Path:
    """The folder of the student that a round has trained."""
    return model_folder(run_of_round(run, number), recipe.round_stage.name)


def attempt_folder(run: Path, number: int, attempt: int) -> Path:
    """Where an attempt of the student at the questions of a round lies; attempts are counted from 0."""
    return round_folder(run, number) / (f"{ANSWERS}-{attempt + 1}" if attempt else ANSWERS)


def evaluation_recipe(recipe: Recipe, run: Path, number: int, source: str, attempt: int = 0) -> Recipe:
    """The recipe of an evaluation: the student of a round answers the questions of a source once.

    The first attempt, 0, is greedy; each other one draws other replies.
    """
    settings = recipe.rounds
    return student_evaluation_recipe(
        recipe,
        student_of_round(recipe, run, number),
        source,
        f"the student of round {number} answers [data.{source}]",
        evaluation=given_values(recipe).get("eval", {}) | {"temperature": settings.temperature if attempt else 0.0},
        attempt=attempt,
        answered=settings.answered if source == settings.questions else None,
        without=_LEFT_OUT,
    )


def with_teachers_of_round(recipe: Recipe) -> Recipe:
    """The recipe with the teachers of a round, without a student's replies: used before round 0.

    Raises RecipeError for teachers that cannot be asked, such as one whose `after` is left out.
    """
    values = given_values(recipe, without=_LEFT_OUT)
    values["teachers"] = _teachers(recipe, values)
    return derived_recipe(recipe, values, "rounds")


def round_recipe(recipe: Recipe, run: Path, number: int) -> Recipe:
    """The recipe of a round from 1 on; the rounds before it are finished, and its questions are written.

    Raises RecipeError where the recipe of the round has an error, such as a teacher whose `after` is not asked.
    """
    settings, stage = recipe.rounds, recipe.round_stage
    values = given_values(recipe, without=_LEFT_OUT)
    values["seed"] = (recipe.seed + number) % 2**31  # new seeds: no trace of an earlier round comes again
    asked = values["data"][settings.questions]
    kept = {name: asked[name] for name in ("answer_type", "max_pixels", "max_bad_share") if name in asked}
    questions = round_folder(run, number) / QUESTIONS / QUESTIONS_FILE
    values["data"][ASKED] = {**kept, "source": str(questions.resolve()), "format": "returned"}
    values["teachers"] = _teachers(recipe, values)
    trained = next(each for each in values["stages"] if each["name"] == stage.name)
    trained |= _length(recipe, run)
    trained.pop("start", None)
    weights = trained.get("teachers", {})
    trained["teachers"] = {name: weight for name, weight in weights.items() if _asks(recipe, name)}
    shares = _shares_of_earlier_traces(recipe, run, number)
    rest = 1 - sum(stage.replay.values())
    trained["replay"] = {**stage.replay, **{name: rest * share for name, (_, share) in shares.items()}}
    values["data"] |= {
        name: {"source": str(folder.resolve()), "format": "traces"} for name, (folder, _) in shares.items()
    }
    values["stages"] = [trained]
    values["student"] = _start_student(recipe, run, number)
    arms = [arm for arm, name in recipe.eval.arms.items() if name == stage.name][:1] or [stage.name]
    values["eval"] = {**values.get("eval", {}), "arms": {arms[0]: stage.name}, "students": {}}
    return derived_recipe(recipe, values, f"round {number}")


def _asks(recipe: Recipe, teacher: str) -> bool:
    return teacher in (recipe.rounds.teachers or [each.name for each in recipe.teachers])


def _teachers(recipe: Recipe, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of the teachers that a round asks."""
    settings = {"samples": recipe.rounds.samples, "prompt": recipe.rounds.prompt}
    changed = {name: value for name, value in settings.items() if value is not None}
    return [teacher | changed for teacher in values.get("teachers", []) if _asks(recipe, teacher["name"])]


def _length(recipe: Recipe, run: Path) -> dict[str, int]:
    """What says how long a round trains: a share of the tokens that the stage is to learn from, else of its steps."""
    share, stage = recipe.rounds.steps_share, recipe.round_stage
    if stage.max_tokens is not None:
        return {"max_tokens": max(1, round(share * stage.max_tokens))}
    first = require(run / "train", stage.name, next_step=f"run {run_command('train', recipe.path, run)} first")
    return {"max_steps": max(1, round(share * first.counts["steps"]))}


def _shares_of_earlier_traces(recipe: Recipe, run: Path, number: int) -> dict[str, tuple[Path, float]]:
    """For each earlier round with a dataset, as a source: its dataset and its share of the tokens of traces."""
    settings = recipe.rounds
    weights: dict[int, float] = {}
    for earlier in range(number):
        rows = require(run_of_round(run, earlier), "filter", next_step="run the round again").counts["selected"]
        if rows:
            weights[earlier] = rows * settings.ageing ** (number - 1 - earlier)
    left = 1 - settings.new_share
    if not left:
        return {}
    return {
        f"{_EARLIER}{earlier}": (
            run_of_round(run, earlier) / "filter" / DATASET,
            left * weight / sum(weights.values()),
        )
        for earlier, weight in weights.items()
    }


def _start_student(recipe: Recipe, run: Path, number: int) -> dict[str, Any]:
    """The student section of a round: the student of the round before, or the one that the stage started from."""
    assert recipe.student is not None
    values = recipe.student.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    if recipe.rounds.start == "last":
        start = student_of_round(recipe, run, number - 1)
    elif (before := start_of(recipe.stages, recipe.round_stage)) is not None:
        start = model_folder(run, before)
    else:
        return values
    for name in ("vision", "language", "pixel_shuffle", "revision"):
        values.pop(name, None)
    return values | {"model": str(start.resolve())}
