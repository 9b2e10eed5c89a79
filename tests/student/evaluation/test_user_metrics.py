"""What a metric from a user's file may give, and what it may not change."""

import math

import pytest

from distill.errors import RecipeError
from distill.types import Sample
from student.evaluation.user_metrics import FAILED, UserMetric, describe_metrics, own_values
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


def test_replies_on_which_a_metric_fails_do_not_count_and_are_told(caplog):
    made = metric("mean", lambda sample, prediction: prediction["parts"].pop() / prediction["n"])
    replies = [{"n": n, "parts": [8]} for n in (0, 2, 4)]
    said = [reply | own_values((made,), SAMPLE, reply) for reply in replies]
    assert [(each["own_x"], each["parts"]) for each in said] == [(None, [8]), (4.0, [8]), (2.0, [8])]
    assert "ZeroDivisionError" in said[0][FAILED]["own_x"] and FAILED not in said[1]
    assert aggregate(made, said)["own_x_n"] == 2
    note = "It failed on 1 of 3 replies, which do not count."
    assert describe_metrics((made,), said)["own_x"]["note"] == note and note in caplog.text
    with pytest.raises(RecipeError, match=r"own_x has no value for 1 of 1 reply; the first: .* on sample s failed"):
        describe_metrics((made,), said[:1])


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


def test_a_metric_cannot_change_the_sample_that_the_figures_of_the_project_read():
    shown = Sample(id="s", images=(), question="How many?", meta={"table": {"red": 4}})
    made = metric("share", lambda sample, prediction: sample.meta["table"].clear() is sample.meta.clear())
    assert own_values((made,), shown, {}) == {"own_x": True}
    assert shown.meta == {"table": {"red": 4}}
