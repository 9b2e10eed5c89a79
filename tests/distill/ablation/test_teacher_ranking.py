"""Two rankings of teachers are compared as scipy does, and honestly of how little a few teachers can show."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from students import tiny_models
from worlds import run_fixtures

from distill.ablation.teacher_ranking import of_results
from distill.commands.stages import filter_stage
from distill.errors import DataError, StaleError
from distill.stats.rank_correlation import LOW_FITS, kendall, over_teachers, permutation_p, rank_correlation, spearman
from distill.teacher_fits import TOKENS, fit_values
from filters.decisions import decide
from filters.tables.signal_database import Tables

FITS = {"a": [1.0, 2.0, 3.0], "b": [4.0, 4.5, 9.0], "c": [5.0, 7.0], "d": [6.0, 6.0, 6.5]}
"""Medians 2, 4.5, 6 and 6."""


def answers(*shares: float, n: int = 900) -> dict[str, list[tuple[int, int]]]:
    return {name: [(round(share * n), n)] * 2 for name, share in zip("abcdefgh", shares, strict=False)}


def test_correlations_are_scipys_with_and_without_ties() -> None:
    rng = np.random.default_rng(0)
    for size in (3, 5, 9):
        for _ in range(20):
            one, other = rng.integers(0, 2 * size, size).astype(float), rng.integers(0, size, size).astype(float)
            if len(set(one)) > 1 and len(set(other)) > 1:
                assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
                assert kendall(one, other) == pytest.approx(stats.kendalltau(one, other).statistic)
    assert spearman(np.ones(4), np.arange(4.0)) is kendall(np.ones(4), np.arange(4.0)) is None


def test_the_p_value_is_the_share_of_orders_that_go_as_far() -> None:
    up = np.arange(4.0)
    assert permutation_p(up, up) == permutation_p(up, up[::-1]) == 2 / 24
    # One neighbouring pair exchanged: rho 0.8, which 4 orders reach upwards and 4 downwards.
    assert permutation_p(up, np.array([1.0, 0.0, 2.0, 3.0])) == 8 / 24
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=6), rng.normal(size=6)
    reference = stats.permutation_test(
        (one,), lambda x: stats.spearmanr(x, other).statistic, permutation_type="pairings", n_resamples=np.inf
    )
    assert permutation_p(one, other) == pytest.approx(reference.pvalue)
    many = np.arange(12.0)
    assert permutation_p(many, many) == pytest.approx(1 / 20_001) and permutation_p(many, np.roll(many, 6)) > 0.05


def test_teachers_that_fit_better_and_make_better_students_correlate_positively() -> None:
    found = rank_correlation("rank_surprisal", FITS, answers(0.6, 0.5, 0.45, 0.4))
    assert [(row["teacher"], row["fit_rank"], row["student_rank"]) for row in found["rows"]] == [
        ("a", 1, 1),
        ("b", 2, 2),
        ("c", 3.5, 3),
        ("d", 3.5, 4),
    ]
    assert [row["fit"] for row in found["rows"]] == [2, 4.5, 6, 6] and found["rows"][0]["accuracy"] == 0.6
    expected = stats.spearmanr([2, 4.5, 6, 6], [0.6, 0.5, 0.45, 0.4]).statistic
    assert found["spearman"] == pytest.approx(-expected) == pytest.approx(0.9487, abs=1e-4)
    assert found["kendall"] == pytest.approx(-stats.kendalltau([2, 4.5, 6, 6], [4, 3, 2, 1]).statistic)
    low, high = found["ci95"]
    assert low <= found["spearman"] <= high and found["ci95_measured"][0] >= low
    assert "4 teachers are too few to decide this: even two equal rankings of 4 have p = 0.083" in found["text"]
    assert (
        "agrees with" in found["text"]
        and rank_correlation("rank_surprisal", FITS, answers(0.6, 0.5, 0.45, 0.4)) == found
    )


@pytest.mark.parametrize("count", [3, 4, 5, 8])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_interval_over_teachers_holds_the_truth_at_least_as_often_as_it_says(
    count: int, correlation: float
) -> None:
    rng = np.random.default_rng(3)
    true = 6 / np.pi * np.arcsin(correlation / 2)  # Spearman's of two normal variables
    held = 0
    for _ in range(1000):
        first = rng.normal(size=count)
        second = correlation * first + np.sqrt(1 - correlation**2) * rng.normal(size=count)
        ranks = [values.argsort().argsort() for values in (first, second)]
        rho = float(np.corrcoef(*ranks)[0, 1])
        low, high = over_teachers(rho, count)
        assert -1 <= low <= rho <= high <= 1
        held += low <= true <= high
    assert held / 1000 >= 0.94


def test_two_equal_rankings_of_few_teachers_have_a_wide_interval() -> None:
    found = rank_correlation("nll", FITS, answers(0.9, 0.7, 0.5, 0.3))
    assert found["ci95"][0] < 0 and "the interval over teachers is wide" in found["text"]


def test_the_p_value_of_more_than_eight_teachers_is_not_called_exact() -> None:
    fits = {name: [float(place)] for place, name in enumerate("abcdefghi")}
    shares = {name: [(800 - 50 * place, 900)] for place, name in enumerate("abcdefghi")}
    assert "exact" not in rank_correlation("nll", fits, shares)["text"]


def test_a_signal_that_is_better_high_is_ranked_the_other_way() -> None:
    found = rank_correlation("blind_gap", FITS, answers(0.6, 0.5, 0.45, 0.4))
    assert found["spearman"] == pytest.approx(-0.9487, abs=1e-4) and "runs against" in found["text"]


def test_students_of_equal_accuracy_leave_a_wide_interval_even_for_the_same_teachers() -> None:
    sharp = rank_correlation("nll", FITS, answers(0.9, 0.6, 0.3, 0.1))
    blurred = rank_correlation("nll", FITS, answers(0.51, 0.505, 0.5, 0.495, n=100))
    width = [found["ci95_measured"][1] - found["ci95_measured"][0] for found in (sharp, blurred)]
    assert width[1] > 1 > width[0]


def test_many_teachers_are_not_called_few() -> None:
    names = "abcdefgh"
    fits = {name: [float(place)] * 3 for place, name in enumerate(names)}
    found = rank_correlation("ifd", fits, answers(*(0.8 - 0.05 * place for place in range(8))))
    assert found["spearman"] == pytest.approx(1) and found["kendall"] == pytest.approx(1) and found["p"] < 0.001
    assert "too few to decide" not in found["text"]


def test_too_few_teachers_or_a_tie_of_all_have_rows_and_no_correlation() -> None:
    two = rank_correlation("nll", {name: FITS[name] for name in "ab"}, answers(0.6, 0.5))
    assert two["spearman"] is None and two["text"] == "A rank correlation needs 3 teachers; there are 2."
    tied = rank_correlation("nll", FITS, answers(0.5, 0.5, 0.5, 0.5))
    assert tied["p"] is None and "tied" in tied["text"] and len(tied["rows"]) == 4
    with pytest.raises(DataError, match="fit is known of a, b, c, d, students of a"):
        rank_correlation("nll", FITS, answers(0.5))


def test_arms_of_one_teacher_alone_are_found_by_their_names() -> None:
    fits = {
        name: {signal: [value + 0.1 * place for place in range(5)] for signal in LOW_FITS}
        for name, value in (("structured", 2.0), ("analyst", 3.0), ("reader", 1.0), ("unused", 9.0))
    }
    arms = {
        f"teacher_{name}": {"n": 600, "seeds": {"0": {"accuracy": share}, "1": {"accuracy": share}}}
        for name, share in (("structured", 0.5), ("analyst", 0.4), ("reader", 0.6))
    }
    found = of_results({"arms": arms | {"distilled": {"n": 600, "seeds": {}}}}, fits)
    assert [row["teacher"] for row in found["rows"]] == ["reader", "structured", "analyst"]
    assert found["spearman"] == pytest.approx(1) and set(found["signals"]) == set(LOW_FITS)
    assert found["signals"]["blind_gap"]["spearman"] == pytest.approx(-1)
    for values in fits.values():
        values["rank_surprisal"] = []
    with pytest.raises(DataError, match="rank_surprisal was measured on no trace of analyst, reader, structured"):
        of_results({"arms": arms}, fits)


def test_the_fit_of_a_runs_teachers_is_measured_with_any_checkpoint_and_changes_nothing(tmp_path: Path) -> None:
    tiny_models.build(tmp_path / "model", hidden=64, layers=2)
    samples, traces = run_fixtures.small_world(tmp_path / "pictures", questions=4)
    traces += [
        run_fixtures.trace(asked, asked.answers[0], f"I count {asked.answers[0]}.", teacher="brief", k=1)
        for asked in samples
    ]
    run = tmp_path / "run"
    run_fixtures.generate_folder(run, samples, traces)
    recipe = run_fixtures.recipe(tmp_path)
    with pytest.raises(StaleError, match="distill filter"):
        fit_values(recipe, run, tmp_path / "model")
    filter_stage(recipe, run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = fit_values(recipe, run, tmp_path / "model", per_teacher=3)
    assert set(found) == {"brief", "structured"} and all(set(held) == {*LOW_FITS, TOKENS} for held in found.values())
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    # The same values as the filter's own, where it measures with this checkpoint; by question, kept traces only.
    values = fit_values(recipe, run, tmp_path / "model", folder=tmp_path / "kept")
    assert {name: len(held["nll"]) for name, held in values.items()} == {"brief": 4, "structured": 4}
    own = '[student]\nmodel = "model"\n[filter]\nsignals = ["answer", "format", "duplicates", "student"]\n'
    shutil.rmtree(run / "filter")
    filter_stage(run_fixtures.recipe(tmp_path, own), run)
    database = decide.database(Tables.of(run / "filter"), run / "filter" / "decisions.parquet")
    expected = database.execute(
        "SELECT avg(student_nll) FROM signals JOIN decisions USING (id) "
        "WHERE kept AND signals.teacher = 'structured' GROUP BY signals.sample_id ORDER BY signals.sample_id"
    ).fetchall()
    assert values["structured"]["nll"] == pytest.approx([value for (value,) in expected])
