"""Which sources of a recipe are training data and which are test data."""

from collections.abc import Iterable

from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED
from distill.recipe.sections.stages import Stage, is_traces, sources_of


def training_sources(recipe: Recipe, stages: Iterable[Stage] | None = None) -> tuple[str, ...]:
    """The sources that these stages learn from, directly, through teachers or by replay.

    By default the sources of all stages, and the teachers' questions, also in rounds.
    """
    chosen = recipe.stages if stages is None else tuple(stages)
    asked = any(is_traces(stage) for stage in chosen) or (stages is None and bool(recipe.teachers))
    names = [ASKED] if asked else []
    if stages is None and recipe.rounds.count:
        names.append(recipe.rounds.questions)
    names += [name for stage in chosen for name in sources_of(stage)]
    return tuple(name for name in dict.fromkeys(names) if name in recipe.data)


def evaluation_sources(recipe: Recipe) -> tuple[str, ...]:
    """`eval.data`, what stages validate on and rounds are compared with, and named test sets."""
    checks = [stage.validation for stage in recipe.stages if stage.validation is not None]
    validated = [check.data for check in checks if check.data is not None]
    if recipe.rounds.count and recipe.rounds.validation is not None:
        validated.append(recipe.rounds.validation)
    names = [recipe.eval.data, *validated, *(recipe.filter.contamination.sources or ())]
    return tuple(name for name in dict.fromkeys(names) if name in recipe.data)
