"""What metrics.json holds, on predictions small enough to work out by hand."""

import math
import random
from typing import Any

import numpy as np
import pytest

from distill.stats import intervals
from distill.types import Sample
from student.evaluation import metrics
from student.evaluation.metrics import (
    by_difficulty,
    compute_metrics,
    group_metrics,
    metrics_without_image,
    running_accuracy,
)
from student.inference.scoring import score_reply


def line(number: int, right: bool = True, **more: Any) -> dict[str, Any]:
    """A prediction; what is not given is what a short, well-formed answer without a rationale has."""
    return {
        "sample_id": f"s{number}", "domain": "d", "difficulty": None, "verdict": "correct" if right else "wrong",
        "well_formed": True, "truncated": False, "tokens": 2, "rationale_tokens": 0, "exact": right, "relaxed": right,
        "anls": float(right), "vqa_accuracy": None, "rouge_l": 0.5, "rationale_rouge_l": None, "consistent": None,
        "checked_values": None, "unsupported_values": None, "unsupported": None, **more,
    }  # fmt: skip


def lines(flags: list[bool], **more: Any) -> list[dict[str, Any]]:
    return [line(number, flag, **more) for number, flag in enumerate(flags)]


def test_every_share_has_its_interval_and_its_number_of_replies():
    found = group_metrics(
        [
            line(0, well_formed=False, truncated=True),
            line(1, right=False, relaxed=True),
            line(2, verdict="undecided", exact=False),
            line(3),
        ]
    )
    expected = {
        "accuracy": 2, "exact_accuracy": 2, "relaxed_accuracy": 4, "undecided_rate": 1, "format_rate": 3,
        "truncation_rate": 1,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == {name: count / 4 for name, count in expected.items()}
    assert found["ci95"] == intervals.wilson(2, 4)
    for name in list(expected)[1:]:
        assert (found[f"{name}_ci95"], found[f"{name}_n"]) == (intervals.wilson(expected[name], 4), 4)


def test_hallucination_is_over_the_replies_in_which_something_could_be_checked():
    counts = [None, 0, 3, 0, 1, None]
    found = group_metrics([line(number, unsupported_values=count) for number, count in enumerate(counts)])
    assert (found["hallucination_rate"], found["hallucination_rate_n"]) == (0.5, 4)
    assert found["hallucination_rate_ci95"] == intervals.wilson(2, 4)
    assert (found["mean_unsupported_values"], found["mean_unsupported_values_n"]) == (1.0, 4)
    assert found["mean_unsupported_values_ci95"] == intervals.bootstrap_mean([0, 3, 0, 1])


def test_consistency_splits_accuracy():
    replies = [(True, True), (True, True), (True, False), (False, True), (None, True)]
    found = group_metrics([line(number, right, consistent=flag) for number, (flag, right) in enumerate(replies)])
    assert (found["consistency_rate"], found["consistency_rate_n"]) == (3 / 4, 4)
    assert (found["accuracy_when_consistent"], found["accuracy_when_consistent_n"]) == (2 / 3, 3)
    assert (found["accuracy_when_inconsistent"], found["accuracy_when_inconsistent_n"]) == (1, 1)
    assert found["accuracy_when_inconsistent_ci95"] == intervals.wilson(1, 1)


def test_what_no_reply_can_tell_is_unknown_not_zero():
    found = group_metrics(lines([True, False]))
    unknown = (
        "hallucination_rate", "consistency_rate", "accuracy_when_consistent", "accuracy_when_inconsistent",
        "mean_unsupported_values", "vqa_accuracy", "rationale_rouge_l", "mean_seconds",
    )  # fmt: skip
    assert [found[name] for name in unknown] == [None] * len(unknown)
    unknown = unknown[:-1]
    assert [found[f"{name}_ci95"] for name in unknown] == [None] * len(unknown)
    assert [found[f"{name}_n"] for name in unknown] == [0] * len(unknown)


def test_predictions_of_an_older_version_still_have_their_figures():
    kept = ("sample_id", "domain", "verdict", "well_formed", "truncated", "tokens", "rationale_tokens")
    old = [{name: found[name] for name in kept} for found in lines([True, False, True])]
    found = compute_metrics({"arm": old}, seed=0, facts={})["arms"]["arm"]
    assert found["accuracy"] == 2 / 3 and found["exact_accuracy"] is None and found["difficulty"] == {}


def test_lengths_and_seconds_have_mean_median_and_95th_percentile():
    chance = random.Random(0)
    lengths = [int(chance.expovariate(0.02)) for _ in range(77)]
    seconds = [chance.random() for _ in range(77)]
    found = group_metrics(
        [line(n, rationale_tokens=lengths[n], tokens=lengths[n] + 2, seconds=seconds[n]) for n in range(77)]
    )
    assert found["mean_rationale_tokens"] == pytest.approx(np.mean(lengths))
    assert found["median_rationale_tokens"] == np.median(lengths)
    assert found["p95_rationale_tokens"] == pytest.approx(np.quantile(lengths, 0.95))
    assert found["mean_tokens"] == pytest.approx(np.mean(lengths) + 2)
    assert found["mean_seconds"] == pytest.approx(np.mean(seconds))
    # The replies of a batch have one share of its seconds each: no interval of independent values fits them.
    assert "mean_seconds_ci95" not in found
    uncounted = group_metrics([line(0, tokens=None, rationale_tokens=None), line(1, tokens=4, rationale_tokens=None)])
    assert uncounted["mean_tokens"] == 4 and uncounted["p95_rationale_tokens"] is None


def test_rouge_has_a_mean_and_a_bootstrap_interval():
    values = [0.0, 0.1, 0.0, 0.4, 0.2]
    found = group_metrics([line(number, rouge_l=value) for number, value in enumerate(values)])
    assert found["rouge_l"] == pytest.approx(0.14)
    assert found["rouge_l_ci95"] == intervals.bootstrap_mean(values)


def test_running_accuracy_is_that_of_the_questions_so_far_in_an_order_that_knows_no_domain():
    flags = [number < 60 for number in range(120)]
    found = running_accuracy(lines(flags))
    # One point every second question; the domain of right answers comes first in the file, not in the curve.
    assert [place for place, _ in found["running_accuracy"]] == list(range(2, 121, 2))
    assert found["running_accuracy"][-1] == [120, 0.5]
    assert all(0.2 < share < 0.8 for place, share in found["running_accuracy"] if place >= 20)
    shuffled = random.Random(0).sample(lines(flags), 120)
    assert running_accuracy(shuffled) == found


@pytest.mark.parametrize("n", [1, 99, 100, 101, 250, 1234])
def test_running_accuracy_has_at_most_a_hundred_points_and_ends_with_all_questions(n: int):
    points = running_accuracy(lines([True] * n))["running_accuracy"]
    assert len(points) <= 100 and points[-1] == [n, 1.0]


def test_volatility_is_the_spread_of_windows_of_fifty_questions(monkeypatch: pytest.MonkeyPatch):
    # In the order of the numbers, three windows have 10, 20 and 30 right answers; 20 questions are left over.
    monkeypatch.setattr(metrics, "_order_key", lambda name: int(name[1:]).to_bytes(4))
    flags = [number % 50 < 10 * (number // 50 + 1) for number in range(150)] + [True] * 20
    found = running_accuracy(lines(flags))
    share = (10 + 20 + 30 + 20) / 170
    assert found["volatility"] == pytest.approx(0.2) and found["volatility_n"] == 3
    assert found["volatility_expected"] == pytest.approx(math.sqrt(share * (1 - share) / 50))
    assert found["volatility_ratio"] == pytest.approx(0.2 / found["volatility_expected"])
    # Chi-square with two degrees of freedom: quantiles -2 ln(0.975) and -2 ln(0.025).
    assert found["volatility_ratio_by_chance"] == pytest.approx(
        [math.sqrt(-math.log(0.975)), math.sqrt(-math.log(0.025))]
    )


def test_volatility_needs_two_windows_and_answers_that_differ():
    few = running_accuracy(lines([True, False] * 49))
    assert few["volatility"] is None and few["volatility_expected"] is None and few["volatility_ratio"] is None
    right = running_accuracy(lines([True] * 100))
    assert right["volatility"] == 0 and right["volatility_expected"] == 0 and right["volatility_ratio"] is None


def test_volatility_is_what_chance_gives_as_often_as_its_range_says():
    chance = random.Random(0)
    inside, ratios = 0, []
    for _ in range(200):
        found = running_accuracy(lines([chance.random() < 0.7 for _ in range(500)]))
        low, high = found["volatility_ratio_by_chance"]
        inside += low <= found["volatility_ratio"] <= high
        ratios.append(found["volatility_ratio"])
    assert 0.92 <= inside / 200 <= 0.98
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=0.08)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["hard", "easy", None, "medium", "hard"], {"easy": [1], "medium": [3], "hard": [0, 4]}),
        ([10, 2, 2, "1"], {"1": [3], "2": [1, 2], "10": [0]}),
        (["human", "augmented", "human"], {"augmented": [1], "human": [0, 2]}),
        # Nine different numbers: three each, by value.
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], {"easy": [6, 7, 8], "medium": [3, 4, 5], "hard": [0, 1, 2]}),
        # Equal values stay together, so groups may be uneven.
        (
            [0.5] * 6 + [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9],
            {"easy": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "hard": [10, 11, 12, 13]},
        ),
        # A word among many numbers is a group of its own, and the numbers are cut as without it.
        (
            [9, "unknown", 8, 7, 6, 5, 4, 3, 2, 1, "nan"],
            {"easy": [7, 8, 9], "medium": [4, 5, 6], "hard": [0, 2, 3], "nan": [10], "unknown": [1]},
        ),
        (
            ["Hard", *range(9)],
            {"lowest": [1, 2, 3], "middle": [4, 5, 6], "highest": [7, 8, 9], "Hard": [0]},
        ),
        ([None, None], {}),
        ([2, 1, 1.0, "1", "2", math.nan], {"1": [1, 2, 3], "2": [0, 4]}),
    ],
)
def test_difficulties_are_shown_as_they_are_or_in_terciles(values: list[Any], expected: dict[str, list[int]]):
    found = by_difficulty([line(number, difficulty=value) for number, value in enumerate(values)])
    assert {name: [int(each["sample_id"][1:]) for each in group] for name, group in found.items()} == expected
    assert list(found) == list(expected)


def test_many_words_are_no_numbers_to_be_cut():
    found = by_difficulty([line(number, difficulty=f"level {number}") for number in range(12)])
    assert len(found) == 12


def test_what_the_images_add_is_counted_on_the_questions_asked_both_ways():
    seen = lines([True, True, True, False, True])
    blind = lines([True, False, False, True])
    found = metrics_without_image(seen, blind)
    assert found is not None and (found["n"], found["accuracy"]) == (4, 0.5)
    gain = found["gain"]
    assert (gain["delta"], gain["n"], gain["only_first"], gain["only_second"]) == (0.25, 4, 2, 1)
    expected = intervals.paired([True, True, True, False], [True, False, False, True])
    assert (gain["ci95"], gain["p"]) == (expected.ci95, expected.p)
    assert found["domains"]["d"]["gain"] == gain
    assert metrics_without_image(seen, []) is None


def test_arms_are_compared_question_by_question_also_in_what_else_they_do():
    earlier = lines([False, True, False, False])
    later = lines([True, True, True, False])
    for found, count in zip(earlier, [2, 1, None, 1], strict=True):
        found["unsupported_values"] = count
    for found, count in zip(later, [0, 1, 0, 0], strict=True):
        found["unsupported_values"] = count
    found = compute_metrics({"a": earlier, "b": later}, seed=3, facts={"b": {"stage": "reason"}})
    assert list(found["deltas"]) == ["b-a"] and found["seed"] == 3
    assert found["arms"]["b"]["stage"] == "reason" and "stage" not in found["arms"]["a"]
    delta = found["deltas"]["b-a"]
    assert (delta["delta"], delta["only_first"], delta["only_second"]) == (0.5, 2, 0)
    assert delta["bootstrap_ci95"] == intervals.bootstrap_difference([1, 1, 1, 0], [0, 1, 0, 0])
    assert delta["domains"]["d"]["delta"] == 0.5
    assert (delta["hallucination_rate"]["delta"], delta["hallucination_rate"]["n"]) == (-2 / 3, 3)
    assert delta["relaxed_accuracy"]["delta"] == 0.5 and delta["consistency_rate"] is None


def test_figures_by_domain_and_difficulty_are_those_of_their_questions_alone():
    replies = [
        line(0, True, domain="charts", difficulty="easy"),
        line(1, False, domain="charts", difficulty="hard"),
        line(2, True, domain="scenes", difficulty="easy"),
    ]
    found = compute_metrics({"arm": replies}, seed=0, facts={}, without_image={"arm": replies[:2]})["arms"]["arm"]
    assert found["domains"] == {"charts": group_metrics(replies[:2]), "scenes": group_metrics(replies[2:])}
    assert found["difficulty"]["easy"] == group_metrics([replies[0], replies[2]])
    assert found["without_image"] == metrics_without_image(replies, replies[:2])


def test_figures_of_real_replies_are_those_worked_out_by_hand():
    """Five replies to one chart: two invent a value, one of them and another do not answer what they conclude."""
    chart = {"table": {"red": 5, "green": 9}, "difficulty": "easy"}
    texts = [
        "<think>\ngreen 9, red 5: 9 - 5 = 4.\n</think>\n\n4",
        "<think>\ngreen 8, red 5: 8 - 5 = 3.\n</think>\n\n3",
        "<think>\ngreen 8, red 5: 8 - 5 = 3.\n</think>\n\n4",
        "<think>\ngreen 9, red 5: 9 - 5 = 4.\n</think>\n\n7",
        "4",
    ]
    replies = []
    for number, text in enumerate(texts):
        asked = Sample(
            id=f"s{number}", images=(), question="How much higher is green?", answers=("4",), domain="d", meta=chart
        )
        reply = {"text": text, "tokens": 20, "rationale_tokens": 18 * ("think" in text), "truncated": False}
        replies.append(score_reply(asked, reply, plain=False, relative_tolerance=0.0))
    found = group_metrics(replies)
    assert found["accuracy"] == 3 / 5 and found["exact_accuracy"] == 3 / 5
    assert (found["hallucination_rate"], found["hallucination_rate_n"]) == (2 / 4, 4)
    assert found["mean_unsupported_values"] == 2 / 4
    assert (found["consistency_rate"], found["consistency_rate_n"]) == (2 / 4, 4)
    assert found["accuracy_when_consistent"] == 1 / 2 and found["accuracy_when_inconsistent"] == 1 / 2
    assert found["mean_rationale_tokens"] == 18 * 4 / 5 and found["median_rationale_tokens"] == 18
    assert list(by_difficulty(replies)) == ["easy"]
