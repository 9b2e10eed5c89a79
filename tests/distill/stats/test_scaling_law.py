"""A known law is found again within its interval; no growth, falling accuracy and too few sizes are said to be so."""

import numpy as np
import pytest

from distill.errors import DataError
from distill.stats.scaling_law import Law, Observation, _trend, _variances, of_results, scaling

LAW = Law(floor=0.2, scale=4.0, exponent=0.5)
SIZES = (100, 300, 1000, 3000, 10_000)


def students(
    law: Law,
    rng: np.random.Generator,
    sizes: tuple[int, ...] = SIZES,
    *,
    n: int = 900,
    seeds: int = 3,
    sd: float = 0.0,
) -> list[Observation]:
    """Students of a law, with binomial noise of their answers and some of their training."""
    return [
        Observation(x=size, n=n, correct=int(rng.binomial(n, np.clip(1 - law.error(size) + rng.normal(0, sd), 0, 1))))
        for size in sizes
        for _ in range(seeds)
    ]


@pytest.mark.parametrize(
    ("law", "unit"),
    [
        # Hoffmann et al. 2022 (arXiv 2203.15556), loss over training tokens: 1.69 + 410.7 D^-0.28, in tens of nats.
        (Law(floor=0.169, scale=41.07, exponent=0.28), 1e7),
        # Kaplan et al. 2020 (arXiv 2001.08361): (5.4e13 / D)^0.095, without an offset.
        (Law(floor=0.0, scale=0.1 * 5.4e13**0.095, exponent=0.095), 1e8),
    ],
)
def test_published_laws_are_found_from_their_own_values(law: Law, unit: float) -> None:
    n = 10**12
    exact = [
        Observation(x=unit * 4**step, n=n, correct=round(n * (1 - law.error(unit * 4**step)))) for step in range(6)
    ]
    found = scaling(exact, replicates=50)
    assert found["exponent"] == pytest.approx(law.exponent, rel=0.01)
    assert found["law"]["floor"] == pytest.approx(law.floor, abs=0.003)
    for x, y in found["curve"]:
        assert y == pytest.approx(1 - law.error(x), abs=1e-5)


def test_intervals_hold_the_true_exponent_and_curve_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    exponents = curves = 0
    for trial in range(60):
        found = scaling(students(LAW, rng, sd=0.01), seed=trial, replicates=300)
        low, high = found["exponent_ci95"]
        exponents += low <= LAW.exponent <= high
        x, least, most = found["curve_ci95"][20]
        curves += least <= 1 - LAW.error(x) <= most
    assert exponents >= 54 and curves >= 54


def test_growth_is_said_with_its_size_and_what_doubling_would_give() -> None:
    found = scaling(students(LAW, np.random.default_rng(1)))
    assert found["text"].startswith("Accuracy grows with the number of traces: from 38.3 % at 100")
    assert found["aicc"]["constant"] - found["aicc"]["power_law"] > 100 and found["gain_ci95"][0] > 0.2
    assert found["doubled"]["x"] == 20_000 and found["doubled"]["ci95"][0] < 1 - LAW.error(20_000)
    assert 1 - LAW.error(20_000) < found["doubled"]["ci95"][1]
    assert found["formula"].startswith("error(n) = 0.") and "n^-" in found["formula"]
    assert [point["x"] for point in found["points"]] == list(SIZES)
    assert all(point["ci95"][0] < point["accuracy"] < point["ci95"][1] for point in found["points"])
    assert scaling(students(LAW, np.random.default_rng(1))) == found


def test_accuracy_that_does_not_depend_on_the_number_is_hardly_ever_called_growing() -> None:
    rng = np.random.default_rng(2)
    flat = Law(floor=0.4, scale=0.0, exponent=1.0)
    said = [scaling(students(flat, rng, sd=0.01), replicates=50, seed=trial)["text"] for trial in range(60)]
    assert sum(text.startswith("Accuracy grows") for text in said) <= 4
    assert sum(text.startswith("It is not sure") for text in said) >= 50


def test_two_seeds_of_each_size_seldom_show_a_trend_where_there_is_none() -> None:
    """Seeds differ by 3 points. With the normal quantile 8 % were called falling."""
    rng = np.random.default_rng(3)
    falling = rising = 0
    for _ in range(1000):
        right = np.clip(rng.uniform(0.2, 0.9, 600) + rng.normal(0, 0.03, (5, 2, 1)), 0, 1)
        counts = (rng.random((5, 2, 600)) < right).sum(axis=2)
        groups = [[Observation(x=2**size, correct=int(n), n=600) for n in of] for size, of in enumerate(counts)]
        every = [each for group in groups for each in group]
        x, error = (np.array(column) for column in zip(*((each.x, 1 - each.share) for each in every), strict=True))
        trend = _trend(x, error, _variances(groups))
        falling, rising = falling + (trend[2] < 0), rising + (trend[1] > 0)
    assert falling < 45 and rising < 45


def test_falling_accuracy_is_called_falling() -> None:
    found = scaling([Observation(x=x, n=900, correct=600 - x // 10) for x in (100, 300, 1000, 2000)])
    assert found["text"].startswith("Accuracy does not grow but falls") and found["trend"][2] < 0


def test_one_student_a_size_is_fitted_without_a_comparison_that_so_few_do_not_allow() -> None:
    found = scaling(students(LAW, np.random.default_rng(0), SIZES[:4], seeds=1))
    assert found["aicc"]["power_law"] is None and "too few students" in found["text"]
    assert len(found["curve"]) > 2


@pytest.mark.parametrize(
    ("sizes", "correct", "text"),
    [
        ((), (), "there are 0 (none)"),
        ((100, 1000), (300, 500), "there are 2 (100 and 1,000)"),
        ((100, 100, 100), (300, 400, 500), "there are 1 (100)"),
        ((100, 300, 1000), (450, 450, 450), "50.0 % at every number of traces"),
    ],
)
def test_what_carries_no_curve_says_why_and_has_none(
    sizes: tuple[int, ...], correct: tuple[int, ...], text: str
) -> None:
    found = scaling([Observation(x=x, n=900, correct=right) for x, right in zip(sizes, correct, strict=True)])
    assert text in found["text"] and found["curve"] == [] and found["exponent"] is found["formula"] is None
    assert len(found["points"]) == len(set(sizes))


def test_what_cannot_have_been_measured_is_an_error() -> None:
    with pytest.raises(DataError, match="leave this arm out"):
        scaling([Observation(x=0, n=900, correct=1, arm="before")])
    with pytest.raises(DataError, match="901 of 900"):
        scaling([Observation(x=10, n=900, correct=901)])


def test_arms_of_an_ablation_are_read_by_the_traces_that_they_cost() -> None:
    rng = np.random.default_rng(3)
    arms = {
        f"size_{size}": {
            "n": 900,
            "cost": {"traces": size},
            "seeds": {str(seed): {"accuracy": one.correct / 900} for seed, one in enumerate(found)},
        }
        for size in SIZES
        if (found := students(LAW, rng, (size,)))
    }
    found = of_results({"arms": arms}, list(arms))
    assert [(point["x"], point["arm"], point["seeds"]) for point in found["points"]] == [
        (size, f"size_{size}", 3) for size in SIZES
    ]
    assert found["text"].startswith("Accuracy grows")
    with pytest.raises(DataError, match=r"arm size_100: .*cost\.traces"):
        of_results({"arms": {"size_100": {"n": 900, "seeds": {}}}}, ["size_100"])


def test_the_interval_of_a_size_with_two_seeds_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(8)
    held = []
    for _ in range(300):
        observations = [
            Observation(x=x, correct=int(rng.binomial(900, np.clip(rng.normal(0.6, 0.05), 0, 1))), n=900)
            for x in (100, 200)  # too few for a law, so none is fitted
            for _ in range(2)
        ]
        held += [
            point["ci95"][0] <= 0.6 <= point["ci95"][1] for point in scaling(observations, replicates=1)["points"]
        ]
    assert 0.93 <= np.mean(held) <= 0.99
