"""The answer type that a source states for its samples: a name of the recipe, or code from outside the project."""

from pathlib import Path
from typing import Any

from distill.extensions import ANSWER_TYPES, Extension, call_fault, field_fault, load_once
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ANSWER_TYPE_NAMES, DataSource


def answer_type_of(source: DataSource) -> str | None:
    """What the samples of a source say of their answers' type; one from outside with its code. Raises RecipeError."""
    if source.answer_type is None or source.answer_type in ANSWER_TYPE_NAMES:
        return source.answer_type
    # Here, because it imports the judge of answers, and most sources need none: 0.1 s.
    from distill.answers.user_types import stated_type

    made = load_type(source.answer_type, source._folder, f"data.{source._name}.answer_type")
    return stated_type(made.loaded.name, made.code)


def load_answer_types(recipe: Recipe) -> None:
    """Make the answer types from outside known to this process, for samples that are read from a run's folder."""
    for source in recipe.data.values():
        answer_type_of(source)


def load_type(value: str, folder: Path, key: str) -> Extension:
    """Register a user's answer type in this process; `key`: the recipe key, for errors.

    Raises RecipeError for code that is no answer type.
    """
    from distill.answers.user_types import PREFIX, UserAnswerType

    def lacking(made: Any) -> str:
        if not isinstance(made, UserAnswerType):
            return f"an answer type is a distill.answers.user_types.UserAnswerType, this is {type(made).__name__}"
        has_valid_name = made.name.startswith(PREFIX) and made.name.isidentifier()
        if not has_valid_name:
            return f"its name must begin with own_ and hold no spaces, got {made.name!r}"
        return field_fault(made) or call_fault(made.same, "prediction", "gold")

    return load_once(ANSWER_TYPES, value, key, folder, lacking)
