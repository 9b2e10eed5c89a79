from dataclasses import replace
from itertools import permutations

import pytest
from worlds.run_fixtures import default, sample, trace

from filters.signals.families.agreement import Agreement, majority_answer

FOUR = sample("How many apples?", "4", answer_type="number")
OPEN = sample("How many apples?", answer_type="number")


def measured(answers, of=FOUR):
    """Rows by trace id, from {id: (teacher, answer)}."""
    traces = [trace(of, answer, teacher=teacher, id=id) for id, (teacher, answer) in answers.items()]
    return dict(zip(answers, default(Agreement).measure(of, traces), strict=True))


VOTES = {
    "a1": ("a", "4"),
    "a2": ("a", "4.0"),
    "a3": ("a", "5"),
    "a4": ("a", ""),
    "b1": ("b", "5"),
    "c1": ("c", "4"),
    "c2": ("c", "7"),
}


def test_self_consistency_is_the_share_of_the_teachers_answers_that_agree():
    rows = measured(VOTES)
    assert rows["a1"]["self_consistency"] == pytest.approx(2 / 3)
    assert rows["a2"]["self_consistency"] == pytest.approx(2 / 3)
    assert rows["a3"]["self_consistency"] == pytest.approx(1 / 3)


def test_answers_that_differ_are_no_majority_because_both_agree_with_a_third():
    units = {f"a{n}": ("a", answer) for n, answer in enumerate(["3 cm", "3 cm", "3", "3 m", "3 m"])}
    assert {row["majority_answer"] for row in measured(units, OPEN).values()} == {None}
    del units["a4"]
    rows = measured(units, OPEN)
    assert {row["majority_answer"] for row in rows.values()} == {"3 cm"}
    assert [row["in_majority"] for row in rows.values()] == [True, True, True, False]


def test_one_answer_alone_is_not_consistent_with_anything():
    assert measured(VOTES)["b1"]["self_consistency"] is None


def test_every_other_teacher_counts_once_however_many_answers_it_gave():
    rows = measured(VOTES)
    assert rows["a1"]["teacher_agreement"] == pytest.approx((0 + 1 / 2) / 2)
    assert rows["b1"]["teacher_agreement"] == pytest.approx((1 / 3 + 0) / 2)
    assert measured({"a1": ("a", "4")})["a1"]["teacher_agreement"] is None


def test_the_pass_rate_counts_unanswered_traces_as_not_passed():
    rows = measured(VOTES)
    assert {rows[id]["pass_rate"] for id in ("a1", "a4")} == {2 / 4}
    assert rows["c1"]["pass_rate"] == 1 / 2
    assert rows["b1"]["pass_rate"] == 0
    assert {row["question_pass_rate"] for row in rows.values()} == {3 / 7}


def test_a_failed_request_is_no_answer_that_did_not_pass():
    traces = [
        trace(FOUR, "4", id="a"),
        trace(FOUR, "", id="b", outcome="error"),
        trace(FOUR, "", id="c", outcome="error"),
    ]
    rows = default(Agreement).measure(FOUR, traces)
    assert {(row["pass_rate"], row["question_pass_rate"], row["difficulty"]) for row in rows} == {(1.0, 1.0, "easy")}
    only_failed = default(Agreement).measure(FOUR, traces[1:])
    assert {(row["pass_rate"], row["difficulty"]) for row in only_failed} == {(None, None)}


def test_without_gold_there_is_agreement_but_no_pass_rate():
    rows = measured(VOTES, of=OPEN)
    assert rows["a1"]["self_consistency"] == pytest.approx(2 / 3)
    assert rows["a1"]["pass_rate"] is None and rows["a1"]["question_pass_rate"] is None


def test_a_trace_without_an_answer_does_not_vote():
    row = measured(VOTES)["a4"]
    assert row["agreement_state"] == "not_applicable"
    assert "self_consistency" not in row
    assert row["majority_answer"] == "4"


def test_the_majority_is_the_largest_group_of_agreeing_answers():
    rows = measured(VOTES)
    assert rows["c1"]["majority_answer"] == "4"
    assert [id for id, row in rows.items() if row.get("in_majority")] == ["a1", "a2", "c1"]


def test_a_tie_has_no_majority():
    rows = measured({"a1": ("a", "4"), "b1": ("b", "5")})
    assert rows["a1"]["majority_answer"] is None and rows["a1"]["in_majority"] is None


def test_the_majority_does_not_depend_on_the_order_of_answers():
    answers = ["four", "4", "4.0", "5", "5"]
    near = {("4", "4.0"), ("4", "four")}

    def agree(one, other):
        return one == other or (min(one, other), max(one, other)) in near

    assert {majority_answer(list(order), agree) for order in permutations(answers)} == {"4"}


def test_a_teacher_that_was_shown_the_answer_has_no_vote() -> None:
    traces = [trace(FOUR, "4", teacher="a", k=k) for k in range(2)]
    hinted = replace(trace(FOUR, "5", teacher="b"), hinted=True)
    alone, together = default(Agreement).measure(FOUR, traces), default(Agreement).measure(FOUR, [*traces, hinted])
    assert together[:2] == alone
    assert together[2] == {"agreement_state": "not_applicable"}


@pytest.mark.parametrize(
    ("answers", "difficulty"), [("4555", "hard"), ("445", "easy"), ("4455", "medium"), ("4", "easy"), ("55", "hard")]
)
def test_difficulty_is_the_share_of_correct_traces(answers, difficulty):
    rows = measured({f"{place}": ("a", answer) for place, answer in enumerate(answers)})
    assert {row["difficulty"] for row in rows.values()} == {difficulty}


def test_without_a_gold_answer_difficulty_is_not_known():
    assert measured({"a": ("a", "4")}, OPEN)["a"]["difficulty"] is None


def test_a_letter_agrees_with_the_text_of_its_option():
    of = sample("Which fruit?", "B", options=["apple", "pear"])
    rows = measured({"a": ("a", "B"), "b": ("b", "pear"), "c": ("c", "A")}, of)
    assert [rows[id]["in_majority"] for id in "abc"] == [True, True, False]
