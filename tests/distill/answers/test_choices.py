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


@pytest.mark.parametrize("said", ["fruit 28", "It shows fruit 28 here", "28", "The answer is (28)."])
def test_an_option_after_the_26th_has_no_letter(said: str) -> None:
    options = [f"fruit {number}" for number in range(1, 31)]
    in_question = "Options: " + " ".join(f"{number}. {text}" for number, text in enumerate(options, start=1))
    assert judge(said, "fruit 3", options=options).verdict != CORRECT
    assert judge(said, "fruit 3", question=in_question).verdict != CORRECT
    assert judge("fruit 28", "fruit 28", options=options).verdict == CORRECT


def test_an_option_may_be_said_with_its_words_in_another_order() -> None:
    options = ["Ann can sell her bread for Tom's figs.", "Tom can sell his nuts for Ann's bread.", "Ann can wait."]
    assert judge("Ann should sell her bread for the figs of Tom.", "A", options=options).verdict == CORRECT
    options = ["The cat bites the big dog.", "The big dog bites the cat."]
    assert judge("It is the cat that the big dog bites.", "A", options=options).verdict != CORRECT
