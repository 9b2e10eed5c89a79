"""What a shell completes: shipped recipes, and names that a recipe or a run holds.

No text for an argument leaves it to the shell, which completes files. Loads no model and no data.
"""

import os
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer

from distill.artifacts.layout import RECIPE
from distill.errors import DistillError

if TYPE_CHECKING:
    from distill.recipe.recipe import Recipe

Completer = Callable[[typer.Context, str], list[str]]


def recipes(incomplete: str) -> list[str]:
    """Shipped recipes and recipes of this folder; a path is the shell's."""
    from distill.recipe.loading import shipped

    if "/" in incomplete or "\\" in incomplete:
        return []
    return _begin([*shipped(), *sorted(path.name for path in Path().glob("*.toml"))], incomplete)


def shipped_recipes(incomplete: str) -> list[str]:
    from distill.recipe.loading import shipped

    return _begin(shipped(), incomplete)


def gpus(incomplete: str) -> list[str]:
    from distill.machine.hardware import GPUS

    return _begin([gpu.name for gpu in GPUS], incomplete)


def engines(incomplete: str) -> list[str]:
    from distill.recipe.sections.scale import Placement

    return _begin(get_args(Placement.model_fields["kind"].annotation), incomplete)


def models(incomplete: str) -> list[str]:
    from distill.commands.ask import KINDS

    return _begin(KINDS, incomplete)


def dataset_formats(incomplete: str) -> list[str]:
    from filters.dataset.export_formats import FORMATS

    return _begin(FORMATS, incomplete)


def _of_recipe(names: "Callable[[Recipe], Any]") -> Completer:
    """Names that the recipe of the command line, or of its run, holds; none where it cannot be read."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from distill.recipe.loading import load

        given = _given(ctx)
        run = given.get("run")
        place = given.get("recipe") or (run and Path(run) / RECIPE)
        if place is None:
            return []
        try:
            with redirect_stdout(StringIO()):  # of an arm of the user's own
                return _begin(names(load(place)), incomplete)
        except (DistillError, OSError):
            return []

    return complete


def _given(ctx: typer.Context) -> dict[str, Any]:
    """The arguments before the option whose value is completed: without a value the parser gives up all of them."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    try:
        words = shlex.split(line)
    except ValueError:  # an open quotation mark
        return {}
    begin = words.index(str(ctx.info_name)) + 1
    end = max((at for at, word in enumerate(words) if word.startswith("-")), default=len(words))
    return ctx.command.make_context(ctx.info_name, words[begin:end], resilient_parsing=True).params


def _arms(recipe: "Recipe") -> list[str]:
    from distill.ablation.arms import possible

    return possible(recipe)[0]


def _keys(recipe: "Recipe") -> list[str]:
    """Every key that --set takes for this recipe, with the sign after it."""
    from distill.artifacts.manifest import flatten

    return [f"{key}=" for key in flatten(recipe.model_dump(mode="json"))]


stages = _of_recipe(lambda recipe: [stage.name for stage in recipe.stages])
sources = _of_recipe(lambda recipe: recipe.data)
studies = _of_recipe(lambda recipe: recipe.ablate.studies)
arms = _of_recipe(_arms)
keys = _of_recipe(_keys)


def _begin(names: Any, incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
