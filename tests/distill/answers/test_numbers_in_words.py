"""Numbers and ordinals in words count as those in figures do, also beside figures."""

import pytest

from distill.answers import judge
from distill.answers.numbers.number_words import numerals


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("7", "Seven of the 12 people are seated."),
        ("4", "Four out of 10 doctors agree."),
        ("10th", "He was ranked tenth out of 24."),
        ("2nd", "He came in second with 45 points."),
        ("1st", "The red car is first."),
        ("21st", "It is the twenty-first century."),
        ("18th", "It dates from the eighteenth century."),
    ],
)
def test_a_number_in_words_is_the_answer_beside_a_number_in_figures(gold: str, text: str) -> None:
    assert judge(text, gold).verdict == "correct"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("12", "Seven of the 12 people are seated."),
        ("10", "Four out of 10 doctors agree."),
        ("24th", "He was ranked tenth out of 24."),
        ("10th", "He was ranked ninth, just ahead of the man who came 10th."),
        ("10th", "He was one place behind the tenth."),
        ("10th", "He was just outside the tenth place."),
        ("10th", "He was ranked tenth from the bottom."),
        ("3rd", "It is not third."),
        ("3rd", "Two third of the cars."),
        ("3rd", "It took a third try."),
        ("2nd", "It is the second last one."),
        ("2nd", "He ranks second lowest."),
        ("2nd", "It took 30 seconds, every second counts."),
        ("5th", "It is the day after the fifth."),
        ("2", "There were 10 birds, but two flew away."),
        ("7", "Almost seven of 10."),
        ("7", "Fewer than seven of the 12."),
    ],
)
def test_a_number_in_words_that_is_not_the_answer_is_not_taken_for_it(gold: str, text: str) -> None:
    assert judge(text, gold).verdict != "correct"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("5", "Five students scored above 80."),
        ("7", "There are seven people, 3 of them are seated."),
        ("2", "The chart shows two lines from 2010 to 2020."),
    ],
)
def test_a_gold_number_that_stands_in_words_beside_others_in_figures_is_not_called_wrong(
    gold: str, text: str
) -> None:
    assert judge(text, gold).verdict == "undecided"


@pytest.mark.parametrize("text", ["唯一", "统一", "一起", "大家一起", "一样", "第一次一直"])
def test_the_sign_of_one_counts_nothing_in_words_for_only_and_together(text: str) -> None:
    assert all(value != 1 or text[start - 1] == "第" for value, start, _ in numerals(text))


@pytest.mark.parametrize(
    ("gold", "right", "other"),
    [
        ("90 minutes", "an hour and thirty minutes", "an hour and forty minutes"),
        ("90 minutes", "one hour and 30 minutes", "one hour and 40 minutes"),
        ("36 hours", "a day and 12 hours", "a day and 13 hours"),
        ("£8.50", "8 pounds 50", "8 pounds 5"),
        ("£8.50", "eight pounds fifty", "eight pounds five"),
        ("12:00", "It is twelve o'clock.", "It is eleven o'clock."),
        ("x > 4", "x must be greater than 4", "x is less than 4"),
        ("x > 4", "x is larger than 4", "x is greater than or equal to 4"),
        ("x <= 4", "x has to be less than or equal to 4", "x is smaller than 4"),
    ],
)
def test_amounts_times_and_limits_in_words_have_their_value(gold: str, right: str, other: str) -> None:
    assert judge(right, gold).verdict == "correct"
    assert judge(other, gold).verdict == "wrong"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("4th", "Germany comes third, and Spain is fourth."),
        ("4", "Germany has 3, and Spain is 4."),
        ("1st", "Tom is second, but Ann is first."),
        ("12 cm", "The rope measures 9 cm while the stick is 12 cm."),
    ],
)
def test_numbers_of_two_things_leave_open_which_is_the_answer(gold: str, text: str) -> None:
    assert judge(text, gold).verdict == "undecided"


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ("27", "The sum of 13 and 14 is 27."),
        ("20", "We take 10 from 30, and the result is 20."),
        ("4th", "It looks third, but it is fourth."),
    ],
)
def test_a_number_of_the_result_is_the_answer(gold: str, text: str) -> None:
    assert judge(text, gold).verdict == "correct"
