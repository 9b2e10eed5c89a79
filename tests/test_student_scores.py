"""Intervals and tests agree with scipy and hold their level."""

import numpy as np
import pytest
from scipy.stats import binomtest

from student import scores


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (1, 3), (71, 100), (426, 600)])
def test_wilsons_interval_is_scipys(successes: int, n: int):
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert scores.wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_question_tells_nothing():
    assert scores.wilson(0, 0) == (0.0, 1.0)


def test_a_paired_difference_counts_who_alone_was_right():
    first = [True] * 15 + [False] * 5 + [True] * 10
    second = [False] * 15 + [True] * 5 + [True] * 10
    found = scores.paired(first, second)
    assert found.delta == pytest.approx(10 / 30)
    assert (found.only_first, found.only_second, found.n) == (15, 5, 30)
    # Exact McNemar: 15 of 20 disagreements, two-sided binomial.
    assert found.p == pytest.approx(0.04138946533203125)
    # Bonett and Price: (16 - 6) / 32 -+ 1.96 sqrt((22 / 32 - (10 / 32)^2) / 32).
    assert found.ci95 == pytest.approx((0.0464020, 0.5785980), abs=1e-6)


def test_arms_that_always_agree_differ_by_nothing_yet_not_for_certain():
    found = scores.paired([True, False] * 20, [True, False] * 20)
    assert found.delta == 0 and found.p == 1.0
    assert found.ci95[0] < 0 < found.ci95[1]


def test_arms_with_other_questions_cannot_be_compared():
    with pytest.raises(ValueError, match="the same questions"):
        scores.paired([True], [True, False])


@pytest.mark.parametrize(("gain", "loss", "n"), [(0.1, 0.02, 60), (0.3, 0.1, 200), (0.02, 0.02, 60)])
def test_the_paired_interval_covers_the_truth_about_as_often_as_it_says(gain: float, loss: float, n: int):
    chance = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        only_first, only_second, both = chance.multinomial(n, [gain, loss, 1 - gain - loss])
        found = scores.paired(
            [True] * only_first + [False] * only_second + [True] * both,
            [False] * only_first + [True] * only_second + [True] * both,
        )
        covered += found.ci95[0] <= gain - loss <= found.ci95[1]
    assert covered >= 930
