"""The first part of a wrong reply that fails is named as its cause, and only a sure cause is called the limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from distill.types import Sample
from student.evaluation.error_breakdown import breakdown_table, error_breakdown
from student.inference.error_causes import CAUSES
from student.inference.scoring import score_reply

QUESTION = "How much higher is the green bar than the red bar?"
CHART = {"table": {"red": 5, "green": 9, "blue": 2}}


def cause(reasoning: str, answer: str, *, truncated: bool = False, **meta: Any) -> str | None:
    sample = Sample(id="s", images=(), question=QUESTION, answers=("4",), answer_type="number", domain="d", meta=meta)
    text = f"<think>\n{reasoning}\n</think>\n\n{answer}" if reasoning else answer
    reply = {"text": text, "tokens": 9, "rationale_tokens": 7, "truncated": truncated}
    return score_reply(sample, reply, plain=False, relative_tolerance=0.0)["error_cause"]


@pytest.mark.parametrize(
    ("reasoning", "answer", "expected"),
    [
        ("green 9, red 5: 9 - 5 = 4.", "4", None),
        # Even a correct answer after a misreading has no cause: the reply is not wrong.
        ("green 8, red 4: 8 - 4 = 4.", "4", None),
        ("green 8, red 5: 8 - 5 = 3.", "3", "perception"),
        ("yellow 9, red 6: 9 - 6 = 3.", "3", "perception"),
        ("green 9, red 5: 9 - 5 = 3.", "3", "arithmetic"),
        # Both: what is read comes before what is computed.
        ("green 8, red 5: 8 - 5 = 2.", "2", "perception"),
        ("green 9, red 5: 9 - 5 = 4.", "7", "conclusion"),
        ("green 9, red 5: 9 + 5 = 14.", "14", "approach"),
    ],
)
def test_with_a_table_the_first_part_that_fails_is_the_cause(reasoning: str, answer: str, expected: str | None):
    assert cause(reasoning, answer, **CHART) == expected


@pytest.mark.parametrize(
    ("reasoning", "answer", "expected"),
    [
        ("8 - 5 = 3.", "3", "perception_or_approach"),
        ("9 - 5 = 3.", "3", "arithmetic"),
        ("9 - 5 = 4.", "7", "conclusion"),
    ],
)
def test_without_a_table_a_misreading_is_not_told_from_another_approach(reasoning: str, answer: str, expected: str):
    assert cause(reasoning, answer) == expected


def test_injected_errors_of_every_kind_are_told_apart_in_19_of_20_rationales():
    """61 rationales about charts, tables, grids and digits, labelled before they were first classified."""
    labelled = Path(__file__).parents[2] / "data" / "error_causes.jsonl"
    results = []
    for line in labelled.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        sample = Sample(
            id="s", images=(), question=row["question"], answers=(row["gold"],), answer_type="number", domain="d",
            meta=row["meta"],
        )  # fmt: skip
        text = f"<think>\n{row['rationale']}\n</think>\n\n{row['answer']}"
        reply = {"text": text, "tokens": 9, "rationale_tokens": 7, "truncated": False}
        given = score_reply(sample, reply, plain=False, relative_tolerance=0.0)["error_cause"]
        results.append((row["cause"], given, row["rationale"]))
    wrong = [result for result in results if result[0] != result[1]]
    assert len(results) >= 60
    assert {cause for cause, _, _ in results} >= {"perception", "arithmetic", "conclusion", "approach"}
    assert len(wrong) <= 0.05 * len(results), wrong


def test_replies_that_cannot_be_checked_have_causes_of_their_own():
    assert cause("", "<think>\n9 - 5 = 3.") == "format"
    assert cause("9 - 5 = 4.", "3", truncated=True) == "format"
    assert cause("<think></think>", "3") in CAUSES
    assert cause("9 - 5 = 4.", "4 or 5") == "undecided"


def test_an_answer_without_a_rationale_has_no_cause_that_can_be_told():
    sample = Sample(id="s", images=(), question=QUESTION, answers=("4",), answer_type="number", domain="d", meta={})
    reply = {"text": "3", "tokens": 1, "rationale_tokens": 0, "truncated": False}
    assert score_reply(sample, reply, plain=False, relative_tolerance=0.0)["error_cause"] in (
        "format",
        "no_rationale",
    )


def lines(**counts: int) -> list[dict[str, Any]]:
    return [
        {"error_cause": None if name == "right" else name} for name, count in counts.items() for _ in range(count)
    ]


def test_counts_and_shares_are_of_the_wrong_replies():
    result = error_breakdown(lines(right=60, arithmetic=10, perception=30))
    assert list(result["error_causes"]) == ["perception", "arithmetic"]
    assert result["error_causes"]["perception"]["n"] == 30
    assert result["error_causes"]["perception"]["share"] == 0.75
    low, high = result["error_causes"]["perception"]["ci95"]
    assert 0.59 < low < 0.75 < high < 0.87
    assert result["limited_by"] == "Misread images cause 75 % of its replies that are not correct (30 of 40)."


def test_undecided_replies_are_not_called_wrong():
    result = error_breakdown(lines(undecided=30, arithmetic=6, right=10))
    table = breakdown_table({"arm": result})
    assert table is not None and table["limits"] == {"arm": result["limited_by"]}
    told = "Answers that the judge cannot decide are 83 % of its replies that are not correct (30 of 36)."
    assert result["limited_by"] == told
    close = error_breakdown(lines(undecided=21, arithmetic=19))["limited_by"]
    assert close is not None and "40 replies that are not correct" in close and "wrong" not in close


def test_a_close_race_names_no_limit_and_few_errors_say_nothing():
    close = error_breakdown(lines(perception=21, arithmetic=19))["limited_by"]
    assert close.startswith("No single cause limits this student: perception")
    assert error_breakdown(lines(perception=19))["limited_by"] is None
    without = error_breakdown(lines(no_rationale=90, perception=9))["limited_by"]
    assert without == "90 of its 99 replies that are not correct have no rationale: their cause cannot be told."
    assert error_breakdown(lines(right=100)) == {"error_causes": {}, "limited_by": None}


def test_trainings_that_disagree_about_a_cause_name_no_limit():
    one, other = lines(perception=300, arithmetic=100, right=100), lines(perception=160, arithmetic=240, right=100)
    pooled = error_breakdown(one + other)
    assert pooled["limited_by"].startswith("Misread images cause 57 %")
    result = error_breakdown(one, other, one)
    assert result["error_causes"]["perception"]["n"] == 760
    low, high = result["error_causes"]["perception"]["ci95"]
    assert low < 0.4 and high > 0.75  # the three trainings have 75, 40 and 75 %
    told = "The 3 trainings of this student differ too much to name one cause: perception has 760 of 1,200"
    assert result["limited_by"].startswith(told)


def test_two_trainings_with_one_frequent_cause_are_not_said_to_have_none():
    one, other = lines(perception=126, approach=2, right=22), lines(perception=111, approach=17, right=22)
    told = error_breakdown(one, other)["limited_by"]
    assert told.startswith("The 2 trainings of this student differ too much to name one cause: perception has 237")
    close = error_breakdown(lines(perception=60, approach=58), lines(perception=58, approach=60))["limited_by"]
    assert close.startswith("No single cause limits this student: perception has 118 of 236")


def test_replies_that_an_older_version_scored_have_no_breakdown():
    assert error_breakdown([{"verdict": "wrong"}] * 30) == {"error_causes": {}, "limited_by": None}
