"""Values land where they belong, ticks are round, and nothing that is missing breaks a chart."""

import math

import pytest

from distill.reports import metric_table, plots
from distill.reports.plots import Series
from student.inference.reply_metrics import columns


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.13, 0.57), (-3, 12), (375, 3000), (5, 5), (0, 0), (-0.02, -0.02)]
)
def test_an_axis_holds_its_values_between_round_ticks(low: float, high: float):
    axis = plots.axis(low, high)
    assert axis.low <= low <= high <= axis.high and axis.low < axis.high
    assert axis.ticks[0].place == pytest.approx(0) and axis.ticks[-1].place == pytest.approx(100)
    assert 3 <= len(axis.ticks) <= 7
    for tick in axis.ticks:
        value = float(tick.text.replace("−", "-").replace(",", ""))
        assert axis.place(value) == pytest.approx(tick.place, abs=0.5)


def test_a_line_runs_from_left_to_right_and_its_highest_point_is_on_top():
    chart = plots.chart("loss", {"a": Series([(9, 0.0), (1, 4.0), (5, 2.0)])})
    assert chart is not None
    assert chart.lines[0].line == "0.00,0.00 50.00,20.00 100.00,40.00"
    assert chart.rows == (("1", "4"), ("5", "2"), ("9", "0"))


def test_series_of_other_steps_share_an_axis_and_the_table_shows_gaps():
    chart = plots.chart("loss", {"a": Series([(0, 1.0), (10, 2.0)]), "b": Series([(5, 1.5)])})
    assert chart is not None
    assert chart.lines[1].line == "" and chart.lines[1].dots == "M50.00,20.00h0" and chart.lines[1].label is None
    assert ("5", "", "1.5") in chart.rows


def test_names_stand_beside_points_that_are_alone():
    chart = plots.chart("fit", {"a": Series([(0, 0.0)]), "b": Series([(4, 1.0)])})
    assert chart is not None
    assert [line.label for line in chart.lines] == [(0.0, 0.0), (100.0, 100.0)]


def test_what_is_no_number_is_left_out_and_nothing_at_all_is_no_chart():
    chart = plots.chart("loss", {"a": Series([(1, 1.0), (2, math.nan), (3, 2.0)]), "b": Series([])})
    assert chart is not None and [line.name for line in chart.lines] == ["a"]
    assert len(chart.lines[0].line.split()) == 2
    assert plots.chart("loss", {"a": Series([(1, math.inf)]), "b": Series([])}) is None


def test_long_tables_are_thinned_and_say_so():
    chart = plots.chart("loss", {"a": Series([(step, 1.0) for step in range(100)])})
    assert chart is not None and chart.thinned
    assert len(chart.rows) == 12 and chart.rows[0][0] == "0" and chart.rows[-1][0] == "99"


def test_intervals_and_bands_widen_the_axis():
    chart = plots.chart("fit", {"a": Series([(0, 0.5), (1, 0.5)], band=[(1, 0.1, 0.6)], bars=[(0, 0.2, 0.9)])})
    assert chart is not None
    assert chart.y.low <= 0.1 and chart.y.high >= 0.9
    assert chart.lines[0].bars.startswith("M0.00,") and chart.lines[0].band


def estimate(value: float, spread: float, *dots: float) -> plots.Estimate:
    return plots.Estimate(label="a", value=value, low=value - spread, high=value + spread, text="t", dots=dots)


def test_differences_stand_around_a_line_at_zero_and_shares_from_0_to_100():
    found = plots.estimates("c", [estimate(-0.04, 0.02, -0.07), estimate(0.02, 0.03)], zero=True)
    assert found is not None and found.zero == pytest.approx(50)
    first, second = ([found.axis.place(end) for end in (row.low, row.value, row.high)] for row in found.rows)
    assert found.axis.place(found.rows[0].dots[0]) < first[0] < first[1] < first[2] < found.zero < second[2]
    assert "0" in [tick.text for tick in found.axis.ticks]
    below = plots.estimates("c", [estimate(-0.04, 0.02)], zero=True)
    assert below is not None and below.zero == 100
    shares = plots.estimates("c", [estimate(0.25, 0.1)], zero=False)
    assert shares is not None and shares.zero is None and shares.axis.place(shares.rows[0].value) == pytest.approx(25)
    assert plots.estimates("c", [], zero=True) is None


def test_a_heat_map_is_palest_at_the_lowest_and_strongest_at_the_highest_share():
    heat = plots.heat({"a": {"x": (0.2, ""), "y": (0.5, "")}, "b": {"y": (0.8, "d")}}, {"x": 10, "y": None})
    assert heat is not None
    (_, (first, second)), (_, (missing, last)) = heat.rows
    assert (first.shade, second.shade, missing, last.shade) == (0, 3, None, plots.SHADES - 1)
    assert (last.text, last.detail, heat.counts) == ("80.0", "d", ("10", ""))
    assert plots.heat({"a": {}}, {}) is None


def test_the_headline_has_a_column_for_whatever_some_arm_has():
    table = metric_table.table(
        {
            "a": {"hallucination_rate": 0.25, "hallucination_rate_ci95": (0.2, 0.3), "train_tokens": 1234567},
            "b": {"hallucination_rate": None, "without_image": {"accuracy": 0.5, "ci95": [0.4, 0.6]}},
        },
        columns("headline"),
    )
    assert [measure.label for measure in table.measures] == ["hallucination", "without image", "training tokens"]
    assert [cell.text for cell in table.rows["a"]] == ["25.0", "", "1,234,567"]
    assert [cell.interval for cell in table.rows["a"]] == ["[20.0, 30.0]", "", ""]
    assert [cell.text for cell in table.rows["b"]] == ["", "50.0", ""]


def test_numbers_are_written_as_a_person_writes_them():
    assert plots.percent(-0.0512, signed=True) == "−5.1" and plots.percent(0.5) == "50.0"
    assert metric_table.probability(1e-9) == "< 0.0001" and metric_table.probability(0.0312) == "0.031"
    assert metric_table.probability(None) == ""
    assert metric_table.interval((-0.01, 0.02), signed=True) == "[−1.0, +2.0]"
