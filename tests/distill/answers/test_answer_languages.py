"""Answers in other languages and scripts, names of persons, and words that are no evidence against a gold answer."""

import pytest

from distill.answers import judge

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"


def verdicts(pairs: list[tuple[str, str]], question: str = "") -> dict[tuple[str, str], str]:
    return {(said, gold): judge(said, gold, question=question).verdict for said, gold in pairs}


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("сто", "100"),
        ("двести пятьдесят", "250"),
        ("백", "100"),
        ("삼백이십 명", "320"),
        ("36 квадратных сантиметров", "36 см²"),
        ("24 centímetros cuadrados", "24 cm²"),
        ("1499 рублей 90 копеек", "1 499,90 ₽"),
        ("девятого мая 1945 года", "9 мая 1945 г."),
        ("2022.11.03.", "2022년 11월 3일"),
        ("без четверти четыре", "15:45"),
        ("3:45 дня", "15:45"),
        ("без десяти шесть", "5:50"),
        ("без двадцати пяти шесть", "5:35"),
        ("dreiviertel vier", "15:45"),
        ("열다섯", "15"),
        ("스물", "20"),
        ("서른두 명", "32"),
        ("14:30", "下午2:30"),
        ("오후 2시 30분", "14:30"),
        ("14.30", "14:30 Uhr"),
        ("14 Uhr", "14:00"),
        ("trois heures", "3:00"),
        ("الساعة الثالثة والثلث", "3:20"),
    ],
)
def test_numbers_units_dates_and_times_of_other_languages_are_read(said: str, gold: str) -> None:
    assert judge(said, gold).verdict == CORRECT
    assert judge(said, "7").verdict != CORRECT


def test_one_word_in_two_writings_of_its_script_is_the_same_word() -> None:
    pairs = [
        ("蘭州拉麵", "兰州拉面"),
        ("夏目 漱石（なつめ そうせき）", "夏目漱石"),
        ("大熊猫（giant panda）", "大熊猫"),
    ]
    pairs += [("اللون الأزرق", "أزرق"), ("L'Allemagne", "Allemagne"), ("St-Etienne", "Saint-Étienne")]
    pairs += [("부산광역시", "부산"), ("자동차는 흰색입니다.", "흰색"), ("красный", "красная")]
    assert set(verdicts(pairs).values()) == {CORRECT}, verdicts(pairs)
    others = [("蘭州牛肉", "兰州拉面"), ("大熊猫（不是）", "大熊猫"), ("부산광역시", "대구"), ("зелёный", "красная")]
    assert CORRECT not in verdicts(others).values(), verdicts(others)


def test_the_only_words_in_quotes_are_what_a_sign_says() -> None:
    assert judge("「止まれ」と書いてあります。", "止まれ").verdict == CORRECT
    assert judge('The segment stands for people who answered "Rarely".', "Rarely").verdict == CORRECT
    assert judge('The sign says "Stop" and "Go".', "Stop").verdict != CORRECT
    assert judge('The sign does not say "Stop".', "Stop").verdict != CORRECT


def test_a_question_for_a_person_is_answered_by_more_or_fewer_given_names() -> None:
    question = "Who is the author of the report?"
    same = [("Joe Biden", "Biden"), ("Alan Smith", "Smith, Alan B."), ("Velazquez", "Diego Velázquez")]
    assert set(verdicts(same, question).values()) == {CORRECT}
    others = [("B. Kühn", "Kühn, A."), ("Jill Biden", "Joe Biden"), ("Alan Smithers", "Smith, Alan B.")]
    others += [("George W. Bush", "George H. W. Bush")]
    assert CORRECT not in verdicts(others, question).values()


def test_other_words_are_wrong_only_where_they_name_another_thing_of_the_same_form() -> None:
    paraphrases = [("He wears it to stay safe while riding.", "safety"), ("natural light", "sunlight")]
    paraphrases += [("NRW", "Nordrhein-Westfalen"), ("The Democratic Party", "Democrats"), ("went down", "decreased")]
    assert WRONG not in verdicts(paraphrases).values(), verdicts(paraphrases)
    others = [
        ("a dog", "cat"),
        ("It is blue.", "red"),
        ("The airline is Lufthansa.", "Emirates"),
        ("Porto", "Lisbon"),
    ]
    assert set(verdicts(others).values()) == {WRONG}, verdicts(others)


def test_a_yes_or_no_that_an_answer_does_not_say_stays_open_and_a_repeated_verb_says_it() -> None:
    assert judge("Parken ist hier verboten.", "Nein", question="Darf man hier parken?").verdict == UNDECIDED
    assert judge("戴了", "是", question="图中的男士戴眼镜吗？").verdict == CORRECT
    assert judge("没戴", "是", question="图中的男士戴眼镜吗？").verdict == WRONG
    assert judge("जी हाँ, दुकान खुली है।", "हाँ").verdict == CORRECT


def test_an_answer_about_the_other_side_another_weekday_or_another_year_is_not_accepted() -> None:
    question = "Which utensil is on the left of the plate?"
    assert (
        judge("The fork is on the right; on the left there is a knife.", "fork", question=question).verdict != CORRECT
    )
    assert judge("Sunday, July 14", "Monday, July 14").verdict == WRONG
    lowest = judge("2003 was low, but the minimum was actually reached in 2001.", "2003", "number")
    assert lowest.verdict != CORRECT


def test_the_question_says_what_a_bare_number_is() -> None:
    assert judge("1:4", "0.25", question="What is the ratio of the bars?").verdict == CORRECT
    assert judge("4:1", "0.25", question="What is the ratio of the bars?").verdict != CORRECT
    assert judge("$3.899 per gallon", "3.899", question="what is the price of gas per gallon?").verdict == CORRECT
    assert judge("140 kcal", "140", question="how many calories are in the can?").verdict == CORRECT
    assert judge("83.500.000 turistas", "83,5", question="¿Cuántos millones de turistas llegaron?").verdict == CORRECT
    assert judge("\\frac{2\\pi}{3} radians", "120°").verdict == CORRECT
    assert judge("500 mA", "0.5 A").verdict == CORRECT
    assert judge("500 mA", "5 A").verdict == WRONG


def test_a_misspelled_option_is_chosen_where_no_other_is_near() -> None:
    assert judge("Montpellier", "Montpelier", options=["Burlington", "Montpelier", "Augusta"]).verdict == CORRECT
    assert judge("mitosis", "meiosis", options=["meiosis", "binary fission"]).verdict != CORRECT
    assert judge("condensations", "evaporation", options=["condensation", "evaporation"]).verdict != CORRECT


@pytest.mark.parametrize(
    ("question", "gold", "said"),
    [
        ("¿En qué mes se registraron más ventas?", "agosto", "El mes con más ventas fue agosto."),
        ("¿Qué país tiene el porcentaje más alto?", "Alemania", "El país con el porcentaje más alto es Alemania."),
        ("Quel mois a enregistré le plus de ventes ?", "août", "Le mois avec le plus de ventes était août."),
    ],
)
def test_with_and_was_in_other_languages_only_state_an_answer(question: str, gold: str, said: str) -> None:
    assert judge(said, gold, question=question).verdict == CORRECT


def test_an_answer_about_less_or_another_thing_is_none_for_more_of_it() -> None:
    question = "¿En qué mes se registraron más ventas?"
    for said in ("El mes con menos ventas fue agosto.", "El mes con más compras fue agosto."):
        assert judge(said, "agosto", question=question).verdict == UNDECIDED
