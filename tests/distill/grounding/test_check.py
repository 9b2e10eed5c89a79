"""What of a rationale its chart supports: clean ones pass in any phrasing, a misreading is found and named."""

import re
import time
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from distill.grounding.charts import operations
from distill.grounding.charts.chart_table import read_table
from distill.grounding.charts.derivation import MOST_IN_SENTENCE, NO_QUESTION, read_question
from distill.grounding.charts.labels import read_items
from distill.grounding.check import RationaleCheck, Unsupported, check_rationale
from distill.grounding.numbers_in_text import Item, find_numbers, read_numbers

BARS = {"blue": 8, "red": 6, "green": 3, "orange": 9}
SUM = "What is the sum of the blue and the red bar?"
GAP = "How much higher is the blue bar than the red bar?"
SERIES = {"2014": {"Imports": 41.5, "Exports": 70}, "2015": {"Imports": 45, "Exports": 62}}
PRICES = {"Lamb": 103.7, "Corn": 1234, "Palm oil": 87.25}


def unsupported(text: str, question: str = SUM, raw: object = BARS) -> tuple[Unsupported, ...]:
    table = read_table(raw)
    assert table is not None
    return check_rationale(text, table, read_question(question, table)).unsupported


CLEAN = [
    (SUM, "blue 8, red 6: 8 + 6 = 14."),
    (SUM, "The blue bar reaches 8 and the red bar reaches 6. Adding them gives 14."),
    (SUM, "Step 1: The blue bar is at 8.\nStep 2: The red bar is at 6.\nStep 3: 8 + 6 = 14."),
    (SUM, "The blue and red bars are 8 and 6 respectively, so their sum is 14."),
    (SUM, "There are 4 bars.\n1. Blue: 8\n2. Red: 6\n\nTogether: 14"),
    (SUM, "$\\text{blue} = 8$, $\\text{red} = 6$, hence \\(8 + 6 = 14\\)."),
    (SUM, "The chart of 2019 has an axis from 0 to 10. Blue shows 8, red shows 6, which makes 14 in total."),
    (SUM, "A value of 8 for blue and 6 for red. The answer is 14."),
    (GAP, "The blue bar has a value of 8, the red one of 6. So the blue bar is 2 higher."),
    (GAP, "We subtract red (6) from blue (8), which leaves 2."),
    (GAP, "8 (blue) - 6 (red) = 2"),
    (GAP, "Blue is at 8 and red at 6. Since 8 > 6, blue is higher, by 2 units."),
    ("What is the average of all bars?", "8, 6, 3 and 9: the sum is 26, and divided by 4 the average is 6.5."),
    ("What is the ratio of blue to red?", "blue is 8 and red 6, so the ratio is about 1.33."),
    ("What share is blue?", "All bars make 8 + 6 + 3 + 9 = 26. The share of blue is 8 / 26 = 30.8%."),
    ("How many bars are above 5?", "Above 5 are blue (8), red (6), orange (9). That makes 3 of the 4 bars."),
    ("If every bar grew by 2, what would blue be?", "Blue grows by 2, from 8 to 10."),
    ("What is the highest minus the lowest value?", "The highest is 9 and the lowest is 3, so 9 - 3 = 6."),
]


@pytest.mark.parametrize(("question", "text"), CLEAN)
def test_a_clean_rationale_has_nothing_unsupported(question: str, text: str) -> None:
    assert unsupported(text, question) == ()


LONG = [
    orjson.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "chart_rationales.jsonl").read_bytes().splitlines()
]
"""Rationales as large models write them, clean, about tables of many kinds."""


@pytest.mark.parametrize("case", LONG, ids=[case["question"][:50] for case in LONG])
def test_a_long_clean_rationale_has_nothing_unsupported(case: dict[str, Any]) -> None:
    table = read_table(case["table"])
    assert table is not None
    assert (
        check_rationale(case["rationale"], table, read_question(case["question"], table, case["title"])).unsupported
        == ()
    )


def test_a_slip_in_a_long_rationale_is_nearly_always_found() -> None:
    found, slips = 0, 0
    for case in LONG:
        table = read_table(case["table"])
        assert table is not None
        question = read_question(case["question"], table, case["title"])
        for match in re.finditer(r"(?<![\w.])\d\d(?![\w.]*\d)(?!\w)", case["rationale"]):
            wrong = str(int(match[0]) + 3)
            if float(match[0]) in table.values and wrong not in case["rationale"]:
                slips += 1
                text = case["rationale"][: match.start()] + wrong + case["rationale"][match.end() :]
                found += bool(check_rationale(text, table, question).unsupported)
    assert slips > 70
    assert found >= 0.9 * slips


WRONG = [
    (SUM, "blue 7, red 6: 7 + 6 = 13.", "blue 7", "reading"),
    (SUM, "The blue bar goes up to 7. The red one is at 6. In total that is 13.", "blue 7", "reading"),
    (SUM, "blue 6, red 8: 6 + 8 = 14.", "blue 6", "reading"),
    (SUM, "The blue and red bars are 6 and 8 respectively.", "blue 6", "reading"),
    (SUM, "Find the blue bar. Its value is 9.", "blue 9", "reading"),
    (SUM, "8 (red) + 6 (blue) = 14", "red 8", "reading"),
    (SUM, "The purple bar shows 8, the red bar 6.", "purple", "label"),
    (SUM, "blue 8, red 6: 8 + 6 = 15.", "15", "arithmetic"),
    (SUM, "blue is 8 and red is 6. Adding them gives 15.", "15", "result"),
    (SUM, "blue is 8 and red is 6, so 8 + 3 = 11.", "3", "value"),
    (SUM, "9 + 6 = 15", "9", "value"),
    (GAP, "blue is 8 and red is 6. So the blue bar is 3 higher.", "3", "result"),
    ("What is the total?", "8 + 6 = 13, 13 + 3 = 16, 16 + 9 = 25.", "13", "arithmetic"),
    ("What is the total?", "The bars are 8, 6, 8 and 9. Their total is 31.", "8", "value"),
    ("Which bar is the highest?", "The highest value is 8.", "highest 8", "reading"),
    ("Which bar is the highest?", "The tallest bar is blue.", "highest blue", "reading"),
    (GAP, "The blue bar is at 2 unless it is rounded, and red is at 6.", "blue 2", "reading"),
    (GAP, "The blue bar reaches 2 nonetheless, and the red bar 6.", "blue 2", "reading"),
]


@pytest.mark.parametrize(("question", "text", "value", "reason"), WRONG)
def test_a_misreading_is_named_where_it_first_appears(question: str, text: str, value: str, reason: str) -> None:
    found = unsupported(text, question)
    assert found
    assert (found[0].value, found[0].reason) == (value, reason)


def test_a_wrong_reading_says_what_the_table_says() -> None:
    (found,) = unsupported("The blue bar is 7.")
    assert found.expected == (8.0,)
    assert "The blue bar is 7" in found.context


def test_what_follows_from_a_misreading_is_not_counted_again() -> None:
    assert len(unsupported("blue 7, red 6: 7 + 6 = 13. So the answer is 13.")) == 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("In 2014, imports were 41.5 and exports 70.", ""),
        ("In 2014, imports were 45.", "imports 45"),
        ("Imports rose to 45 in 2015.", ""),
        ("Imports are 41.5 in 2015.", "imports 41.5"),
        ("Imports: 2014: 41.5, 2015: 45. The average is 43.25.", ""),
        ("Imports: 2014: 41.5, 2015: 45. The average is 44.25.", "44.25"),
    ],
)
def test_a_cell_is_found_by_its_row_and_its_column(text: str, wrong: str) -> None:
    assert [one.value for one in unsupported(text, "", SERIES)] == ([wrong] if wrong else [])


@pytest.mark.parametrize("text", ["Corn: 1,234", "Corn is 1.2 thousand", "Palm oil is about 85", "Lamb is 104"])
def test_a_number_may_be_written_rounded_grouped_or_scaled(text: str) -> None:
    assert unsupported(text, "", PRICES) == ()


def test_a_value_in_the_notation_of_another_language_is_not_judged_and_a_wrong_one_is() -> None:
    table = {"Norway": 1234.5, "Sweden": 2500000, "Malta": 3.5}
    right = [
        "Norway is 1.234,5, and Malta is 3,50.",
        "Norway is 1 234.5 and Sweden is 2 500 000.",
        "Sweden is 25,00,000 and Norway is 1 234,5.",
        "Sweden is 2.500.000 and Norway is 1.234,5, so the difference is 2498765.5.",
    ]
    for text in right:
        assert not unsupported(text, "What is the difference?", table), text
    for text in ("Norway is 1.234,6.", "Sweden is 25,00,001.", "Malta is 3,60.", "Sweden is 2 500 001."):
        assert unsupported(text, "What is the difference?", table), text


@pytest.mark.parametrize("text", ["Corn: 1,243", "Corn is 1.3 thousand", "Palm oil is about 70", "Rye: 103.7"])
def test_a_wrong_number_is_wrong_however_it_is_written(text: str) -> None:
    assert len(unsupported(text, "", PRICES)) == 1


def test_what_says_nothing_of_the_chart_is_not_judged() -> None:
    table = read_table(BARS)
    assert table is not None
    text = "Step 2: the axis ends at 20. In 2021, 1,503 people were asked (p. 12). Blue is more than 5."
    assert check_rationale(text, table).checked == 0


def test_supported_numbers_are_told_with_their_places() -> None:
    table = read_table(BARS)
    assert table is not None
    text = "The blue bar reaches 8 and the red bar reaches 6. Adding them gives 14."
    for wrong, right in ("", ["8", "6", "14"]), ("6", ["8", "14"]), ("14", ["8", "6"]):
        said = text.replace(wrong, "5") if wrong else text
        found = check_rationale(said, table, read_question(SUM, table))
        assert [said[start:end] for start, end in found.supported] == right


def test_a_tolerance_allows_readings_by_eye() -> None:
    table = read_table({"a": 100, "bb": 200})
    assert table is not None
    assert check_rationale("bb is 204.", table).unsupported
    assert not check_rationale("bb is 204.", table, tolerance=0.03).unsupported


@pytest.mark.timing
def test_long_texts_take_time_in_proportion() -> None:
    table = read_table(BARS)
    assert table is not None
    line = "blue 8, red 6: 8 + 6 = 14. The gap is 2, and 7 + 7 = 14 (17) 3.5 "
    seconds = []
    for repeats in (200, 2000):
        started = time.process_time()
        check_rationale(line * repeats, table)
        seconds.append(time.process_time() - started)
    assert seconds[1] < 40 * seconds[0]


def test_a_capital_inside_a_word_begins_no_name() -> None:
    wings = {"North wing": 8, "South wing": 6}
    assert unsupported("The north wing is at 8, in kWh: 8.", raw=wings) == ()
    assert unsupported("The north wing is at 8, in Wasa: 8.", raw=wings)


def test_few_are_written_out_where_few_are_wanted_and_all_are_counted() -> None:
    table = read_table(BARS)
    assert table is not None
    found = check_rationale("blue 1, red 2, green 4, orange 5.", table, max_items=2)
    assert [one.value for one in found.unsupported] == ["blue 1", "red 2"]
    assert found.count == 4


def test_a_label_of_a_long_table_is_found_too() -> None:
    long = {f"Place {one}{other}": 20 + place for place, (one, other) in enumerate(product("abcdefgh", "klmnop"))}
    assert [one.value for one in unsupported("Place ak: 20. Place bl: 99.", raw=long)] == ["place bl 99"]


def test_a_point_before_a_decimal_number_makes_it_no_number() -> None:
    assert unsupported("Version .842767.5 of the chart has blue at 8.") == ()


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
@pytest.mark.parametrize("hedged", [False, True])
def test_only_values_of_its_size_are_compared_closely_with_a_number(
    monkeypatch: pytest.MonkeyPatch, tolerance: float, hedged: bool
) -> None:
    looked_at: list[float] = []
    close = operations.is_close

    def noted(item: Item, value: float, tolerance: float, hedged: bool) -> bool:
        looked_at.append(value)
        return close(item, value, tolerance, hedged)

    monkeypatch.setattr(operations, "is_close", noted)
    values = [0.001 * number for number in range(-3000, 3000)]
    for written in ("0.52", "0.5", "52%", ": -0.3", "0.04 percent"):
        (item,) = read_numbers(written, find_numbers(written))
        looked_at.clear()
        near = [value for value in values if operations.is_any_close(item, [value], tolerance, hedged)]
        assert near == [value for value in values if close(item, value, tolerance, hedged)]
        assert len(looked_at) < 900


def test_of_a_sentence_no_more_operands_are_kept_than_are_looked_at() -> None:
    table = read_table({"blue": 8, "red": 6})
    assert table is not None
    text = "so far blue is 7 and " * 200
    items = read_items(text, table, frozenset())
    assert items is not None
    check = RationaleCheck(text, items, table, NO_QUESTION, 0.0, 10)
    check.run()
    assert len(check.known.sentence) < 2 * MOST_IN_SENTENCE
