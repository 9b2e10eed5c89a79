"""Recipes: every setting of every verb, checked before anything starts."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.recipe.ablate import Ablate
    from distill.recipe.eval import Eval
    from distill.recipe.filter import Filter, Rule, Select
    from distill.recipe.recipe import Columns, DataSource, Recipe, load, schema, shipped
    from distill.recipe.stages import Lora, Stage, Student
    from distill.recipe.teachers import Generate, Sampling, Teacher
    from distill.recipe.validation import Validation

_MODULES = {
    "recipe": ("Columns", "DataSource", "Recipe", "load", "schema", "shipped"),
    "ablate": ("Ablate",),
    "eval": ("Eval",),
    "filter": ("Filter", "Rule", "Select"),
    "stages": ("Lora", "Stage", "Student"),
    "teachers": ("Generate", "Sampling", "Teacher"),
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
