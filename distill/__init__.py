"""Offline distillation of reasoning into small vision-language models: recipes, verbs, tables of a run, the judge."""

from typing import TYPE_CHECKING

from distill.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from distill.answers.verdicts import judge
    from distill.python_api.frames import compare, dataset, signals, traces
    from distill.python_api.verbs import evaluate, filter, generate, train
    from distill.recipe.loading import load

__all__ = ["compare", "dataset", "evaluate", "filter", "generate", "judge", "load", "signals", "traces", "train"]
__getattr__ = lazy_exports(
    __name__,
    {"judge": "answers.verdicts", "load": "recipe.loading"}
    | dict.fromkeys(("evaluate", "filter", "generate", "train"), "python_api.verbs")
    | dict.fromkeys(("compare", "dataset", "signals", "traces"), "python_api.frames"),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
