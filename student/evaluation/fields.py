"""The settings that identify an evaluation: of its questions, its students and its judge."""

from collections.abc import Mapping
from typing import Any

from distill.artifacts.manifest import flatten
from distill.data import reader
from distill.recipe.effects import affecting
from distill.recipe.recipe import Recipe
from student.evaluation.students import EvaluatedStudent
from student.evaluation.user_metrics import metric_codes


def fields_of_arms(recipe: Recipe, arms: Mapping[str, EvaluatedStudent]) -> dict[str, Any]:
    """What the replies and the judging depend on; not `eval.without_image`, which only adds replies.

    A student from elsewhere counts by its content, not by its path.
    """
    return {
        **flatten(affecting(recipe.eval, "eval"), "eval"),
        **{
            f"eval.arms.{arm}": evaluated.origin for arm, evaluated in arms.items() if arm not in recipe.eval.students
        },
        **{f"students.{arm}": evaluated.key for arm, evaluated in arms.items()},
        **{f"weights.{arm}": evaluated.weights for arm, evaluated in arms.items() if evaluated.weights},
        **flatten(reader.source_fields(recipe, recipe.eval.data), f"data.{recipe.eval.data}"),
        **flatten(affecting(recipe.filter, "eval"), "filter"),
        **{f"metrics.{name}": code for name, code in metric_codes(recipe).items()},
        "seed": recipe.seed,
    }
