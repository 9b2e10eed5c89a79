"""Metrics from outside the project: from a file that the recipe names, or from an installed package.

Each has one value a reply, which stands in the reply's prediction under the metric's name; share or mean, interval,
heading and format on page and console follow from the entry. The project's own are in student/evaluation/metrics.py.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from distill import extensions
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.types import Sample
from student.inference.scoring import Prediction

_KEY = "eval.metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMetric:
    """A metric: what a reply is worth, and how the whole is written."""

    name: str
    """Its key in metrics.json and in a prediction."""
    label: str
    """The heading of its column."""
    kind: Literal["share", "mean"]
    """share: of replies for which the value is true. mean: of numbers."""
    value: Callable[[Sample, Mapping[str, Any]], bool | float | None]
    """Of a question and the prediction of one reply (student.inference.scoring.judged); None: it does not apply."""
    note: str = ""


def own_metrics(recipe: Recipe) -> tuple[OwnMetric, ...]:
    """The metrics of eval.metrics. Raises RecipeError for one that cannot be used."""
    return tuple(one.loaded for one in _loaded(recipe))


def metric_codes(recipe: Recipe) -> dict[str, str]:
    """What identifies the code of each metric, by its name."""
    return {one.loaded.name: one.code for one in _loaded(recipe)}


def _loaded(recipe: Recipe) -> list[extensions.Extension]:
    found: dict[str, extensions.Extension] = {}
    for value in recipe.eval.metrics:
        one = extensions.load(extensions.METRICS, value, _KEY, recipe.path.parent, _lacking)
        if one.loaded.name in found:
            raise RecipeError(
                f"{_KEY} = {value!r}: another metric is called {one.loaded.name!r}; give it another name"
            )
        found[one.loaded.name] = one
    return list(found.values())


def _lacking(metric: Any) -> str:
    if not isinstance(metric, OwnMetric):
        return f"a metric is a student.evaluation.own_metrics.OwnMetric, this is {type(metric).__name__}"
    if not re.fullmatch(r"own_[a-z0-9_]+", metric.name):
        return f"its name must begin with own_ and consist of small letters, digits and _, got {metric.name!r}"
    if metric.kind not in ("share", "mean"):
        return f"its kind must be 'share' or 'mean', got {metric.kind!r}"
    return "" if callable(metric.value) else "its value must be a function of a sample and a prediction"


def values(metrics: Sequence[OwnMetric], sample: Sample, prediction: Prediction) -> dict[str, bool | float | None]:
    """What each metric gives for a reply. Raises RecipeError that names a metric that fails."""
    return {metric.name: _value(metric, sample, prediction) for metric in metrics}


def _value(metric: OwnMetric, sample: Sample, prediction: Prediction) -> bool | float | None:
    where = f"{_KEY}: {metric.name} on sample {sample.id}"
    try:
        value = metric.value(sample, prediction)
    except Exception as error:
        raise RecipeError(f"{where} failed: {type(error).__name__}: {error}; correct its function") from error
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise RecipeError(f"{where} gave {value!r:.60}; it gives a number, true or false, or None")
    return bool(value) if metric.kind == "share" else float(value)


def described(metrics: Sequence[OwnMetric]) -> dict[str, dict[str, str]]:
    """What page and console need to write the metrics, for metrics.json."""
    return {one.name: {"label": one.label, "kind": one.kind, "note": one.note} for one in metrics}
