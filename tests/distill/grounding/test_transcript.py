"""Rows and digits that a rationale lists are compared with the image's in reading order; prose is not judged."""

import pytest

from distill.grounding.transcript import is_misread

CELLS = ["red circle", "empty", "blue square", "red square"]
GRID = {"cells": CELLS}  # 2 x 2
DIGITS = {"digits": [4, 7, 1, 8, 0, 6], "cells": [[0, 0], [0, 1], [0, 2], [2, 0], [2, 1], [2, 3]]}


@pytest.mark.parametrize(
    "text",
    [
        "Row 1: red circle, empty. Row 2: blue square, red square.",
        "red -> Row 1: red 1 empty Row 2: blue red 2; red 2.",  # one word of each cell, and a running count
        "Row 2 has a blue square and a red square.",
        "Row 2: square square",
    ],
)
def test_rows_as_the_image_has_them_are_right(text: str) -> None:
    assert is_misread(text, GRID) is False


@pytest.mark.parametrize(
    "text",
    [
        "Row 1: red circle, empty. Row 2: blue square, red circle.",
        "Row 1: empty red",
        "Row 1: red empty Row 2: blue red blue",
        "Row 3: blue square, red square.",  # the image has two rows
    ],
)
def test_a_wrong_cell_order_number_or_row_is_a_misreading(text: str) -> None:
    assert is_misread(text, GRID) is True


@pytest.mark.parametrize(
    "text", ["2 + 2 = 4.", "Row 1: I look at it twice.", "The red circle is in row 1.", "Row 2:"]
)
def test_prose_is_not_judged(text: str) -> None:
    assert is_misread(text, GRID) is None


@pytest.mark.parametrize(
    ("text", "misread"),
    [
        ("The image reads 4 7 1 / 8 0 6. 4 + 7 = 11", False),
        ("Transcript: 4 7 1 / 8 9 6.", True),
        ("Transcript: 4 7 / 8 0 6.", True),  # one is left out
        ("4, 7, 1, 8, 6, 0", True),
        ("The image reads 4 7 1 / 8 0 6\n4 + 7 = 11", False),
        ("The top row is 4 7 1. 4 + 7 = 11, 11 + 1 = 12.", None),
        ("4 + 7 + 1 + 8 + 0 + 6 = 26", None),
    ],
)
def test_digits_are_compared_where_all_are_listed(text: str, misread: bool | None) -> None:
    assert is_misread(text, DIGITS) is misread


@pytest.mark.parametrize(
    "meta", [{}, {"cells": "red"}, {"cells": ["a", "b", "c"]}, {"cells": [1, 2]}, {"digits": ["4"]}, {"digits": None}]
)
def test_without_names_or_numbers_in_reading_order_nothing_is_judged(meta: dict) -> None:
    assert is_misread("Row 1: red circle, empty. Transcript: 1 2 3.", meta) is None


def test_rows_may_be_given_as_lists() -> None:
    meta = {"grid": [["Ada", "Bob", "Cem"], ["Dan", "Eve", "Fay"]]}
    assert is_misread("Row 2: Dan, Eve, Fay.", meta) is False
    assert is_misread("Row 2: Dan, Fay, Eve.", meta) is True


@pytest.mark.parametrize("end", ["", "+ 1"])
def test_a_listing_of_any_length_is_read(end: str) -> None:
    assert is_misread("row 1: " * 20_000 + "red " * 50_000 + "Transcript: " + "7 " * 100_000 + end, DIGITS) is True
