import pytest

from distill.answers.verdicts import judge

DRINKS = "Which two drinks are on the menu?"


@pytest.mark.parametrize(
    ("said", "gold", "question", "verdict"),
    [
        ("Milk, Tea", ["Milk", "Tea"], DRINKS, "correct"),
        ("The two drinks are tea and milk.", ["Milk", "Tea"], DRINKS, "correct"),
        ("Milk", ["Milk", "Tea"], DRINKS, "wrong"),
        ("Milk and juice", ["Milk", "Tea"], DRINKS, "wrong"),
        ("3 and 5", [3, 5], "What are the two values shown?", "correct"),
        ("Rome, Bonn, Oslo", ["Oslo", "Rome", "Bonn"], "List the three cities.", "correct"),
    ],
)
def test_golds_of_a_question_that_asks_for_as_many_things_are_one_list(
    said: str, gold: list[str | int], question: str, verdict: str
) -> None:
    assert judge(said, gold, question=question).verdict == verdict


@pytest.mark.parametrize(
    ("gold", "question"),
    [
        (["umbrella", "parasol"], "What is she holding?"),
        (["umbrella", "parasol"], "What are the two men holding?"),
        (["umbrella", "parasol"], "What two-word name is on the sign?"),
        (["umbrella", "parasol", "shade"], DRINKS),
        (["umbrella", "red umbrella"], DRINKS),
        (["umbrella", "cap and hat"], DRINKS),
    ],
)
def test_several_golds_are_else_answers_of_their_own(gold: list[str], question: str) -> None:
    assert judge("umbrella", gold, question=question).verdict == "correct"


@pytest.mark.parametrize(("said", "verdict"), [("June to August", "correct"), ("cat to dog", "wrong")])
def test_a_span_of_a_calendar_is_the_list_of_its_months(said: str, verdict: str) -> None:
    assert judge(said, "June, July and August").verdict == verdict
