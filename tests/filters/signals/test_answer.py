from dataclasses import replace

from worlds.run_fixtures import default, sample, trace

from filters.signals.families.answer import Answer

APPLES = sample("How many apples?", "12", answer_type="number")


def measured(answer, of=APPLES, **parameters):
    (row,) = default(Answer, **parameters).measure(of, [trace(of, answer)])
    return row


def test_an_answer_that_agrees_with_the_gold_is_correct():
    row = measured("12")
    assert (row["answer_state"], row["answer_verdict"], row["answer_type"]) == ("ok", "correct", "number")
    assert row["answer_relative_error"] == 0


def test_the_relative_error_of_a_wrong_number_is_kept():
    row = measured("15")
    assert row["answer_verdict"] == "wrong"
    assert row["answer_relative_error"] == 0.25
    assert row["answer_reason"]


def test_the_tolerance_of_the_recipe_decides_what_is_correct():
    assert measured("12.3", relative_tolerance=0.05)["answer_verdict"] == "correct"
    assert measured("12.3")["answer_verdict"] == "wrong"


def test_a_sample_without_gold_has_no_verdict():
    row = measured("12", of=sample("What is this?"))
    assert row == {"answer_state": "not_applicable"}


def test_a_trace_without_an_answer_has_no_verdict():
    assert measured("  ") == {"answer_state": "not_applicable"}


def test_what_cannot_be_decided_is_neither_correct_nor_wrong():
    of = sample("Which percentage?", "50%", answer_type="percent")
    row = measured("0.5", of=of)
    assert (row["answer_state"], row["answer_verdict"]) == ("undecidable", "undecided")


def test_options_of_the_question_give_letters_their_meaning():
    of = sample("Which fruit?", "B", answer_type="choice", options=["apple", "pear"])
    assert measured("pear", of=of)["answer_verdict"] == "correct"
    assert measured("apple", of=of)["answer_verdict"] == "wrong"


def test_any_accepted_answer_is_enough():
    assert (
        measured("a dozen", of=replace(APPLES, answers=("12", "a dozen"), answer_type="text"))["answer_verdict"]
        == "correct"
    )
