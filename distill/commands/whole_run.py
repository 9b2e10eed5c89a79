"""`distill run`: every stage in order, and the rounds that a recipe asks for."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from distill.artifacts.manifest import MANIFEST
from distill.commands.rounds import all_rounds
from distill.commands.stages import eval_stage, filter_stage, generate_stage, logged, train_stage
from distill.errors import RecipeError, StaleError
from distill.recipe.recipe import Recipe
from distill.rounds.results import read_results


@logged("run")
def all_stages(recipe: Recipe, run: Path, *, jobs: int = 1, redo_stale: bool = False) -> str:
    """Every stage in order, then the rounds; each stage returns at once when its work is done.

    What a later stage will need is looked at first: a run that cannot end well does not begin. With `redo_stale` a
    stage that was made with other settings, or by an older version, is set aside and made again; else it is an error.
    """
    require_fit(recipe, run, redo_stale=redo_stale)
    finish = partial(finish_stage, redo_stale=redo_stale)
    finish(generate_stage, recipe, run)
    blocks = [finish(filter_stage, recipe, run)]
    blocks += _train_and_evaluate(recipe, run, jobs=jobs, redo_stale=redo_stale)
    if recipe.rounds.count:
        later = partial(_train_and_evaluate, jobs=jobs, redo_stale=redo_stale)
        blocks.append(all_rounds(recipe, run, finish=finish, train_and_evaluate=later))
    return "\n\n".join(blocks)


def finish_stage(stage: Callable[..., Any], recipe: Recipe, run: Path, /, *, redo_stale: bool, **options: Any) -> Any:
    """What a stage returns; with `redo_stale` one that is stale is made again."""
    try:
        return stage(recipe, run, **options)
    except StaleError as error:
        if redo_stale:
            return stage(recipe, run, fresh=True, **options)
        if "--fresh" not in str(error) or "--redo-stale" in str(error):
            raise
        again = "`distill run --redo-stale` makes every such stage again"
        raise StaleError(error.problem, "\n".join([*error.args[1:], again])) from None


def _train_and_evaluate(recipe: Recipe, run: Path, *, jobs: int, redo_stale: bool) -> list[str]:
    """Train every stage, and evaluate where the recipe has something to evaluate with."""
    if redo_stale:
        # --fresh without a name would train all stages again.
        for each in recipe.stages:
            finish_stage(train_stage, recipe, run, redo_stale=True, stage=each.name, jobs=jobs)
    trained = finish_stage(train_stage, recipe, run, redo_stale=False, jobs=jobs, asks=recipe.evaluates)
    if not recipe.evaluates:
        return [trained, not_evaluated(recipe)]
    evaluated = finish_stage(eval_stage, recipe, run, redo_stale=redo_stale, jobs=jobs)
    # Both compare training data with test data, and mostly the same sources: a table of both is shown once.
    return ["\n\n".join(part for part in trained.split("\n\n") if part not in evaluated), evaluated]


def not_evaluated(recipe: Recipe) -> str:
    return f"nothing is evaluated: {recipe.path} has no [data.{recipe.eval.data}]"


def require_fit(recipe: Recipe, run: Path, *, redo_stale: bool = False) -> None:
    """Raise RecipeError with all problems that would stop a run, unless the whole run is finished."""
    from distill.checks.recipe_checks import ROUNDS, WHOLE, check_recipe

    is_round_0_done = (run / "eval" / MANIFEST).is_file() and not redo_stale
    if is_round_0_done and (not recipe.rounds.count or (read_results(run) or {}).get("ended")):
        return
    report = check_recipe(recipe, run, redo_stale=redo_stale, checks=ROUNDS if is_round_0_done else WHOLE)
    if report.problems:
        raise RecipeError(f"{recipe.path}: the run cannot end well\n{report.as_text(only_open=True)}")
    sys.stderr.write(f"{report.as_text(only_open=True)}\n")
