import pytest

from distill.answers.verdicts import judge

CORRECT, WRONG = "correct", "wrong"


@pytest.mark.parametrize(
    ("question", "said", "gold", "verdict"),
    [
        ("Which colour? A) red B) blue", "B", "blue", CORRECT),
        ("Which colour? A) red B) blue", "blue", "B", CORRECT),
        ("Which colour? A) red B) blue", "B) blue", "blue", CORRECT),
        ("Which colour? A) red B) blue", "red", "B", WRONG),
        ("Which colour? A) red B) blue", "A", "blue", WRONG),
        ("Which fruit? A: apple B: pear C: fig", "C", "C: fig", CORRECT),
        ("Which triangle? A equilateral B isosceles C scalene", "isosceles", "B isosceles", CORRECT),
        ("Options: 1. cat 2. dog", "2", "dog", CORRECT),
        ("Options: 1. cat 2. dog", "It is a dog", "2.", CORRECT),
        ("Options: 1. cat 2. dog", "The answer is option (2).", "2) dog", CORRECT),
        ("Options: 1. cat 2. dog", "1", "dog", WRONG),
        ("Options: 1. cat 2. dog", "cat", "2", WRONG),
        ("Options: 1. cat 2. dog", "3", "dog", WRONG),
        ("Options: 1. cat 2. dog", "0", "dog", WRONG),
    ],
)
def test_an_option_in_the_text_of_the_question_is_its_letter_or_number(
    question: str, said: str, gold: str, verdict: str
) -> None:
    assert judge(said, gold, question=question).verdict == verdict


def test_options_that_are_given_go_before_those_in_the_text_of_the_question() -> None:
    question = "Which colour? A) red B) blue"
    assert judge("A", "blue", question=question, options=["blue", "red"]).verdict == CORRECT
    assert judge("2", "2", "number", question="Which is right? Options: 1. cat 2. dog").answer_type == "number"
