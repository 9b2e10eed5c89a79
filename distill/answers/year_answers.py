"""Whether a prediction states the year of the gold answer."""

import re
from typing import Final

from distill.answers.compare_result import CompareResult, correct, undecided, wrong
from distill.answers.dates.dates_and_times import read_dates
from distill.answers.number_answers import GoldAnswer, compare_number
from distill.answers.numbers.pick_number import explain_undecided_numbers
from distill.answers.numbers.quantities import read_quantities, read_single_quantity
from distill.answers.texts import text_answers

_LATEST_YEAR: Final = 10_000


def compare_year(text: str, gold: GoldAnswer) -> CompareResult:
    if gold.quantity is None:
        return text_answers.compare_texts(text, gold.text)
    year = gold.quantity.value
    if year >= _LATEST_YEAR:
        return compare_number(text, gold)
    if (short := re.fullmatch(r"'(\d\d)", text)) is not None:
        return correct("year_without_century") if year % 100 == int(short[1]) else wrong("other_year")
    only_number = read_single_quantity(text)
    if only_number is not None:
        if only_number.value == year and not only_number.percent and not only_number.currency:
            return correct("equal")
        if year % 100 == only_number.value:
            return undecided("year_without_century")
        return (
            undecided("may_be_no_year") if year in (only_number.value, *only_number.others) else wrong("other_year")
        )
    if re.search(rf"\b{int(year) // 10}0'?s\b", text):
        return undecided("decade")
    numbers = read_quantities(text)
    if not numbers:
        inside = set(re.findall(r"(?<!\d)\d{4}(?!\d)", text))
        return undecided("year_inside_a_word") if gold.text in inside else text_answers.without_number(text)
    dates = {reading.year for day in read_dates(text) for reading in day}
    if len(dates) == 1 and None not in dates:
        return correct("only_year") if dates == {year} else wrong("other_year")
    values = {quantity.value for quantity in numbers if quantity.affirmed}
    years = {value for value in values if 1000 <= value <= 2999 and value == int(value)}
    if len(years) == 1:
        if _NEAR_A_YEAR.search(text) and years == {year}:
            return undecided("near_the_year")
        return correct("only_year") if years == {year} else wrong("other_year")
    if year in values | {quantity.value for quantity in numbers}:
        return undecided("several_numbers")
    return explain_undecided_numbers(text, numbers, year) or wrong("other_year")


_NEAR_A_YEAR = re.compile(
    r"\b(?:before|after|since|until|till|prior to)\s+(?:the year\s+)?\d{4}\b|\d{4}\s?[-/]\s?\d\d\b", re.IGNORECASE
)
