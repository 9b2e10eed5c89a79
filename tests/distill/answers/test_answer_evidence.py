"""What the judge needs before it says correct or wrong: no denial, the same sign, and a question for what is open."""

import pytest

from distill.answers.answer_types import infer_type
from distill.answers.texts.turned_relations import turns_around
from distill.answers.verdicts import judge

SPORTS = ["surfing", "skiing", "tennis", "golf"]
OCEANS = ["the Atlantic Ocean", "the Pacific Ocean", "the Arctic Ocean"]


@pytest.mark.parametrize("said", ["You can use it for anything but surfing.", "everything except surfing", "Not A"])
def test_an_option_that_an_answer_excludes_is_not_chosen(said: str) -> None:
    assert judge(said, "surfing", "choice", options=SPORTS).verdict != "correct"


@pytest.mark.parametrize(("said", "gold"), [("Pacific", "the Pacific Ocean"), ("the arctic one", "the Arctic Ocean")])
def test_a_word_of_one_option_only_chooses_it(said: str, gold: str) -> None:
    assert judge(said, gold, options=OCEANS).verdict == "correct"
    assert judge(said, "the Atlantic Ocean", options=OCEANS).verdict == "wrong"


def test_a_word_of_two_options_chooses_none() -> None:
    assert judge("ocean", "the Pacific Ocean", options=OCEANS).verdict == "undecided"
    assert judge("Virginia", "West Virginia", "choice", options=["West Virginia", "Ohio"]).verdict != "correct"


def test_a_sentence_that_names_no_option_is_not_another_option() -> None:
    options = ["larger than", "equal to", "smaller than"]
    assert judge("The two derivatives are the same.", "equal to", options=options).verdict == "undecided"


@pytest.mark.parametrize("gold", ["12,50 €", "1 499,90 ₽"])
def test_a_currency_sign_after_an_amount_is_read(gold: str) -> None:
    assert judge(gold[:-1] + "$", gold).verdict != "correct"
    assert judge("12,50 $", "$12.50").verdict == "correct"


@pytest.mark.parametrize("said", ["12 € 50", "12€50", "12,50 €"])
def test_cents_may_stand_after_the_sign_of_the_currency(said: str) -> None:
    assert judge(said, "12,50 €").verdict == "correct"


def test_tenths_of_a_cent_are_a_part_of_a_price() -> None:
    assert judge("$2.79 9/10", "2.799").verdict == "correct"


def test_a_difference_said_the_other_way_has_the_other_sign() -> None:
    question = "How many more men than women were there?"
    assert judge("12 more women than men", "12", "number", question=question).verdict == "wrong"
    assert judge("12 fewer women than men", "12", "number", question=question).verdict == "correct"
    assert turns_around("5 fewer pens than cups", "How many more pens than cups?")
    assert not turns_around("5 more pens than cups", "How many more pens than cups?")


def test_a_name_needs_capitals() -> None:
    question = "Who leads in the poll?"
    assert judge("Warren is in front, ahead of Clark.", "Clark", question=question).verdict != "correct"
    assert judge("Helen Clark", "Clark", question=question).verdict == "correct"


def test_an_acronym_that_the_question_names_answers_nothing() -> None:
    gold = "World Health Organization"
    assert judge("WHO", gold, question="Which body issued this?").verdict == "correct"
    assert judge("WHO", gold, question="What does 'WHO' stand for?").verdict == "undecided"


def test_braces_and_other_brackets_leave_two_numbers_open() -> None:
    assert judge("{-3, 3}", "(-3, 3)").verdict == "undecided"


def test_a_number_word_with_the_beginning_of_a_month_is_no_date() -> None:
    assert infer_type("quatre-vingt-dix-sept") == "number"
    assert judge("quatre-vingt-sept", "quatre-vingt-dix-sept").verdict == "wrong"


def test_a_refusal_in_another_language_gives_no_number() -> None:
    assert judge("Auf Bild 4 kann ich nicht zugreifen.", "4", "number").verdict == "wrong"


@pytest.mark.parametrize("said", ["-$72.10", "negative $72.10"])
def test_an_amount_in_parentheses_is_negative(said: str) -> None:
    assert judge(said, "($72.10)").verdict == "correct"
    assert judge("-$72.90", "($72.10)").verdict == "wrong"


@pytest.mark.parametrize(
    ("said", "gold", "question"),
    [
        ("None", "0", "How many guests came?"),
        ("No guests came.", "0", "How many guests came?"),
        ("4th floor", "4", "Which floor is it?"),
        ("0.625", "62.5%", "What share is shaded?"),
        ("28.3", "28.27", "What is the area?"),
        ("6.5 billion euros", "6.5", "What is the highest value?"),
        ("$41.20 per ounce", "41.20", "What was the price of silver?"),
        ("True", "yes", "Is the bar red?"),
        ("It is not.", "no", "Is the bar red?"),
        ("La porte est ouverte", "oui", "La porte est-elle ouverte ?"),
        ("Das Tor ist nicht offen", "nein", "Ist das Tor offen?"),
    ],
)
def test_a_question_settles_what_two_bare_answers_leave_open(said: str, gold: str, question: str) -> None:
    assert judge(said, gold, question=question).verdict == "correct"
    assert judge(said, gold).verdict != "correct"


def test_a_question_settles_no_other_answer() -> None:
    assert judge("None", "3", question="How many guests came?").verdict == "wrong"
    assert judge("False", "yes", question="Is the bar red?").verdict == "wrong"
    assert judge("6.5 million", "6.5", question="How high is it (in billions)?").verdict != "correct"
    assert judge("100%", "99.97%", question="What share is it?").verdict != "wrong"


def test_the_number_before_a_list_of_what_it_counts_is_the_answer() -> None:
    assert judge("Four years: 2001, 2002, 2005 and 2009", "4").verdict == "correct"
    assert judge("Five years: 2001, 2002, 2005 and 2009", "4").verdict != "correct"


def test_a_list_with_one_item_less_is_wrong_only_if_its_items_agree() -> None:
    assert judge("UC San Diego", "University of California, San Diego").verdict == "undecided"
    assert judge("red, blue", "red, blue, green").verdict == "wrong"


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("2/3", "2:3"),
        ("3,5 M€", "3,5 millions d'euros"),
        ("3 Md€", "3 milliards d'euros"),
        ("만 오천 원", "15,000원"),
        ("Семь", "7"),
        ("five twelfths", "5/12"),
        ("3 out of 8", "3/8"),
        ("1h 30", "1.5 hours"),
        ("Cafe Mueller", "Café Müller"),
        ("EE. UU.", "Estados Unidos"),
        ("the Netherlands", "les Pays-Bas"),
        ("행복 약국", "행복약국"),
        ("chaussures", "des chaussures"),
    ],
)
def test_another_writing_of_the_same_value_or_name_is_correct(said: str, gold: str) -> None:
    assert judge(said, gold).verdict == "correct"


def test_a_bare_share_stays_open_where_the_question_asks_for_a_percentage() -> None:
    assert judge("0.5", "50%", question="Which share do they own?").verdict == "correct"
    for question in ("What percentage agrees?", "What is the rate in %?", "Wie viel Prozent?"):
        assert judge("0.5", "50%", question=question).verdict == "undecided"
        assert judge("0.625", "62.5%", question=question).verdict == "correct"
        assert judge("0.68 (i.e. 68 %)", "68%", question=question).verdict == "correct"
