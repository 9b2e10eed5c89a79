"""Check of training data against evaluation data: the same images or questions on both sides."""

from collections.abc import Iterator, Sequence

from distill.artifacts.layout import LEAKAGE
from distill.checks.context import CheckContext
from distill.checks.results import CheckResult, fine, not_checked, problem, warning
from distill.planning import leakage
from distill.planning.compared_sources import evaluation_sources, training_sources
from distill.recipe.recipe import Recipe
from distill.recipe.sections.data import ASKED

_SHARE = 0.5
"""Share of the remaining time that the comparison may take."""
_SHOWN = 2


def check_leakage(context: CheckContext) -> Iterator[CheckResult]:
    """Compare every training source that is here with every evaluation source that is."""
    yield from _compared(context, training_sources(context.recipe))


def check_asked(context: CheckContext) -> Iterator[CheckResult]:
    """Compare what teachers are asked with every evaluation source: `generate` refuses these rows alone."""
    yield from _compared(context, [name for name in training_sources(context.recipe) if name == ASKED])


def _compared(context: CheckContext, names: Sequence[str]) -> Iterator[CheckResult]:
    recipe = context.recipe
    training = [name for name in names if context.readable(name) is not None]
    evaluation = [name for name in evaluation_sources(recipe) if context.readable(name) is not None]
    if not training or not evaluation:
        return
    folder = context.run / LEAKAGE if (context.run / LEAKAGE).is_dir() else None
    leaks = leakage.measure_leakage(
        recipe, folder, training=training, evaluation=evaluation, limit_s=max(1.0, context.seconds_left * _SHARE)
    )
    for overlap in leaks.overlaps:
        key = f"data.{overlap.training}"
        if not overlap.leaking:
            yield fine(key, str(overlap))
            continue
        message = "; ".join([str(overlap), *(f"such as {leak}" for leak in overlap.examples[:_SHOWN])])
        yield _refused(recipe, key, message)
    for name, why in leaks.not_compared.items():
        yield not_checked(f"data.{name}", f"not compared with all of the evaluation data: {why}")


def _refused(recipe: Recipe, key: str, message: str) -> CheckResult:
    mend = "split by image (`distill split SOURCE --test 0.1 --out DIR`), or remove these rows"
    if recipe.eval.allow_overlap:
        return warning(key, f"{message}; eval.allow_overlap = true allows it", mend)
    return problem(key, message, f"{mend}; eval.allow_overlap = true goes on with them")
