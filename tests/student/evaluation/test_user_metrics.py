"""What a metric from a user's file may give, and what it may not change."""

import math

import pytest

from distill.errors import RecipeError
from distill.types import Sample
from student.evaluation.user_metrics import UserMetric
from student.inference.reply_metrics import aggregate, metric_values

SAMPLE = Sample(id="s", images=(), question="How high?", answers=("4",), answer_type=None, domain="charts", meta={})


def metric(kind, value):
    return UserMetric(name="own_x", label="x", kind=kind, value=value)


def raising(error):
    raise error


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("share", 0.5, "gave 0.5; its kind is 'share', so it gives true or false, or None"),
        ("share", "yes", "gave 'yes'"),
        ("mean", 1e308, r"so it gives a number smaller than 1e\+100"),
        ("mean", 10**400, "so it gives a number smaller"),
        ("mean", math.nan, "gave nan"),
        ("mean", "4", "gave '4'"),
    ],
)
def test_a_value_that_is_none_of_its_kind_is_refused(kind, value, reason):
    with pytest.raises(RecipeError, match=reason):
        metric_values((metric(kind, lambda sample, prediction: value),), SAMPLE, {})


@pytest.mark.parametrize("error", [SystemExit(1), ValueError("half \ud800")])
def test_a_metric_that_ends_or_fails_is_named(error):
    with pytest.raises(RecipeError, match=f"own_x on sample s failed: {type(error).__name__}") as found:
        metric_values((metric("mean", lambda sample, prediction: raising(error)),), SAMPLE, {})
    assert str(found.value).encode()


def test_the_largest_values_have_a_finite_mean_and_interval():
    made = metric("mean", lambda sample, prediction: prediction["n"] * 9e99)
    said = [metric_values((made,), SAMPLE, {"n": n}) for n in (-1, 1, 1, 0.5, 0)]
    found = aggregate(made, said)
    assert all(map(math.isfinite, (found["own_x"], *found["own_x_ci95"])))


def test_a_metric_cannot_change_the_reply():
    prediction = {"domain": "charts"}
    assert metric_values((metric("share", lambda sample, reply: reply.clear() is None),), SAMPLE, prediction) == {
        "own_x": True
    }
    assert prediction == {"domain": "charts"}
