"""Intervals and tests agree with published values and with scipy, and hold their level."""

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, norm, t

from distill.stats import intervals


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (10, 10), (1, 3), (71, 100), (426, 600)])
def test_wilsons_interval_is_scipys(successes: int, n: int):
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert intervals.wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0, 0.1611)), (1, 29, (0.0061, 0.1718))],
)
def test_wilsons_interval_has_newcombes_published_values(successes: int, n: int, expected: tuple[float, float]):
    """Newcombe 1998, Statistics in Medicine 17, table I, method 3."""
    assert intervals.wilson(successes, n) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("only_first", "only_second", "agreeing", "p"),
    # Airway reactions before and after a transplantation (Fagerland, Lydersen and Laake 2013); cultures of sputum on
    # two media (Armitage and Berry 1994).
    [(1, 7, 13, 0.070), (12, 2, 36, 0.0129)],
)
def test_the_exact_mcnemar_test_has_published_values(only_first: int, only_second: int, agreeing: int, p: float):
    first = [True] * only_first + [False] * only_second + [True] * agreeing
    second = [False] * only_first + [True] * only_second + [True] * agreeing
    assert intervals.paired(first, second).p == pytest.approx(p, abs=5e-4)


def test_the_interval_without_questions_is_0_to_1():
    assert intervals.wilson(0, 0) == (0.0, 1.0)


def test_a_paired_difference_counts_who_alone_was_right():
    first = [True] * 15 + [False] * 5 + [True] * 10
    second = [False] * 15 + [True] * 5 + [True] * 10
    found = intervals.paired(first, second)
    assert found.delta == pytest.approx(10 / 30)
    assert (found.only_first, found.only_second, found.n) == (15, 5, 30)
    # Exact McNemar: 15 of 20 disagreements, two-sided binomial.
    assert found.p == pytest.approx(0.04138946533203125)
    # Bonett and Price: (16 - 6) / 32 -+ 1.96 sqrt((22 / 32 - (10 / 32)^2) / 32).
    assert found.ci95 == pytest.approx((0.0464020, 0.5785980), abs=1e-6)


def test_arms_that_always_agree_differ_by_nothing_yet_not_for_certain():
    found = intervals.paired([True, False] * 20, [True, False] * 20)
    assert found.delta == 0 and found.p == 1.0
    assert found.ci95[0] < 0 < found.ci95[1]


def test_arms_with_other_questions_cannot_be_compared():
    with pytest.raises(ValueError, match="the same questions"):
        intervals.paired([True], [True, False])


@pytest.mark.parametrize(("gain", "loss", "n"), [(0.1, 0.02, 60), (0.3, 0.1, 200), (0.02, 0.02, 60)])
def test_the_paired_interval_covers_the_truth_about_as_often_as_it_says(gain: float, loss: float, n: int):
    chance = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        only_first, only_second, both = chance.multinomial(n, [gain, loss, 1 - gain - loss])
        found = intervals.paired(
            [True] * only_first + [False] * only_second + [True] * both,
            [False] * only_first + [True] * only_second + [True] * both,
        )
        covered += found.ci95[0] <= gain - loss <= found.ci95[1]
    assert covered >= 930


SKEWED = np.random.default_rng(3).exponential(size=60)
SHARES = (np.random.default_rng(4).random(60) < 0.1) * 1.0


@pytest.mark.parametrize("values", [SKEWED, SHARES, -SKEWED])
def test_the_bootstrap_of_a_mean_is_scipys_bca(values: np.ndarray):
    generator = np.random.default_rng(5)
    level = 2 * norm.cdf(t.ppf(0.975, len(values) - 1) * np.sqrt(len(values) / (len(values) - 1))) - 1
    result = bootstrap((values,), np.mean, method="BCa", n_resamples=1500, rng=generator, confidence_level=level)
    expected = result.confidence_interval
    assert intervals.bootstrap_mean(values, seed=5, resamples=1500) == pytest.approx(tuple(expected), abs=1e-12)


def test_chunks_of_resamples_change_nothing(monkeypatch: pytest.MonkeyPatch):
    whole = intervals.bootstrap_mean(SKEWED)
    monkeypatch.setattr(intervals, "_DRAWS_AT_ONCE", 999)
    assert intervals.bootstrap_mean(SKEWED) == whole
    assert intervals.bootstrap_mean(SKEWED, seed=1) != whole


def test_a_mean_of_few_or_of_equal_values_has_no_interval():
    assert intervals.bootstrap_mean([]) is None and intervals.bootstrap_mean([0.5, 0.6, 0.7, 0.9]) is None
    # 20 questions of which one in ten has a value above zero are all zero in 12 % of cases.
    assert intervals.bootstrap_mean([0.1] * 30) is None


@pytest.mark.parametrize("n", [5, 10, 20])
def test_the_interval_of_a_mean_of_few_values_holds_the_truth_about_as_often_as_it_says(n: int):
    chance = np.random.default_rng(6)
    held = 0
    for run in range(400):
        low, high = intervals.bootstrap_mean(chance.normal(size=n), seed=run, resamples=1000)
        held += low <= 0 <= high
    assert held / 400 >= (0.88 if n == 5 else 0.91)


def skewed(chance: np.random.Generator) -> np.ndarray:
    """Scores of questions as ROUGE gives them: most are 0, some anything."""
    return (chance.random(100) < 0.1) * chance.random(100)


def test_the_bootstrap_of_a_mean_covers_the_truth_about_as_often_as_it_says():
    chance = np.random.default_rng(0)
    found = [intervals.bootstrap_mean(skewed(chance), seed=run, resamples=500) for run in range(500)]
    below, above = sum(high < 0.05 for _, high in found), sum(low > 0.05 for low, _ in found)
    assert 0.92 <= 1 - (below + above) / 500 <= 0.98
    assert abs(below - above) <= 15


def test_a_paired_bootstrap_knows_that_both_arms_answered_the_same_questions():
    chance = np.random.default_rng(1)
    hard = chance.random(400)
    first, second = (np.clip(hard + 0.05 * chance.normal(size=400) + gain, 0, 1) for gain in (0.02, 0.0))
    low, high = intervals.bootstrap_difference(first, second)
    alone = intervals.bootstrap_mean(first), intervals.bootstrap_mean(second)
    assert 0 < low < first.mean() - second.mean() < high
    assert (high - low) < 0.4 * min(end - start for start, end in alone)
    with pytest.raises(ValueError, match="the same questions"):
        intervals.bootstrap_difference([1.0], [1.0, 0.0])


def test_a_paired_bootstrap_covers_the_truth_about_as_often_as_it_says():
    chance = np.random.default_rng(2)
    covered = 0
    for run in range(500):
        gains = chance.choice([1.0, 0.0, -1.0], p=[0.2, 0.7, 0.1], size=200)
        low, high = intervals.bootstrap_difference(
            np.maximum(gains, 0), np.maximum(-gains, 0), seed=run, resamples=500
        )
        covered += low <= 0.1 <= high
    assert 0.92 <= covered / 500 <= 0.98
