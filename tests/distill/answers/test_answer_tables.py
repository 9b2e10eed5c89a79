"""Each entry of a table of the judge has its value: hours, zones, eras, scales, parts and numerals."""

import pytest

from distill.answers import judge
from distill.answers.dates.dates_and_times import read_dates
from distill.answers.dates.foreign_times import in_figures
from distill.answers.numbers.quantities import read_quantities

CORRECT, WRONG = "correct", "wrong"

TIMES = {
    "Arabic": {
        "الواحدة والربع": "1:15",
        "الثالثة والثلث": "3:20",
        "الثالثة والنصف": "3:30",
        "الثالثة إلا الربع": "2:45",
    },
    "Chinese": {"三点半": "3:30", "三点一刻": "3:15", "三点三刻": "3:45", "下午2:30": "14:30", "下午14:30": "14:30"},
    "English": {
        **{
            "noon": "12:00",
            "midday": "12:00 pm",
            "midnight": "0:00",
            "one o'clock": "1:00",
            "twelve o'clock": "12:00",
        },
        **{
            "half past three": "3:30",
            "quarter to three": "2:45",
            "twenty past three": "3:20",
            "forty to three": "2:20",
        },
        **{"twenty-one past three": "3:21", "thirty-nine past three": "3:39", "fifty-nine past three": "3:59"},
        **{"three oh five": "3:05", "thirty past three": "3:30", "fifty past three": "3:50"},
    },
    "French": {
        **{"six heures": "6:00", "dix heures": "10:00", "une heure et demie": "1:30", "un heure et quart": "1:15"},
        **{"trois heures et demi": "3:30", "trois heures moins le quart": "2:45", "trois heures vingt": "3:20"},
        **{"trois heures moins dix": "2:50"},
    },
    "German": {
        **{"halb eins": "12:30", "halb ein": "12:30", "halb elf": "10:30", "zehn vor drei": "2:50"},
        **{"zehn nach drei": "3:10", "7 Uhr": "7:00", "7 Uhr 05": "7:05", "0 Uhr 30": "0:30", "24 Uhr": "24:00"},
    },
    "Hindi": {"3 बजे": "3:00", "साढ़े तीन बजे": "3:30"},
    "Italian": {
        **{"le tre e un quarto": "3:15", "le tre e mezza": "3:30", "le tre e mezzo": "3:30"},
        **{"le tre e tre quarti": "3:45", "l'una e mezza": "1:30", "le due e mezza": "2:30"},
    },
    "Korean": {"3시 반": "3:30"},
    "Portuguese": {"às três e meia": "3:30", "as uma e meia": "1:30"},
    "Russian": {
        **{"половина третьего": "2:30", "четверть второго": "1:15", "половина первого": "12:30"},
        **{"четверть четвёртого": "3:15", "без четверти пять": "4:45"},
    },
    "Spanish": {"las tres y cuarto": "3:15", "las cuatro menos cuarto": "3:45", "la una y media": "1:30"},
}


@pytest.mark.parametrize("language", TIMES)
def test_each_time_of_a_language_is_this_time_and_not_the_next_minute(language: str) -> None:
    for said, gold in TIMES[language].items():
        later = f"{gold[:-5] if 'm' in gold else gold[:-2]}{(int(gold.split(':')[1][:2]) + 1) % 60:02}"
        assert judge(said, gold, "time").verdict == CORRECT, said
        assert judge(said, later, "time").verdict == WRONG, (said, later)


@pytest.mark.parametrize(
    "text", ["25 Uhr", "चौबीस बजे", "halb anderthalb", "las 100 y media", "las tres y 100", "hundert heures"]
)
def test_what_is_no_time_of_day_stays_as_written(text: str) -> None:
    assert in_figures(text) == text


def test_a_day_has_the_hours_0_to_24_in_other_languages_too() -> None:
    assert [in_figures(text) for text in ("तेईस बजे", "24 Uhr", "0 Uhr", "Viertel vor 0")] == [
        "23:00",
        "24:00",
        "0:00",
        "11:45",
    ]


ZONES = {
    **{"GMT": "12:00", "BST": "13:00", "CET": "13:00", "CEST": "14:00", "EET": "14:00", "EEST": "15:00"},
    **{"MSK": "15:00", "IST": "17:30", "JST": "21:00", "KST": "21:00", "AEST": "22:00", "AEDT": "23:00"},
    **{"EST": "07:00", "EDT": "08:00", "CST": "06:00", "CDT": "07:00", "MST": "05:00", "MDT": "06:00"},
    **{"PST": "04:00", "PDT": "05:00", "ET": "07:00", "CT": "06:00", "MT": "05:00", "PT": "04:00", "UTC": "12:00"},
}


@pytest.mark.parametrize("zone", ZONES)
def test_noon_in_utc_is_one_time_in_each_zone(zone: str) -> None:
    said = f"{ZONES[zone]} {zone}"
    assert judge(said, "12:00 UTC", "time").verdict == CORRECT
    assert judge(said, "12:01 UTC", "time").verdict == WRONG


def test_a_time_without_its_zone_is_the_same_time() -> None:
    assert judge("3 pm EST", "3 pm", "time").verdict == judge("3 pm", "3 pm EST", "time").verdict == CORRECT


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("明治元年", 1868),
        ("大正3年", 1914),
        ("昭和50年", 1975),
        ("平成10年", 1998),
        ("令和元年", 2019),
        ("令和五年", 2023),
    ],
)
def test_a_year_of_a_japanese_era_is_the_year_in_figures(text: str, year: int) -> None:
    assert judge(text, str(year), "year").verdict == CORRECT
    assert judge(text, str(year + 1), "year").verdict == WRONG


NUMBERS = {
    **{"two halves": "1", "two thirds": "2/3", "three quarters": "3/4", "one fourth": "1/4", "two fifths": "2/5"},
    **{"five sixths": "5/6", "two sevenths": "2/7", "one sixteenth": "1/16"},
    **{"5k": "5000", "5K": "5000", "5M": "5000000", "5B": "5000000000", "5T": "5000000000000"},
    **{"$5m": "$5000000", "$5b": "$5000000000", "$5t": "$5000000000000"},
    **{"सौ": "100", "हजार": "1000", "مئة": "100", "مئتين": "200", "ألف": "1000", "مليار": "1000000000"},
    **{"тысяча": "1000", "две тысячи": "2000", "пять тысяч": "5000", "двести": "200", "девятьсот": "900"},
    **{"семьдесят": "70", "девятнадцать": "19", "عشرة": "10", "واحدة": "1", "واحده": "1", "اثنين": "2"},
    **{"اثنتين": "2", "احد": "1", "احدي": "1", "اثنا": "2", "سبعون": "70", "ثلاثين": "30"},
    **{"하나": "1", "둘": "2", "셋": "3", "넷": "4", "twenty ten": "2010", "nineteen ten": "1910"},
    **{"twelve point seventy five": "12.75", "twelve point seventy-five": "12.75", "point oh five": "0.05"},
}


@pytest.mark.parametrize("text", NUMBERS)
def test_each_number_in_words_or_with_a_letter_is_its_number_and_no_other(text: str) -> None:
    assert judge(text, NUMBERS[text], "number").verdict == CORRECT
    assert judge(text, f"{NUMBERS[text]}7", "number").verdict != CORRECT


@pytest.mark.parametrize(
    ("text", "values", "certain"),
    [
        ("twenty zero", ["20", "0"], True),
        ("two thousand nineteen ninety", ["2019", "90"], True),
        ("0,123.45", ["123.45"], False),
        ("1 234,567", ["1234.567"], True),
        ("1'234,5", ["1234.5"], True),
        ("1_000", ["1000"], True),
        ("0,1234", ["0.1234"], True),
    ],
)
def test_runs_of_numbers_and_rare_notations_have_their_values(text: str, values: list[str], certain: bool) -> None:
    found = read_quantities(text)
    assert [str(quantity.value) for quantity in found] == values
    assert all(quantity.certain is certain for quantity in found)


@pytest.mark.parametrize(
    ("numeral", "number"), [("XCIX", 99), ("CDXLIX", 449), ("DCLXVI", 666), ("MCDXLIV", 1444), ("MCMXCIV", 1994)]
)
def test_a_roman_number_is_its_number_alone_or_with_what_it_numbers(numeral: str, number: int) -> None:
    for name in ("part", "volume", "chapter"):
        assert judge(numeral, f"{name} {number}", "text").verdict == CORRECT
        assert judge(numeral, f"{name} {number + 1}", "text").verdict != CORRECT


def test_of_the_roman_numbers_behind_a_name_those_below_40_are_read() -> None:
    assert judge("Rocky XXXIX", "Rocky 39").verdict == judge("Rocky iii", "Rocky 3").verdict == CORRECT
    for said, gold in (
        ("Rocky XL", "Rocky 40"),
        ("Rocky i", "Rocky 1"),
        ("Balboa III", "Rocky 3"),
        ("Part C", "Part 100"),
    ):
        assert judge(said, gold).verdict != CORRECT, said


@pytest.mark.parametrize(("count", "word"), [(2, "two"), (3, "three"), (4, "four"), (5, "five"), (6, "six")])
def test_a_question_for_several_things_takes_as_many_golds_as_one_list(count: int, word: str) -> None:
    drinks = ["Milk", "Tea", "Rum", "Ale", "Gin", "Cola"][:count]
    question = f"Which {word} drinks are on the menu?"
    assert judge(", ".join(drinks), drinks, question=question).verdict == CORRECT
    assert judge(drinks[0], drinks, question=question).verdict == WRONG
    assert judge(drinks[0], [*drinks, "Water"], question=question).verdict == CORRECT


def test_a_day_beyond_12_is_the_day_in_a_language_that_writes_it_first_too() -> None:
    (readings,) = read_dates("3/15/1998", day_first=True)
    assert [(day.month, day.day) for day in readings] == [(3, 15)]
    assert judge("Sept 5, 2020", "2020-09-05").verdict == CORRECT
