"""The recipe of an evaluation that asks one student the questions of one source, made from another recipe."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from distill.recipe.loading import derived_recipe, given_values
from distill.recipe.recipe import Recipe

_STUDENT = "student"
"""The student's name in an evaluation of this student alone."""


def student_evaluation_recipe(
    recipe: Recipe,
    student: Path,
    source: str,
    purpose: str,
    *,
    evaluation: Mapping[str, Any],
    attempt: int = 0,
    answered: int | None = None,
    without: Collection[str] = (),
) -> Recipe:
    """The student in a folder answers a source once, at most `answered` questions; another attempt has another seed.

    `evaluation` holds further values of `[eval]`. Sections in `without` are left out. Raises RecipeError that names
    `purpose`.
    """
    values = given_values(recipe, without=without)
    values["seed"] = (recipe.seed + attempt) % 2**31
    values["stages"] = []
    values["eval"] = {
        **evaluation,
        "data": source,
        "arms": {},
        "students": {_STUDENT: {"model": str(student.resolve())}},
        "without_image": False,
    }
    if answered is not None:
        values["data"][source]["limit"] = min(answered, recipe.data[source].limit or answered)
    return derived_recipe(recipe, values, purpose)
