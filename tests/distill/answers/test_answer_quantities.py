"""What is read of a number: its value and further readings, its decimals, percent sign, currency and unit."""

from decimal import Decimal
from typing import Any

import pytest

from distill.answers.numbers.normalize import normalise
from distill.answers.numbers.quantities import read_quantities, read_single_quantity
from distill.answers.numbers.solution_sets import compare_intervals
from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("text", "value", "others", "decimals"),
    [
        # A comma or a point before three digits may group them or begin decimals.
        ("1,234", "1234", ["1.234"], 0),
        ("1.234", "1.234", ["1234"], 3),
        ("0.750", "0.750", [], 3),
        ("1,234.5", "1234.5", [], 1),
        ("1.234,56", "1234.56", [], 2),
        ("12,345,678", "12345678", [], 0),
        ("12,34,567", "1234567", [], 0),
        ("1 234 567", "1234567", [], 0),
        ("1 234,5", "1234.5", [], 1),
        ("1'234.5", "1234.5", [], 1),
        ("0,75", "0.75", ["75"], 2),
        ("0,123", "0.123", [], 3),
        ("1,5", "1.5", ["15"], 1),
        ("1234,5678", "1234.5678", ["12345678"], 4),
        ("3 1/2", "3.5", [], None),
        ("3/4", "0.75", [], None),
        ("2^3", "8", [], 0),
        ("2^-1", "0.5", [], None),
        ("1.5e3", "1500", [], None),
        ("1.5×10^3", "1500", [], None),
        ("5K", "5000", [], None),
        ("7 M", "7000000", ["7"], None),
        ("1,5 million", "1500000", [], None),
        ("minus 5", "-5", [], 0),
        ("- 5", "-5", [], 0),
        ("three and a half", "3.5", [], None),
        ("1 hour 30 minutes", "1.5", [], None),
        ("5 ft 6 in", "5.5", [], None),
        ("1h 30m", "1.5", [], None),
        ("1d12h", "1.5", [], None),
        ("5m 30s", "5.5", [], None),
        ("3m 20cm", "3.2", [], None),
    ],
)
def test_a_number_keeps_every_reading_of_its_notation(
    text: str, value: str, others: list[str], decimals: int | None
) -> None:
    quantity = read_single_quantity(normalise(text))
    assert quantity is not None and quantity.certain
    assert (quantity.value, list(quantity.others)) == (Decimal(value), [Decimal(other) for other in others])
    assert quantity.decimals == decimals


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("12,5 %", "12.5", {"percent": True}),
        ("twenty-one percent", "21", {"percent": True}),
        ("2 percentage points", "2", {"percent": True, "unit": "point"}),
        ("980,00 €", "980", {"currency": "EUR"}),
        ("1.500 euros", "1500", {"currency": "EUR"}),
        ("12 € 50", "12.50", {"currency": "EUR"}),
        ("12 euros 99", "12.99", {"currency": "EUR"}),
        ("50 cents", "0.5", {"currency": "USD"}),
        ("$5m", "5000000", {"currency": "USD"}),
        ("Rs. 500", "500", {"currency": "INR"}),
        ("$3 per hour", "3", {"currency": "USD", "unit": "per hour"}),
        ("5 km/h", "5", {"unit": "km/h"}),
    ],
)
def test_what_belongs_to_a_number_is_read_with_it(text: str, value: str, kind: dict[str, Any]) -> None:
    quantity = read_single_quantity(normalise(text))
    assert quantity is not None and quantity.value == Decimal(value) and not quantity.others
    none: dict[str, Any] = {"percent": False, "currency": "", "unit": ""}
    assert {name: getattr(quantity, name) for name in none} == none | kind


@pytest.mark.parametrize("text", ["12,34,56", "1.2.3", "30 minutes 1 hour", "5/0", "5 of", "12 euros 100", "5 and 6"])
def test_what_is_no_single_number_is_none(text: str) -> None:
    assert read_single_quantity(normalise(text)) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("more than 5", "bound"),
        ("≥ 5", "bound"),
        ("5+", "bound"),
        ("not 5", "negated"),
        ("rather than 5", "negated"),
        ("5 is not the answer", "negated"),
        ("figure 5", "label"),
        ("step 5", "label"),
        ("about 5", ""),
    ],
)
def test_words_around_a_number_make_it_a_limit_a_denial_or_a_name(text: str, kind: str) -> None:
    (quantity,) = read_quantities(normalise(text))
    assert quantity.value == 5
    assert [name for name in ("bound", "negated", "label") if getattr(quantity, name)] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("said", "gold", "reason"),
    [
        ("[1, 3)", "1 <= x < 3", "same_interval"),
        ("3 > x ≥ 1", "[1, 3)", "same_interval"),
        ("x > 4", "(4, ∞)", "same_interval"),
        ("4 < x", "(4, inf)", "same_interval"),
        ("x \\leq 4", "(-∞, 4]", "same_interval"),
        ("from 1 to 3 inclusive", "1 ≤ x ≤ 3", "same_interval"),
        ("between 1 and 3, exclusive", "1 < x < 3", "same_interval"),
        ("x in [1/2, 3)", "0.5 ≤ x < 3", "same_interval"),
        ("all real numbers", "(-∞, ∞)", "same_interval"),
        ("[1, 3]", "[1, 3)", "other_ends"),
        ("(1, 3]", "[1, 3)", "other_ends"),
        ("[1, 4)", "[1, 3)", "other_interval"),
        ("[0, 3)", "[1, 3)", "other_interval"),
        ("x < 4", "x > 4", "other_interval"),
        # Points or lists, which are not compared here, unless only the brackets differ.
        ("(1, 3)", "[1, 3]", "interval_or_pair"),
        ("(1, 3)", "(1, 3)", None),
        ("(1, 4)", "[1, 3]", None),
        ("(3, 1)", "(1, 3)", None),
        # Nothing lies between these ends.
        ("3 < x < 1", "1 < x < 3", None),
        ("1 < x > 3", "1 < x < 3", None),
    ],
)
def test_intervals_are_compared_with_their_ends(said: str, gold: str, reason: str | None) -> None:
    result = compare_intervals(said, gold)
    assert (result.reason if result is not None else None) == reason


@pytest.mark.parametrize("text", ["三 " * 1000, "two, " * 500, "3 " * 1000])
def test_of_a_listing_the_first_400_numbers_are_read_in_digits_and_in_words(text: str) -> None:
    assert len(read_quantities(text)) == 400


@pytest.mark.parametrize(
    ("text", "negated", "bound", "label"),
    [
        ("not 三", True, False, False),
        ("≠ 5", True, False, False),
        ("≥ 5", False, True, False),
        ("at most 5", False, True, False),
        ("Fig. 5", False, False, True),
        ("figure 5", False, False, True),
        ("大 5", False, False, False),
        ("apples. 5", False, False, False),
    ],
)
def test_the_words_before_a_number_say_what_it_is(text: str, negated: bool, bound: bool, label: bool) -> None:
    (number,) = read_quantities(text)
    assert (number.negated, number.bound, number.label) == (negated, bound, label)


def test_a_scale_word_beside_a_question_with_another_one_stays_open() -> None:
    judged = judge("It is 5.9 thousand.", "5.9", question="What is the rate per hundred residents?")
    assert (judged.verdict, judged.reason) == ("undecided", "scale_added")


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("7 hours 22 minutes", "Teenagers spend 7 hours and 22 minutes a day on their phones."),
        ("90 minutes", "It takes 1 hour and 30 minutes."),
        ("6 feet 2 inches", "He is 6 feet and 2 inches tall."),
        ("7 lb 4 oz", "The baby weighs 7 pounds, 4 ounces."),
        ("2 Stunden 15 Minuten", "Es dauert 2 Stunden und 15 Minuten."),
        ("$7.20", "She needs 7 dollars and 20 cents."),
        ("$2.75", "It's two dollars and seventy-five cents."),
    ],
)
def test_neighbours_of_one_kind_are_one_quantity_inside_a_sentence_too(gold: str, said: str) -> None:
    assert judge(said, gold, question="How much is it?").verdict == "correct"


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("5 hours", "The flight takes 5 hours and 20 minutes."),
        ("5 minutes", "It takes 1 hour and 5 minutes."),
        ("6 feet", "He is 6 feet 2 inches tall."),
        ("2 years", "The child is 2 years and 3 months old."),
    ],
)
def test_a_part_of_a_quantity_is_not_the_quantity(gold: str, said: str) -> None:
    assert judge(said, gold, question="How long is it?").verdict == "wrong"


def test_only_neighbours_of_one_kind_with_falling_units_are_joined() -> None:
    texts = (
        "5 km and 30 minutes",
        "5 minutes for 1 hour",
        "3 m and 3 m",
        "$5 and 50 points",
        "1 hour 5 minutes and 2 kg",
    )
    assert [len(read_quantities(text)) for text in texts] == [2, 2, 2, 2, 3]


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("RM 1.92", "The tax amount is RM1.92."),
        ("1.92", "The tax amount is RM1.92."),
        ("RM 1.92", "1.92 MYR"),
        ("RM1.92", "The tax amount is 1.92 ringgit."),
        ("Rp 45.000", "The price is Rp45,000."),
        ("CHF 12.50", "The price is CHF12.50."),
        ("kr 99", "The price is 99 kr."),
        ("kr 99", "99 SEK"),
        ("₱ 250.00", "The price is P250.00."),
        ("R 120.50", "The price is R120.50."),
        ("NT$ 100", "The price is NT$100."),
        ("₫50,000", "50.000 VND"),
    ],
)
def test_a_currency_may_stand_before_its_amount_with_or_without_a_space(gold: str, said: str) -> None:
    assert judge(said, gold, "money", question="What does it cost?").verdict == "correct"


@pytest.mark.parametrize(("gold", "said"), [("RM 1.92", "$1.92"), ("kr 99", "€99"), ("RM 1.92", "RM19.20")])
def test_another_currency_or_amount_is_wrong(gold: str, said: str) -> None:
    assert judge(said, gold, "money").verdict == "wrong"


def test_one_capital_letter_is_money_only_before_an_amount_with_two_decimals() -> None:
    assert [quantity.currency for quantity in read_quantities("R120.50 and R 12 and P 7.5")] == ["ZAR", "", ""]
