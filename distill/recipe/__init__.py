"""Recipes: every setting of every verb, checked before anything starts."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.recipe.loading import load, schema, shipped
    from distill.recipe.recipe import Recipe
    from distill.recipe.sections.ablate import Ablate
    from distill.recipe.sections.data import Columns, DataSource
    from distill.recipe.sections.eval import Eval
    from distill.recipe.sections.filter import Filter, Rule, Select
    from distill.recipe.sections.generate import Generate
    from distill.recipe.sections.sampling import Sampling
    from distill.recipe.sections.stages import Lora, Stage
    from distill.recipe.sections.student import Student
    from distill.recipe.sections.teachers import Teacher
    from distill.recipe.sections.validation import Validation

_MODULES = {
    "sections.ablate": ("Ablate",),
    "sections.data": ("Columns", "DataSource"),
    "sections.eval": ("Eval",),
    "sections.filter": ("Filter", "Rule", "Select"),
    "sections.generate": ("Generate",),
    "loading": ("load", "schema", "shipped"),
    "recipe": ("Recipe",),
    "sections.sampling": ("Sampling",),
    "sections.stages": ("Lora", "Stage"),
    "sections.student": ("Student",),
    "sections.teachers": ("Teacher",),
    "sections.validation": ("Validation",),
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
