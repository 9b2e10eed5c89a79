"""Arms paired by seed and question: the interval holds its level, is narrower than unpaired seeds, and claims are
corrected for their number."""

import math

import numpy as np
import pytest

from distill.stats.intervals import wilson
from distill.stats.paired_effects import (
    Deviations,
    PairedEffect,
    holm,
    paired_effect,
    planned_detectable,
    ratio_of_seeds,
    seed_spread,
    share_of_seeds,
)


def differences(rng: np.random.Generator, seeds: int, n: int, effect: float, by_seed: float, by_question: float):
    """Two arms whose true difference is `effect`; the seeds and questions add to it with these deviations."""
    base = rng.uniform(0.2, 0.8, size=n)
    shift = effect + rng.normal(0, by_seed, (seeds, 1)) + rng.normal(0, by_question, (1, n))
    first = rng.random((seeds, n)) < np.clip(base + shift, 0, 1)
    second = rng.random((seeds, n)) < base
    return first.astype(float), second.astype(float)


@pytest.mark.parametrize(
    ("seeds", "by_seed", "by_question"),
    [(3, 0.0, 0.1), (3, 0.02, 0.1), (6, 0.02, 0.0), (6, 0.04, 0.1), (2, 0.02, 0.1), (1, 0.0, 0.1)],
)
def test_an_interval_of_95_percent_holds_the_truth_in_95_percent_of_experiments(
    seeds: int, by_seed: float, by_question: float
):
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        result = paired_effect(*differences(rng, seeds, 200, 0.03, by_seed, by_question))
        held += result.ci95[0] <= 0.03 <= result.ci95[1]
    # Binomial deviation of 400 draws: 1.1 points. Wider than needed is allowed, as few seeds know their spread badly.
    assert 0.92 <= held / 400 <= 1.0


def study(rng: np.random.Generator, seeds: int, by_seed: float, arms: int = 8, n: int = 300) -> list[PairedEffect]:
    """Arms that are each better than one reference by 3 points; runs differ by `by_seed`, the reference's too."""
    base = rng.uniform(0.2, 0.8, size=n)
    draws = rng.random((seeds, n))
    reference = draws < base + rng.normal(0, by_seed, (seeds, 1))
    outcomes = []
    for _ in range(arms):
        own = np.where(rng.random((seeds, n)) < 0.5, draws, rng.random((seeds, n)))
        outcomes.append(own < base + 0.03 + rng.normal(0, by_seed, (seeds, 1)))
    alone = [paired_effect(arm.astype(float), reference.astype(float)) for arm in outcomes]
    spread = seed_spread(alone)
    return [paired_effect(arm.astype(float), reference.astype(float), spread) for arm in outcomes]


@pytest.mark.parametrize("seeds", [2, 3, 6])
@pytest.mark.parametrize("by_seed", [0.0, 0.02, 0.04])
def test_arms_of_one_ablation_know_their_seeds_together_and_keep_their_level(seeds: int, by_seed: float):
    rng = np.random.default_rng(5)
    effects = [effect for _ in range(60) for effect in study(rng, seeds, by_seed)]
    held = np.mean([effect.ci95[0] <= 0.03 <= effect.ci95[1] for effect in effects])
    # Effects of a study share its reference, so 480 of them are worth some 150: a binomial deviation of 1.8 points.
    assert 0.91 <= held <= 1
    # The ideal is that of a known variance: 1.96 times the deviation of the estimates.
    ideal = 1.96 * np.std([effect.delta for effect in effects])
    assert (
        np.mean([effect.ci95[1] - effect.ci95[0] for effect in effects]) / 2 < ideal * {2: 2.2, 3: 1.5, 6: 1.3}[seeds]
    )


def test_fewer_than_three_comparisons_know_nothing_of_how_seeds_differ():
    rng = np.random.default_rng(5)
    assert seed_spread(study(rng, 6, 0.02, arms=2)) is None
    assert seed_spread(study(rng, 6, 0.02, arms=3)) is not None
    one_seed = [paired_effect([[1, 0, 1]], [[0, 0, 1]])] * 5
    assert seed_spread(one_seed) is None


def test_a_plan_foretells_the_half_width_and_the_power_of_the_runs():
    rng = np.random.default_rng(9)
    seen = [effect for _ in range(80) for effect in study(rng, 6, 0.01)]
    parts = [effect.deviations for effect in seen if effect.deviations is not None]
    squares = {name: np.mean([getattr(part, name) ** 2 for part in parts]) for name in ("seed", "question", "rest")}
    typical = Deviations(**{name: float(np.sqrt(square)) for name, square in squares.items()})
    half, detectable = planned_detectable(typical, seeds=6, n=300, comparisons=8, level=0.05)
    assert half == pytest.approx(np.mean([effect.ci95[1] - effect.ci95[0] for effect in seen]) / 2, rel=0.1)
    # The true difference is 3 points: shifted by the rest, the share that is found is the promised one.
    found = [abs(effect.delta - 0.03 + detectable) > half for effect in seen]
    assert 0.72 <= np.mean(found) <= 0.9


def test_a_stricter_level_and_fewer_seeds_find_only_larger_differences():
    parts = Deviations(seed=0.01, question=0.2, rest=0.4)

    def detectable(seeds: int, level: float) -> float:
        return planned_detectable(parts, seeds=seeds, n=900, comparisons=8, level=level)[1]

    assert detectable(6, 0.05) < detectable(6, 0.05 / 15) < detectable(3, 0.05 / 15)


def test_what_a_seed_does_to_both_arms_does_not_widen_the_interval():
    rng = np.random.default_rng(3)
    shared = rng.normal(0, 0.1, (6, 1))
    base = rng.uniform(0.3, 0.7, size=600)
    draws = rng.random((2, 6, 600))

    def width(shift: np.ndarray, order: list[int]) -> float:
        first = (draws[0] < np.clip(base + 0.02 + shift, 0, 1)).astype(float)
        second = (draws[1] < np.clip(base + shift, 0, 1)).astype(float)[order]
        low, high = paired_effect(first, second).ci95
        return high - low

    in_order = [0, 1, 2, 3, 4, 5]
    assert width(shared, in_order) < 1.3 * width(np.zeros((6, 1)), in_order)
    # Paired with another seed's run, the same outcomes have twice that width.
    assert width(shared, [5, 0, 1, 2, 3, 4]) > 2 * width(shared, in_order)


def test_the_detectable_difference_is_found_in_80_percent_of_experiments():
    rng = np.random.default_rng(11)
    sizes = [paired_effect(*differences(rng, 6, 300, 0.0, 0.01, 0.05)).detectable for _ in range(60)]
    size = float(np.mean(sizes))
    found = [paired_effect(*differences(rng, 6, 300, size, 0.01, 0.05)).p < 0.05 for _ in range(300)]
    assert 0.72 <= np.mean(found) <= 0.9


def test_by_hand():
    # Two seeds, three questions; differences 1 0 1 / 1 0 0: mean 1/2.
    result = paired_effect([[1, 0, 1], [1, 0, 0]], [[0, 0, 0], [0, 0, 0]])
    assert result.delta == 0.5
    # Mean squares: seeds 1/6, questions 1/2, rest 1/6; variance = (1/6 + 1/2 - 1/6) / 6, and the degrees of freedom
    # (1/2)^2 / (1/36 / 1 + 1/4 / 2 + 1/36 / 2), as two seeds know their variance with one degree of freedom.
    assert result.standard_error == pytest.approx(math.sqrt(0.5 / 6))
    assert result.degrees_of_freedom == pytest.approx(1.5)
    assert result.seed_ratio == pytest.approx(1)
    assert result.deviations == Deviations(seed=0, question=pytest.approx(math.sqrt(1 / 6)), rest=math.sqrt(1 / 6))


def test_arms_that_never_differ_and_a_single_question():
    same = paired_effect([[1.0, 0.0]] * 3, [[1.0, 0.0]] * 3)
    assert (same.delta, same.ci95, same.p) == (0.0, (0.0, 0.0), 1.0)
    assert paired_effect([[1.0]], [[0.0]]).ci95 == (-1.0, 1.0)


@pytest.mark.parametrize(("first", "second"), [([[1.0]], [[1.0, 0.0]]), ([], []), ([[]], [[]])])
def test_arms_that_are_not_paired_are_refused(first: list, second: list):
    with pytest.raises(ValueError, match="same seeds and questions"):
        paired_effect(first, second)


def test_holm_multiplies_the_smallest_by_the_number_and_never_falls():
    # The worked example of Holm's procedure with four tests.
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, 4)
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm({"a": 0.9, "b": 0.8}, 2) == {"a": 1.0, "b": 1.0}
    assert holm({}, 0) == {}


def test_claims_that_are_not_tested_yet_count_in_the_correction():
    assert holm({"a": 0.02, "b": 0.3}, 5) == pytest.approx({"a": 0.1, "b": 1.0})


def causes(rng: np.random.Generator, seeds: int, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Wrong replies, and those with one cause: both depend on the question, and the cause on the training too."""
    hard, kind = rng.random(n), rng.random(n)
    wrong = rng.random((seeds, n)) < hard
    return wrong & (rng.random((seeds, n)) < np.clip(kind + rng.normal(0, 0.1, (seeds, 1)), 0, 1)), wrong


@pytest.mark.parametrize("seeds", [3, 6])
def test_the_interval_of_a_share_of_the_wrong_replies_holds_over_questions_and_seeds(seeds: int):
    rng = np.random.default_rng(seeds)
    worlds = [causes(rng, seeds) for _ in range(300)]
    pooled = [wilson(int(hits.sum()), int(cases.sum())) for hits, cases in worlds]
    held, as_one_sample = (
        sum(low <= 0.5 <= high for low, high in intervals)
        for intervals in ([ratio_of_seeds(*world) for world in worlds], pooled)
    )
    assert held / 300 > 0.9 > 0.75 > as_one_sample / 300


def test_of_one_seed_the_share_of_the_cases_is_a_simple_sample():
    assert ratio_of_seeds([[1, 0, 0, 0, 0]], [[1, 1, 1, 0, 0]]) == pytest.approx(wilson(1, 3))


def test_holm_keeps_false_findings_among_many_true_nulls_below_5_percent():
    rng = np.random.default_rng(5)
    wrong = sum(
        any(p < 0.05 for p in holm({str(i): float(p) for i, p in enumerate(rng.random(15))}, 15).values())
        for _ in range(2000)
    )
    assert wrong / 2000 < 0.065


def shares(rng: np.random.Generator, seeds: int, shared: float, own: float, arms: int = 8, n: int = 300) -> list:
    """Arms that are right in half of the questions; seeds change all arms alike, and each arm for itself."""
    base = rng.uniform(0.2, 0.8, size=n)
    common = base + rng.normal(0, shared, (seeds, 1))
    return [(rng.random((seeds, n)) < common + rng.normal(0, own, (seeds, 1))).astype(float) for _ in range(arms)]


@pytest.mark.parametrize("seeds", [2, 3, 4])
@pytest.mark.parametrize(("shared", "own"), [(0.0, 0.0), (0.02, 0.01), (0.0, 0.05), (0.05, 0.05)])
def test_the_share_of_an_arm_with_few_seeds_holds_the_truth_about_as_often_as_its_interval_says(
    seeds: int, shared: float, own: float
):
    rng = np.random.default_rng(4)
    held = []
    for _ in range(60):
        arms = shares(rng, seeds, shared, own)
        spread = seed_spread(paired_effect(arm, np.zeros_like(arm)) for arm in arms)
        for arm in arms:
            share, (low, high) = share_of_seeds(arm, spread)
            assert 0 <= low <= share <= high <= 1
            held.append(low <= 0.5 <= high)
    # What a seed does to all arms makes the 8 arms of a study worth some 2: a deviation of 2 points.
    assert np.mean(held) >= 0.9


def test_a_share_of_one_seed_or_of_equal_outcomes_has_wilsons_interval():
    assert share_of_seeds([[1.0, 0.0, 1.0, 1.0]]) == (0.75, wilson(3, 4))
    assert share_of_seeds([[0.0] * 20] * 3) == (0.0, wilson(0, 20))
    assert share_of_seeds([[1.0], [0.0]]) == (0.5, wilson(0.5, 1))
    alike, apart = (
        share_of_seeds([[1.0] * right + [0.0] * (200 - right) for right in rights])[1]
        for rights in ([100, 100, 100], [60, 100, 140])
    )
    assert apart[1] - apart[0] > 2 * (alike[1] - alike[0])
