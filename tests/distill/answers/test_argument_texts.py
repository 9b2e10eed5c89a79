"""Arguments of the judge that are no text: numbers and dates by their text, a missing gold answer, plain refusals."""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from distill.answers import equivalent, judge
from distill.errors import DataError


@pytest.mark.parametrize(
    ("prediction", "gold", "verdict"),
    [
        (42, "42", "correct"),
        ("The answer is 42.", 42, "correct"),
        ("12", 12.0, "correct"),
        (0.5, Decimal("0.50"), "correct"),
        (np.int64(7), np.float64(7), "correct"),
        (np.float32(0.25), "0.25", "correct"),
        (41, 42, "wrong"),
        ("7", [6, 7], "correct"),
        ("7", np.array([6, 7]), "correct"),
        ("7", {7}, "correct"),
        (True, "True", "correct"),
        ("2024-03-01", date(2024, 3, 1), "correct"),
        ("7", None, "undecided"),
        ("7", [None, float("nan")], "undecided"),
        ("7", [None, 7], "correct"),
        ("7", [pd.NA, pd.NaT], "undecided"),
        ("7", pd.Series([7, None], dtype="Int64"), "correct"),
        ("7", np.array("7"), "correct"),
        (pa.scalar("7"), pa.scalar(["6", "7", None]), "correct"),
        (pa.scalar(7), pa.array([6, 8]), "wrong"),
    ],
)
def test_numbers_are_judged_by_their_text_and_missing_golds_are_none(
    prediction: Any, gold: Any, verdict: str
) -> None:
    judged = judge(prediction, gold)
    assert judged.verdict == verdict and (judged.reason == "no_gold") == (verdict == "undecided")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: judge(None, "7"), "prediction is None (NoneType); give a text or a number"),  # type: ignore[arg-type]
        (lambda: judge(float("nan"), "7"), "prediction is nan (float)"),
        (lambda: judge(["7"], "7"), "prediction is ['7'] (list)"),  # type: ignore[arg-type]
        (lambda: judge(10**5000, "7"), "prediction is a number of too many digits"),
        (lambda: judge("7", b"7"), "gold is b'7' (bytes)"),
        (lambda: judge("7", {"answer": "7"}), "gold is {'answer': '7'} (dict)"),
        (lambda: judge("answer", pd.DataFrame({"answer": ["7"]})), "(DataFrame); give a text or a number"),
        (lambda: judge("7", [["7"]]), "gold is ['7'] (list)"),  # type: ignore[list-item]
        (lambda: judge("7", "7", 3), "answer type '3' is not known"),  # type: ignore[arg-type]
        (lambda: judge("7", "7", ["number"]), "answer_type is ['number'] (list)"),  # type: ignore[arg-type]
        (lambda: judge("7", "7", question=None), "question is None"),  # type: ignore[arg-type]
        (lambda: judge("A", "A", options="AB"), "options is 'AB' (str); give a list of texts"),
        (lambda: judge("A", "A", options=["a", None]), "an item of options is None"),  # type: ignore[list-item]
        (lambda: judge("7", "7", relative_tolerance="5%"), "relative_tolerance is '5%' (str)"),  # type: ignore[arg-type]
        (lambda: judge("7", "7", relative_tolerance=float("nan")), "relative_tolerance is nan"),
        (lambda: judge("3", "0", relative_tolerance=float("inf")), "relative_tolerance is inf"),
        (lambda: judge("7", "7", relative_tolerance=-0.1), "relative_tolerance is -0.1"),
        (lambda: equivalent("7", None), "b is None"),  # type: ignore[arg-type]
    ],
)
def test_other_values_are_refused_by_the_name_of_the_argument(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        call()


def test_options_and_compared_answers_may_be_numbers() -> None:
    assert judge("B", "20", options=[10, 20]).verdict == "correct"
    assert equivalent(7, "7") and equivalent(7.0, 7) and not equivalent(7, 8)
