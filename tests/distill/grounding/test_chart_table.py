"""Every form in which data sets keep a chart's table is read alike, and nothing else is."""

import csv

import pytest

from distill.grounding.charts.chart_table import find_table, read_table

FORMS = {
    "labels": {"Norway": 12.5, "Spain": 30},
    "text numbers": {"Norway": "12.5", "Spain": "30"},
    "rows": [["Country", "Value"], ["Norway", "12.5"], ["Spain", "30"]],
    "records": [{"country": "Norway", "value": 12.5}, {"country": "Spain", "value": 30}],
    "columns": {"country": ["Norway", "Spain"], "value": [12.5, 30]},
    "header and rows": {"columns": ["country", "value"], "rows": [["Norway", 12.5], ["Spain", 30]]},
    "csv": "Country,Value\nNorway,12.5\nSpain,30",
    "pipes": "| Country | Value |\n|---|---|\n| Norway | 12.5 |\n| Spain | 30 |",
    "titled pipes": "TITLE | Growth\nCountry | Value\nNorway | 12.5\nSpain | 30",
    "json": '{"Norway": 12.5, "Spain": 30}',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_in_every_form(form: str) -> None:
    table = read_table(FORMS[form])
    assert table is not None
    assert table.values == (12.5, 30.0)
    assert {label: table.under[label] for label in ("norway", "spain")} == {"norway": (12.5,), "spain": (30.0,)}


def test_rows_and_columns_both_give_their_values() -> None:
    table = read_table({"2015": {"men": 40, "women": 60}, "2016": {"men": 45, "women": 55}})
    assert table is not None
    assert table.under["men"] == (40, 45)
    assert table.under["2016"] == (45, 55)
    assert table.axis["men"] != table.axis["2016"]
    assert table.years


def test_a_header_of_years_is_a_header() -> None:
    table = read_table([["", "2015", "2016"], ["men", 40, 45]])
    assert table is not None
    assert table.under["2016"] == (45,)


@pytest.mark.parametrize("raw", [None, "", "no table", {}, [], {"a": "b"}, ["circle", "square"], "{broken", 3])
def test_what_holds_no_numbers_is_no_table(raw: object) -> None:
    assert read_table(raw) is None


def test_the_first_usual_key_that_holds_a_table_is_used() -> None:
    assert find_table({"id": 7, "bars": {"blue": 8, "red": 6}}) is not None
    assert find_table({"id": 7, "cells": ["empty", "red circle"]}) is None
    assert find_table({"mine": {"blue": 8, "red": 6}}) is None
    assert find_table({"mine": {"blue": 8, "red": 6}}, "mine") is not None


@pytest.mark.parametrize("missing", [None, "", " ", "-", "–", "n/a", "NaN", "None", float("nan")])
def test_a_missing_value_is_left_out_and_the_others_are_read(missing: object) -> None:
    table = read_table({"Norway": 12.5, "Spain": missing, "Italy": "30"})
    assert table is not None and table.values == (12.5, 30.0)
    assert table.under.keys() == {"norway", "italy"} and "spain" in table.words and 3 in table.counts
    plain = read_table([12.5, missing, 30])
    assert plain is not None and plain.values == (12.5, 30.0)
    assert read_table({"Norway": missing}) is None and read_table({"Norway": 3, "title": "Growth"}) is None


def test_of_a_column_that_is_named_twice_no_value_is_chosen() -> None:
    assert read_table('{"Norway": 12.5, "Spain": 30, "Norway": 13}') is None
    assert read_table('[{"Norway": 12.5, "Norway": 13}]') is None
    assert read_table('[{"Norway": 12.5}, {"Norway": 13}]') is not None


UNDER = {"x": (1.0, 2.0), "y": (3.0, 4.0), "a": (1.0, 3.0), "b": (2.0, 4.0)}


@pytest.mark.parametrize(
    "text",
    [
        "\tA\tB\nx\t1\t2\ny\t3\t4",
        "\t\tA\tB\n\tx\t1\t2\n\ty\t3\t4",
        "|A|B\nx|1|2\ny|3|4",
        "||A|B|\n|x|1|2|\n|y|3|4|",
        "\t,A,B\n\tx,1,2\n\ty,3,4",
        ",A,B\rx,1,2\ry,3,4",
    ],
)
def test_an_empty_cell_at_the_head_of_the_labels_is_a_cell(text: str) -> None:
    table = read_table(text)
    assert table is not None and table.under == UNDER


@pytest.mark.parametrize("text", ["A\tB\nx\t1\ny\t", "A | B\n | 2\nx | 1", "||A|\n|x|1|\n||2|"])
def test_a_row_with_an_empty_first_or_last_cell_is_a_row(text: str) -> None:
    table = read_table(text)
    assert table is not None and table.under["x"] == (1.0,)
    assert len(table.values) == 1 + ("2" in text)


def test_a_quotation_mark_without_its_end_makes_no_table() -> None:
    # A CSV source that was read before raises the limit for the whole process.
    before = csv.field_size_limit(1 << 17)
    try:
        assert read_table('a|b\n"x|' + "1" * (1 << 18) + "\nz|2") is None
    finally:
        csv.field_size_limit(before)
