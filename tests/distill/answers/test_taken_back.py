"""What takes an answer back: a correction, a denial, a doubt. Who only mentions the gold states none."""

import pytest

from distill.answers import judge
from distill.answers.taken_back import after_correction, without_denied

COLOURS = ["a red fox", "a grey wolf", "a brown bear"]
LETTERED = ["vitamin C", "vitamin A", "vitamin D"]
TALLER = "Is the red bar taller than the blue bar?"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("14", "The answer is 14. Wait, no, that's wrong: it is 12."),
        ("14", "Answer: 14\n\nHmm, let me recount: it is 12."),
        ("14", "It is false that the answer is 14."),
        ("14", "I doubt that it is 14."),
        ("14", "Hardly 14."),
        ("14", "You said 14; I disagree."),
        ("72 F", "72 F? No, 75."),
        ("72 F", "~~72 F~~ 75"),
        ("2:3", "It isn't 2:3."),
        ("2:3", "The ratio is 3:4 and not 2:3."),
        ("2:3", "It used to be 2:3, now it is 3:4."),
        ("12/2025", "I doubt that it is 12/2025."),
        ("March 3, 1987", "It is March 13, 1987, not March 3, 1987."),
        ("8:40", "It was never 8:40."),
        ("[2009, 2012]", "It isn't [2009, 2012]."),
        ("Paris", "The answer is Paris. Wait, no, that's wrong: it is Rome."),
    ],
)
def test_an_answer_that_is_taken_back_is_not_correct(gold: str, text: str) -> None:
    assert judge(text, gold).verdict != "correct"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("14", "The answer is 12. Wait, no, that's wrong: it is 14."),
        ("14", "The answer is 14. Wait, let me check: 5 + 9 = 14. Yes."),
        ("14", "I first saw 12, but it is 14."),
        ("B", "Answer: A. Hmm, actually it's B."),
        ("Paris", "The answer is Rome. Wait, no: it is Paris."),
        ("2:3", "The ratio is 2:3, not 3:2."),
        ("March 3, 1987", "March 3, 1987 (not March 13, 1987)"),
        ("1 June 2004", "Abstracts must arrive no later than June 1, 2004."),
        ("red, green", "red and green, not blue"),
        ("-2/3", "The slope is -\\frac{2}{3}."),
        ("-1/2", "It is −½."),
        ("a camera", "A camera instead of a phone."),
    ],
)
def test_a_correction_and_a_denied_alternative_leave_the_answer(gold: str, text: str) -> None:
    assert judge(text, gold, question="What is it?").verdict == "correct"


def test_a_mention_of_the_gold_letter_chooses_it_only_if_nothing_rejects_it() -> None:
    for text in (
        "Option B says grey wolf, but the image shows a brown bear.",
        "I disagree with B.",
        "It is false that B is correct.",
    ):
        assert judge(text, "B", options=COLOURS).verdict != "correct", text
    assert judge("(B) a grey wolf, because a red fox is not shown", "B", options=COLOURS).verdict == "correct"


def test_a_letter_inside_an_option_is_no_choice() -> None:
    assert judge("It is vitamin A.", "B", options=LETTERED).verdict == "correct"
    assert judge("It is vitamin A.", "A", options=LETTERED).verdict == "wrong"
    assert judge("D", "w", options=["x", "y", "z", "w"]).verdict == "correct"
    assert judge("w", "D", options=["x", "y", "z", "w"]).verdict == "correct"


def test_words_before_a_statement_may_turn_its_yes_and_no() -> None:
    assert judge("I doubt that the red bar is taller than the blue bar.", "yes", question=TALLER).verdict != "correct"
    no_doubt = "There is no question that the red bar is taller than the blue bar."
    assert judge(no_doubt, "yes", question=TALLER).verdict == "correct"
    assert judge(no_doubt, "no", question=TALLER).verdict == "wrong"
    conditional = "Yes, if one ignores the label; but the red bar is not taller than the blue bar."
    assert judge(conditional, "yes", question=TALLER).verdict == "undecided"


def test_a_unit_singles_no_number_out_that_the_text_sets_against_another() -> None:
    assert judge("It's 75, which should not be confused with 72 F.", "72 F").verdict != "correct"
    assert judge("The answer is neither 72 F nor 75.", "72 F").verdict != "correct"


@pytest.mark.parametrize(
    "text",
    ["A: 7; B: 72 F", "A: 7; B: 72 F. The first is asked for.", "Option 1: 7, option 2: 72 F", "(a) 7 (b) 72 F"],
)
def test_a_unit_singles_no_number_out_of_candidates_under_letters(text: str) -> None:
    assert judge(text, "72 F").verdict == "undecided"
    assert judge(text, "7").verdict != "correct"


def test_a_unit_singles_a_number_out_of_values_with_names() -> None:
    assert judge("Temperature: 72 F; humidity: 40", "72 F").verdict == "correct"
    assert judge("B: 72 F", "72 F").verdict == "correct"


def test_a_denial_in_devanagari_is_a_word_and_no_sign_of_one() -> None:
    assert judge("सबसे अधिक मान भारत का है।", "भारत", question="किस देश का मान सबसे अधिक है?").verdict == "correct"


def test_only_what_corrects_something_is_a_correction() -> None:
    assert after_correction("Wait for the bus.") is None
    assert after_correction("The man is actually waiting") is None
    assert after_correction("6. Wait, that's the other bar. It is 7.") == "that's the other bar. It is 7."
    assert without_denied("It is not 5 but 7") == "It is not 5 but 7"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("What is the total?", "5", "The total would be 5 if the fee were not included, but it is included."),
        ("What was the growth in 2016?", "5%", "The year before, growth was 5%."),
        ("What was the growth in 2016?", "5%", "In 2015 growth was 5%."),
        ("Wie hoch ist die Summe?", "5", "Die Summe wäre 5, wenn die Gebühr nicht dabei wäre."),
    ],
)
def test_a_number_of_another_year_or_of_what_is_not_so_is_no_answer(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict == "undecided"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("What would the total be without the fee?", "5", "The total would be 5 if the fee were not included."),
        ("What was the growth in 2016?", "5%", "In 2015 it was 4%. In 2016 growth was 5%."),
        ("What was the growth the year before?", "5%", "The year before, growth was 5%."),
        ("How many bars are blue?", "5", "If the last one were blue, it would be six. There are 5 blue bars."),
    ],
)
def test_a_number_of_the_case_that_is_asked_for_is_an_answer(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict == "correct"
