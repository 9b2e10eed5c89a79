"""Arguments of the functions for programs: one of another kind is named before anything is read or written."""

from os import PathLike
from pathlib import Path
from typing import Any

from distill.errors import InputError, RecipeError
from distill.extensions import call_fault
from distill.local_paths import given_path, refuse_address
from distill.recipe.recipe import Recipe


def run_folder(run: Any) -> Path:
    """The path of a run directory. Raises InputError for what is no path, RecipeError for the address of a store."""
    if not isinstance(run, str | PathLike) or not str(run):
        # An empty path would be the folder that the program runs in.
        raise InputError(f"run = {run!r:.80} ({type(run).__name__}): give the path of a run directory")
    refuse_address(str(run))
    return given_path(run)


def require_recipe(recipe: Any) -> None:
    """Raise RecipeError for what is no recipe, such as its name."""
    if not isinstance(recipe, Recipe):
        raise RecipeError(
            f"recipe = {recipe!r:.80} ({type(recipe).__name__}): give a recipe, as distill.load(PATH_OR_NAME) returns"
        )


def require_count(name: str, value: Any) -> None:
    """Raise InputError for what is no whole number from 1; None is one that was not given."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(
            f"{name} = {value!r:.80} ({type(value).__name__}): give a whole number from 1, or leave it out"
        )


def require_function(name: str, value: Any) -> None:
    """Raise InputError for what cannot be called with one value."""
    if not callable(value) or call_fault(value, "progress"):
        raise InputError(
            f"{name} = {value!r:.80} ({type(value).__name__}): give a function of one distill.types.Progress, or "
            "leave it out"
        )
