"""Recipes: every setting of every verb, checked before anything starts."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.recipe.ablate import Ablate
    from distill.recipe.data import Columns, DataSource
    from distill.recipe.eval import Eval
    from distill.recipe.filter import Filter, Rule, Select
    from distill.recipe.generate import Generate
    from distill.recipe.loading import load, schema, shipped
    from distill.recipe.recipe import Recipe
    from distill.recipe.sampling import Sampling
    from distill.recipe.stages import Lora, Stage
    from distill.recipe.student import Student
    from distill.recipe.teachers import Teacher
    from distill.recipe.validation import Validation

_MODULES = {
    "ablate": ("Ablate",),
    "data": ("Columns", "DataSource"),
    "eval": ("Eval",),
    "filter": ("Filter", "Rule", "Select"),
    "generate": ("Generate",),
    "loading": ("load", "schema", "shipped"),
    "recipe": ("Recipe",),
    "sampling": ("Sampling",),
    "stages": ("Lora", "Stage"),
    "student": ("Student",),
    "teachers": ("Teacher",),
    "validation": ("Validation",),
}
__all__ = [
    "Ablate",
    "Columns",
    "DataSource",
    "Eval",
    "Filter",
    "Generate",
    "Lora",
    "Recipe",
    "Rule",
    "Sampling",
    "Select",
    "Stage",
    "Student",
    "Teacher",
    "Validation",
    "load",
    "schema",
    "shipped",
]
__getattr__ = lazy_exports(__name__, {name: module for module, names in _MODULES.items() for name in names})
