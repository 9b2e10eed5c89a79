"""Offline distillation of reasoning into small vision-language models: recipes, the four verbs, the answer judge."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.answers.verdicts import judge
    from distill.recipe.loading import load
    from distill.verbs import evaluate, filter, generate, train

__all__ = ["evaluate", "filter", "generate", "judge", "load", "train"]
__getattr__ = lazy_exports(
    __name__,
    {"judge": "answers.verdicts", "load": "recipe.loading"}
    | dict.fromkeys(("evaluate", "filter", "generate", "train"), "verbs"),
)
