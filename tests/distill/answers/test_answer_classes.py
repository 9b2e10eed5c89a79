"""Classes of answers that the judge reads in several forms: dates and words abroad, names, shares, last sentences."""

import pytest

from distill.answers import lists
from distill.answers.answer_types import infer_type
from distill.answers.compare_result import CompareResult, wrong
from distill.answers.dates.foreign_dates import as_iso_dates, names_day_first
from distill.answers.verdicts import judge
from distill.answers.words.person_names import same_person


@pytest.mark.parametrize(
    "text",
    [
        "5. März 1998",
        "5 mars 1998",
        "el cinco de marzo de 1998",
        "1998年3月5日(木)",
        "一九九八年三月五日",
        "fünfter März 1998",
    ],
)
def test_a_date_of_another_language_is_the_same_day_in_figures(text: str) -> None:
    assert as_iso_dates(text) == "1998-03-05"
    assert infer_type(text) == "date"
    assert judge("1998-03-05", text).verdict == "correct"
    assert judge("1998-03-15", text).verdict == "wrong"


def test_only_a_language_that_writes_the_day_first_orders_a_date_in_figures() -> None:
    assert names_day_first("5. August 1998") and names_day_first("5 août 1998")
    assert not names_day_first("5 August 1998") and not names_day_first("December 24, 2001")
    assert judge("5.3.1998", "5. März 1998").verdict == "correct"
    assert judge("3.5.1998", "5. März 1998").verdict == "wrong"
    assert judge("24 December 2001", "12/24/2001").verdict == "correct"


def test_a_person_is_the_same_with_a_title_a_degree_or_the_family_name_first() -> None:
    for text in ("Robert J. Smith, M.D.", "Smith, Robert J.", "Mr. Robert J. Smith"):
        assert same_person(text, "Dr. Robert J. Smith"), text
    for text in ("Robert K. Smith, M.D.", "Roberta J. Smith", "Smith"):
        assert not same_person(text, "Dr. Robert J. Smith"), text
    assert not same_person("Mrs. Lee Smith", "Mr. Lee Smith")


@pytest.mark.parametrize(
    ("said", "gold", "verdict"),
    [
        ("1/5", "1 in 5", "correct"),
        ("one out of five people", "1 in 5", "correct"),
        ("4/5", "1 in 5", "wrong"),
        ("200分", "3時間20分", "correct"),
        ("3:20 hours", "3 hours 20 minutes", "correct"),
        ("3時間2分", "3時間20分", "wrong"),
        ("1,50 euros", "1.500 euros", "wrong"),
        ("1500 euros", "1.500 euros", "correct"),
        ("The largest is B (12). The difference is 18, which is the value asked for.", "18", "correct"),
        ("Since 3 < 5 < 7, the middle number is 5.", "5", "correct"),
        ("Since 3 < 5 < 7, the middle number is 5.", "7", "undecided"),
        ("图中一共有四十二辆车。", "42", "correct"),
        ("Los Angeles, CA", "Los Angeles", "correct"),
        ("Facebook, with 2.7 billion users", "Facebook", "correct"),
        ("Instagram, which is owned by Facebook", "Facebook", "undecided"),
        ("The store is open, as the sign says.", "open", "correct"),
        ("rouges", "rouge", "correct"),
        ("red", "rouge", "correct"),
        ("कार लाल है।", "लाल", "correct"),
        ("कार लाल नहीं है।", "लाल", "undecided"),
        ("There isn't any. No.", "no", "correct"),
        ("Yes, there is no other.", "no", "undecided"),
    ],
)
def test_each_class_has_its_verdict(said: str, gold: str, verdict: str) -> None:
    assert judge(said, gold).verdict == verdict


def test_a_number_or_an_option_that_the_words_after_it_deny_is_not_the_answer() -> None:
    assert judge("18 is not the answer.", "18").verdict != "correct"
    assert judge("18 isn't the value.", "18").verdict != "correct"
    options = ["梨", "苹果", "香蕉", "桃"]
    assert judge("B不正确,所以选A。", "B", options=options).verdict == "wrong"
    assert judge("选A不选B", "B", options=options).verdict == "wrong"
    assert judge("A不正确,C不正确,所以选B。", "B", options=options).verdict == "correct"


def test_a_shortened_option_and_its_unit_in_letters_name_their_option() -> None:
    options = ["The force is smaller in Pair 2, which is far.", "The force is the same.", "It is larger in Pair 1."]
    assert judge("The force is smaller in Pair 2", "A", options=options).verdict == "correct"
    assert judge("The force is not smaller in Pair 2", "A", options=options).verdict != "correct"
    masses = ["15 kilograms", "15 grams", "15 pounds"]
    assert judge("15 kg", "A", options=masses).verdict == "correct"
    assert judge("15 g", "A", options=masses).verdict == "wrong"


def test_two_equations_about_numbers_are_not_the_same_answer_for_having_one_form() -> None:
    assert judge("\\log_3 8 = 2", "\\log_2 8 = 3").verdict != "correct"
    assert judge("$\\log_2 8 = 3$", "\\log_2 8 = 3").verdict == "correct"


def test_a_list_of_very_many_items_is_left_open_and_repeated_items_are_compared_once() -> None:
    many = ", ".join(f"w{number}" for number in range(300))
    assert judge(many, "w1, w2, w3, w4").verdict == "undecided"
    compared = []

    def judge_item(stated: str, gold: str) -> CompareResult:
        compared.append((stated, gold))
        return wrong("other_words")

    assert lists.compare("c, d, " * 200 + "c", "a, b", judge_item).verdict == "wrong"
    assert sorted(set(compared)) == sorted(compared)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("16 or 18", "undecided"),
        ("It is 18 or 16.", "undecided"),
        ("16, 18", "undecided"),
        ("between 16 and 18", "undecided"),
        ("16-18", "undecided"),
        ("maybe 18, maybe 16", "undecided"),
        ("It could be 18. It could be 16.", "undecided"),
        ("16 apples or perhaps 18", "undecided"),
        ("16 of 18", "correct"),
        ("Of the 18 apples, 16 are red.", "correct"),
        ("18", "wrong"),
    ],
)
def test_a_number_of_the_question_is_still_an_answer_where_it_is_offered_as_one(answer: str, verdict: str):
    judged = judge(answer, ["16"], answer_type="number", question="How many of the 18 apples are red?")
    assert judged.verdict == verdict


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("сорок", "40"), ("2 करोड़", "20000000"), ("1:30 pm", "13:30"), ("1 pm", "13:00")],
)
def test_numbers_and_times_in_words_of_other_languages_and_clocks(answer: str, gold: str):
    assert judge(answer, [gold]).verdict == "correct"
    assert judge(answer, [gold.replace("0", "1").replace("3", "4")]).verdict != "correct"


def test_a_time_zone_without_its_season_is_either_of_its_seasons_and_no_other_zone() -> None:
    for said, gold, verdict in (
        ("3 pm PT", "3 pm PST", "correct"),
        ("3:00 pm EST", "3:00 pm ET", "correct"),
        ("3 pm ET", "3 pm PST", "wrong"),
        ("3:00 pm PST", "3:00 pm PDT", "wrong"),
    ):
        assert judge(said, gold).verdict == verdict, (said, gold)
