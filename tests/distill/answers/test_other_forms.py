"""Forms of an answer that say the same: lists joined by other words, persons with their office, what is ruled out."""

import pytest

from distill.answers import judge


@pytest.mark.parametrize(
    ("gold", "right", "other"),
    [
        ("Italy; Spain", "Both Spain and Italy.", "Both Portugal and Italy."),
        ("red, blue", "Red as well as blue.", "Red as well as green."),
        ("red, blue", "It is blue and also red.", "It is blue and also green."),
    ],
)
def test_items_may_be_joined_by_other_words_for_and(gold: str, right: str, other: str) -> None:
    assert judge(right, gold).verdict == "correct"
    assert judge(other, gold).verdict != "correct"


@pytest.mark.parametrize(
    ("gold", "right", "other"),
    [
        (
            "Dr. Thomas Osdene",
            "The memo is addressed to Dr. Thomas Osdene of Philip Morris.",
            "The memo is addressed to the secretary of Dr. Thomas Osdene of Philip Morris.",
        ),
        (
            "Ann Lee",
            "The letter was written by Ann Lee from the Tobacco Institute.",
            "The letter was written by the son of Ann Lee from London.",
        ),
        ("Ann Lee", "The letter was written by Ann Lee at Oxford.", "It is signed by the wife of Ann Lee at Oxford."),
    ],
)
def test_a_person_may_be_named_with_the_body_that_they_belong_to(gold: str, right: str, other: str) -> None:
    assert judge(right, gold).verdict == "correct"
    assert judge(other, gold).verdict != "correct"


@pytest.mark.parametrize("text", ["{}, nicht {}", "{}, und nicht {}", "{}, pas {}", "{}, et pas {}", "{}, non {}"])
def test_what_another_language_denies_after_a_comma_is_wrong(text: str) -> None:
    said = text.format("Rom", "Wien")
    assert judge(said, "Rom").verdict == "correct"
    assert judge(said, "Wien").verdict == "wrong"


def test_no_after_a_comma_corrects_what_is_before_it() -> None:
    assert judge("It is red, no it is blue.", "red").verdict != "correct"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The answer must be B since A, C and D are excluded.", "correct"),
        ("Not A. C and D are wrong, so it is B.", "correct"),
        ("The answer is B, A is wrong.", "correct"),
        ("B, C and D are wrong, so A.", "wrong"),
        ("B or C is not shown, only A is.", "wrong"),
    ],
)
def test_letters_of_a_list_that_is_ruled_out_are_not_chosen(text: str, verdict: str) -> None:
    assert judge(text, "B", "choice").verdict == verdict
