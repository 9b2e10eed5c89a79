"""Metrics of users: from a file that the recipe names, or from an installed package.

Such a metric is an entry like the project's own metrics (student/inference/reply_metrics.py describes the fields). It
appears in the same places: values of replies, sums, differences of arms, page and console.
"""

import copy
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from distill import extensions
from distill.errors import RecipeError
from distill.recipe.recipe import Recipe
from distill.types import Sample
from distill.word_tables import counted
from student.inference.reply_metrics import Metric, Prediction, describe_metric, metric_values

_KEY = "eval.metrics"
FAILED = "own_failed"
"""In a prediction: why metrics from outside have no value for it, by their names."""


class UserMetric(Metric):
    """A user's metric: an entry like the project's own metrics; its name begins with own_."""

    __slots__ = ()


def user_metrics(recipe: Recipe) -> tuple[UserMetric, ...]:
    """The metrics of eval.metrics. Raises RecipeError for one that cannot be used."""
    return tuple(metric.loaded for metric in _loaded(recipe))


def metric_codes(recipe: Recipe) -> dict[str, str]:
    """The digest of the code of each metric, by its name."""
    return {metric.loaded.name: metric.code for metric in _loaded(recipe)}


def _loaded(recipe: Recipe) -> list[extensions.Extension]:
    metrics: dict[str, extensions.Extension] = {}
    for value in recipe.eval.metrics:
        metric = extensions.load(extensions.METRICS, value, _KEY, recipe.path.parent, _lacking)
        if metric.loaded.name in metrics:
            raise RecipeError(
                f"{_KEY} = {value!r}: another metric has the name {metric.loaded.name!r}; choose another name"
            )
        metrics[metric.loaded.name] = metric
    return list(metrics.values())


def _lacking(metric: Any) -> str:
    if not isinstance(metric, UserMetric):
        return f"a metric is a student.evaluation.user_metrics.UserMetric, this is {type(metric).__name__}"
    if fault := extensions.field_fault(metric):
        return fault
    if not re.fullmatch(r"own_[a-z0-9_]+", metric.name):
        return f"its name must begin with own_ and consist of small letters, digits and _, got {metric.name!r}"
    if metric.field or metric.equals is not None:
        return "field and equals are for the project's own metrics; its value is a function"
    if metric.compared and metric.kind != "share":
        return "only a share is compared between arms; set kind = 'share' or leave compared out"
    if metric.value is None:
        return "its value must be a function of a sample and a prediction"
    return extensions.call_fault(metric.value, "sample", "prediction")


def own_values(metrics: Iterable[UserMetric], sample: Sample, prediction: Prediction) -> Prediction:
    """The value of each metric for a reply. If a metric fails, the reply does not count, and FAILED has the
    reason."""
    values: Prediction = {}
    failed: dict[str, str] = {}
    for metric in metrics:
        try:
            values |= metric_values((metric,), sample.copy(), copy.deepcopy(prediction))
        except RecipeError as error:
            values[metric.name], failed[metric.name] = None, str(error)
    return values | ({FAILED: failed} if failed else {})


def describe_metrics(metrics: Sequence[UserMetric], predictions: Sequence[Prediction]) -> dict[str, dict[str, Any]]:
    """Descriptions of the metrics for page and console, for metrics.json; notes and warnings name failures.

    Raises RecipeError for a metric that failed on all replies.
    """
    described = {}
    for metric in metrics:
        described[metric.name] = describe_metric(metric)
        failures = [each[FAILED][metric.name] for each in predictions if metric.name in each.get(FAILED, ())]
        if not failures:
            continue
        count = f"{len(failures):,} of {counted(len(predictions), 'reply', 'replies')}"
        if len(failures) == len(predictions):
            raise RecipeError(f"{_KEY}: {metric.name} has no value for {count}; the first: {failures[0]}")
        failure = f"It failed on {count}, which do not count."
        described[metric.name]["note"] = f"{metric.note} {failure}".strip()
        logging.getLogger(__name__).warning(f"{_KEY}: {metric.name}: {failure} The first: {failures[0]}")
    return described
