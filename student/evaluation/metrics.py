"""Computes eval/metrics.json: the metrics of every arm over its scored predictions, and the arms compared.

Pure functions over predictions: nothing here reads, writes or generates. Undecided answers are not correct, and are
counted apart. A share or mean named X has its interval in X_ci95 (Wilson's for shares, BCa bootstrap for means). If
not all replies count, X_n is the number of replies. A metric to which no reply applies is None, never 0.
"""

import hashlib
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from distill.stats import intervals
from student.evaluation.error_breakdown import error_breakdown
from student.evaluation.user_metrics import UserMetric, describe_metrics
from student.inference.reply_metrics import BUILT_IN, Metric, Prediction, aggregate
from student.inference.scoring import summarize_predictions

Predictions = Sequence[Prediction]

MEASURES = 12
"""Raised with every change of what `compute_metrics`, or the scoring before it, gives: an evaluation that an earlier
version measured is measured again from the replies that it kept, nothing is asked again."""
WINDOW = 50
"""Questions in one window of the running accuracy."""
_POINTS = 100
_LEVELS = 8
"""Up to this number of different numbers of difficulty, each is shown by itself."""
_TERCILES = ("easy", "medium", "hard")
_PARTS = ("lowest", "middle", "highest")


def compute_metrics(
    predictions: Mapping[str, Predictions],
    *,
    seed: int,
    facts: Mapping[str, Mapping[str, Any]],
    without_image: Mapping[str, Predictions] | None = None,
    own: Sequence[UserMetric] = (),
) -> dict[str, Any]:
    """The metrics of every arm, and of every later arm against every earlier one.

    `predictions`: the predictions of each arm, with the same order of questions for every arm; the order of arms is
    kept. `facts`: other facts of an arm (its stage, its cost in training), written beside its metrics.
    `without_image`: predictions of the same arms to questions asked without their images. `own`: metrics defined by
    the recipe; the predictions hold their values.
    """
    predictions_without_image = without_image or {}
    names = list(predictions)
    deltas = {
        f"{later}-{earlier}": _delta(predictions[later], predictions[earlier], (*BUILT_IN, *own))
        for position, later in enumerate(names)
        for earlier in names[:position]
    }
    return {
        "arms": {
            arm: {**arm_metrics(predictions[arm], predictions_without_image.get(arm, ()), own), **facts.get(arm, {})}
            for arm in names
        },
        "deltas": deltas,
        "seed": seed,
        **(
            {"own_metrics": describe_metrics(own, [each for arm in predictions.values() for each in arm])}
            if own
            else {}
        ),
    }


def arm_metrics(
    predictions: Predictions, without_image: Predictions = (), own: Sequence[UserMetric] = ()
) -> dict[str, Any]:
    """Everything about one arm: as a whole, by cause of error, by domain, by difficulty, and without its images."""
    return {
        **group_metrics(predictions, own),
        **error_breakdown(predictions),
        **running_accuracy(predictions),
        "domains": {name: group_metrics(group, own) for name, group in _by_domain(predictions).items()},
        "difficulty": {name: group_metrics(group, own) for name, group in by_difficulty(predictions).items()},
        "without_image": metrics_without_image(predictions, without_image),
    }


def group_metrics(predictions: Predictions, own: Sequence[UserMetric] = ()) -> dict[str, Any]:
    """The metrics of one or more predictions, as a flat mapping.

    student/inference/reply_metrics.py says what each metric is.
    """
    lengths = [
        prediction["rationale_tokens"] for prediction in predictions if prediction["rationale_tokens"] is not None
    ]
    consistent = [prediction for prediction in predictions if prediction.get("consistent") is True]
    inconsistent = [prediction for prediction in predictions if prediction.get("consistent") is False]
    return {
        **summarize_predictions(predictions),
        **{key: value for metric in (*BUILT_IN, *own) for key, value in aggregate(metric, predictions).items()},
        "median_rationale_tokens": float(statistics.median(lengths)) if lengths else None,
        "p95_rationale_tokens": float(np.quantile(lengths, 0.95)) if lengths else None,
        **_share("accuracy_when_consistent", map(_correct, consistent)),
        **_share("accuracy_when_inconsistent", map(_correct, inconsistent)),
    }


def running_accuracy(predictions: Predictions) -> dict[str, Any]:
    """The accuracy so far along the questions, and how much it varies from window to window of 50 of them.

    The questions are ordered by a hash, so the order is independent of domain and difficulty, and the same for every
    arm. `running_accuracy`: [questions so far, accuracy], at most 100 of them. `volatility`: standard deviation of
    the accuracy of whole consecutive windows. `volatility_expected`: its value by chance alone, sqrt(p (1 - p) / 50).
    `volatility_ratio`: the ratio of both, with its 95 % range by chance (chi-square of the number of windows). In
    such an order every student is about as volatile as chance, so that a curve looks calmer is no finding by itself.
    """
    from scipy.stats import chi2

    ordered = [
        _correct(prediction)
        for prediction in sorted(predictions, key=lambda prediction: _order_key(prediction["sample_id"]))
    ]
    n = len(ordered)
    step = math.ceil(n / _POINTS)
    question_counts = sorted({*range(step, n + 1, step), n})
    totals, so_far = [0], 0
    for right in ordered:
        so_far += right
        totals.append(so_far)
    windows = [(totals[end] - totals[end - WINDOW]) / WINDOW for end in range(WINDOW, n + 1, WINDOW)]
    share = so_far / n
    volatility = expected = ratio = by_chance = None
    if (free := len(windows) - 1) > 0:
        volatility, expected = statistics.stdev(windows), math.sqrt(share * (1 - share) / WINDOW)
        if expected:
            ratio = volatility / expected
            by_chance = tuple(math.sqrt(float(chi2.ppf(end, free)) / free) for end in (0.025, 0.975))
    return {
        "running_accuracy": [[index, totals[index] / index] for index in question_counts],
        "volatility": volatility,
        "volatility_expected": expected,
        "volatility_ratio": ratio,
        "volatility_ratio_by_chance": by_chance,
        "volatility_n": len(windows),
    }


def metrics_without_image(predictions: Predictions, without_image: Predictions) -> dict[str, Any] | None:
    """The same questions asked without their images, and what the images add to each; None if none was asked.

    `gain` is the accuracy with the image less that without, on the questions asked both ways.
    """
    if not without_image:
        return None
    seen = {prediction["sample_id"]: prediction for prediction in predictions}
    return {
        **_image_gain(without_image, seen),
        "domains": {name: _image_gain(group, seen) for name, group in _by_domain(without_image).items()},
    }


def _image_gain(predictions: Predictions, seen: Mapping[str, Prediction]) -> dict[str, Any]:
    both = [
        (seen[prediction["sample_id"]], prediction) for prediction in predictions if prediction["sample_id"] in seen
    ]
    gain = (
        _paired([_correct(prediction) for prediction, _ in both], [_correct(prediction) for _, prediction in both])
        if both
        else None
    )
    return {**summarize_predictions(predictions), "gain": gain}


def by_difficulty(predictions: Predictions) -> dict[str, list[Prediction]]:
    """Predictions by the difficulty that their source gives: its own values where they are words or few numbers.

    More than 8 different numbers are grouped into terciles by value (higher is harder; equal values stay together).
    The groups are named easy, medium and hard, or lowest, middle and highest if one of these words is itself a value.
    Words among them stay groups of their own. Questions without a difficulty are in no group.
    """
    names_of: dict[Any, str] = {}
    known = []
    for prediction in predictions:
        value = prediction.get("difficulty")
        if value is None or _is_nan(value):
            continue
        number = _number(value)
        # 1, 1.0 and "1" are one level, with the name of the first.
        known.append((prediction, names_of.setdefault(str(value) if number is None else number, str(value))))
    result: dict[str, list[Prediction]] = {}
    numbers = sorted(number for _, value in known if (number := _number(value)) is not None)
    words = {value.lower() for _, value in known if _number(value) is None}
    names = _TERCILES if words.isdisjoint(_TERCILES) else _PARTS
    if are_cut := len(set(numbers)) > _LEVELS:
        first, second = (numbers[math.ceil(len(numbers) * part / 3) - 1] for part in (1, 2))
        result = {name: [] for name in names}
    cut = [(prediction, number) for prediction, value in known if are_cut and (number := _number(value)) is not None]
    for prediction, number in cut:
        result[names[(number > first) + (number > second)]].append(prediction)
    for prediction, value in sorted(known, key=lambda item: _level(item[1])):
        if not are_cut or _number(value) is None:
            result.setdefault(value, []).append(prediction)
    return {name: group for name, group in result.items() if group}


def _level(value: str) -> tuple[int, float, str]:
    """Levels in their order: easy to hard, numbers by value, other words by the alphabet."""
    if value.lower() in _TERCILES:
        return 0, _TERCILES.index(value.lower()), value
    number = _number(value)
    return (2, 0.0, value) if number is None else (1, number, value)


def _is_nan(value: Any) -> bool:
    """Whether a value is what tables write for none."""
    return isinstance(value, float) and math.isnan(value)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _by_domain(predictions: Predictions) -> dict[str, list[Prediction]]:
    names = sorted({prediction["domain"] for prediction in predictions})
    return {name: [prediction for prediction in predictions if prediction["domain"] == name] for name in names}


def _correct(prediction: Prediction) -> bool:
    return bool(prediction["verdict"] == "correct")


def _order_key(sample_id: str) -> bytes:
    return hashlib.sha256(f"running\0{sample_id}".encode()).digest()


def _share(name: str, flags: Iterable[bool | None]) -> dict[str, Any]:
    known = [bool(flag) for flag in flags if flag is not None]
    n, count = len(known), sum(known)
    return {name: count / n if n else None, f"{name}_ci95": intervals.wilson(count, n) if n else None, f"{name}_n": n}


def _delta(later: Predictions, earlier: Predictions, metrics: Sequence[Metric]) -> dict[str, Any]:
    """The paired difference of accuracy, and of each compared metric where both replies have a value."""
    domains, before = _by_domain(later), _by_domain(earlier)
    others: dict[str, Any] = {}
    for metric in metrics:
        if not metric.compared:
            continue
        flags = [(metric.of(one), metric.of(other)) for one, other in zip(later, earlier, strict=True)]
        both = [(bool(one), bool(other)) for one, other in flags if one is not None and other is not None]
        others[metric.name] = _paired([one for one, _ in both], [other for _, other in both]) if both else None
    return {
        **_paired(list(map(_correct, later)), list(map(_correct, earlier))),
        **others,
        "domains": {
            name: _paired(list(map(_correct, domains[name])), list(map(_correct, before[name]))) for name in domains
        },
    }


def _paired(first: Sequence[bool], second: Sequence[bool]) -> dict[str, Any]:
    return {
        **asdict(intervals.paired(first, second)),
        "bootstrap_ci95": intervals.bootstrap_difference(first, second),
    }
