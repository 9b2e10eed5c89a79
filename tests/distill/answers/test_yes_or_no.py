"""Yes and no in sentences without these words: places, things that are on or off, and what is not there."""

import pytest

from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("question", "said", "stated"),
    [
        ("Is the light on?", "The light is off.", "no"),
        ("Is the light on?", "The light is on.", "yes"),
        ("Is the light on?", "It is off.", "no"),
        ("Is the TV off?", "The TV is on.", "no"),
        ("Is the TV turned on?", "The TV is turned off.", "no"),
        ("Is the TV on?", "It is turned off.", "no"),
        ("Is the TV on?", "It is on.", "yes"),
        ("Is the lamp on the table on?", "The lamp on the table is off.", "no"),
        ("Is the door open?", "It is closed.", "no"),
    ],
)
def test_what_is_off_is_not_on(question: str, said: str, stated: str) -> None:
    for gold in ("yes", "no"):
        assert judge(said, gold, question=question).verdict == ("correct" if gold == stated else "wrong")


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Is the cat on the bed?", "The cat is under the bed."),
        ("Is the cat on the bed?", "The cat is not under the bed."),
        ("Is the dog in the house?", "The dog is out of the house."),
        ("Is the boat in the water?", "The boat is out of the water."),
        ("Does the cat sit on the bed?", "The cat sits on the floor by the bed."),
    ],
)
def test_another_place_is_not_the_place_that_is_asked_for(question: str, said: str) -> None:
    assert {judge(said, gold, question=question).verdict for gold in ("yes", "no")} == {"undecided"}


def test_a_side_is_no_place_of_its_own() -> None:
    question = "Is the woman to the left of the man?"
    assert judge("The woman is on the left of the man.", "yes", question=question).verdict == "correct"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Is there a pleural effusion?", "No pleural effusion is seen."),
        ("Is there evidence of a fracture?", "No fracture is visible."),
        ("Are there any masses?", "No masses are identified."),
        ("Is there a pleural effusion?", "No evidence of pleural effusion."),
        ("Is there a dog?", "No dog is present in the image."),
    ],
)
def test_a_sentence_that_finds_none_is_a_no(question: str, said: str) -> None:
    assert judge(said, "no", question=question).verdict == "correct"
    assert judge(said, "yes", question=question).verdict == "wrong"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Is there a fracture?", "No acute fracture is seen."),
        ("Is there a fracture?", "No longer a fracture is visible."),
        ("Is there no dog?", "No dog is visible."),
    ],
)
def test_no_before_other_words_leaves_the_answer_open(question: str, said: str) -> None:
    assert judge(said, "no", question=question).verdict == "undecided"


def test_no_before_a_comma_is_the_whole_answer() -> None:
    assert judge("No, there is a fracture.", "yes", question="Is there a fracture?").verdict == "wrong"
