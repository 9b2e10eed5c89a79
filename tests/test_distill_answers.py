"""The answer judge on labelled pairs, family by family, and the reference metrics on published values."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distill import answers, mathworker
from distill.answers import anls, equivalent, exact_match, infer_type, judge, relaxed_accuracy, rouge_l

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"
Pair = tuple[str, str, str]
"""Gold, prediction, verdict."""

NUMBERS: list[Pair] = [
    ("7", "7", CORRECT),
    ("7", "7.0", CORRECT),
    ("7", "07", CORRECT),
    ("7", "7.", CORRECT),
    ("7", "8", WRONG),
    ("7", "-7", WRONG),
    ("7", "+7", CORRECT),
    ("-5", "−5", CORRECT),
    ("−5", "-5", CORRECT),
    ("-5", "–5", CORRECT),
    ("-5", "5", WRONG),
    ("5", "５", CORRECT),
    ("42", "４２", CORRECT),
    ("0.5", "½", CORRECT),
    ("1/2", "0.5", CORRECT),
    ("1/2", "½", CORRECT),
    ("3 1/2", "3.5", CORRECT),
    ("3½", "3.5", CORRECT),
    ("3 1/2", "31/2", WRONG),
    ("3 1/2", "1/2", WRONG),
    ("0.75", "\\frac{3}{4}", CORRECT),
    ("3/4", "\\dfrac{3}{4}", CORRECT),
    (".5", "0.5", CORRECT),
    ("1000", "1,000", CORRECT),
    ("1,000", "1000", CORRECT),
    ("1,234,567", "1234567", CORRECT),
    ("12,34,567", "1234567", CORRECT),
    ("1234567", "1 234 567", CORRECT),
    ("1234567", "1'234'567", CORRECT),
    ("1,000", "1", UNDECIDED),
    ("1.5", "1,5", UNDECIDED),
    ("1234.5", "1.234,5", CORRECT),
    ("1.234,5", "1.234", WRONG),
    ("1234", "1.234", UNDECIDED),
    ("1.5", "15", WRONG),
    ("5 million", "5", WRONG),
    ("5 million", "5000000", CORRECT),
    ("5 million", "5,000,000", CORRECT),
    ("5 million", "5M", CORRECT),
    ("5 million", "5 mn", CORRECT),
    ("5 million", "5 billion", WRONG),
    ("5000000", "five million", CORRECT),
    ("1500", "1.5K", CORRECT),
    ("1500", "1.5 thousand", CORRECT),
    ("1e3", "1", WRONG),
    ("1e3", "1000", CORRECT),
    ("1000", "1e3", CORRECT),
    ("1000", "1×10³", CORRECT),
    ("1000", "1 x 10^3", CORRECT),
    ("1000", "$1 \\times 10^{3}$", CORRECT),
    ("1.2e-4", "0.00012", CORRECT),
    ("7", "seven", CORRECT),
    ("seven", "7", CORRECT),
    ("0", "zero", CORRECT),
    ("20", "twenty", CORRECT),
    ("25", "twenty-five", CORRECT),
    ("12", "a dozen", UNDECIDED),
    ("2", "a pair", UNDECIDED),
    ("0", "none", UNDECIDED),
    ("7", "red", WRONG),
    ("7", "I cannot tell", WRONG),
    ("7", "", WRONG),
    ("9007199254740993", "9007199254740992", WRONG),
    ("3.1415926", "3.14", UNDECIDED),
    ("3.1415926", "3.15", WRONG),
    ("1/3", "0.33", UNDECIDED),
    ("12.4", "12", WRONG),
    ("3.14", "3.1415926", WRONG),
    ("5", "more than 5", UNDECIDED),
    ("5", "not 5", UNDECIDED),
    ("5", "about 5", CORRECT),
    ("5", "~5", CORRECT),
    ("5", "1/0", WRONG),
]
SENTENCES: list[Pair] = [
    ("7", "The answer is 7.", CORRECT),
    ("7", "**7**", CORRECT),
    ("7", "\\boxed{7}", CORRECT),
    ("7", "Answer: 7", CORRECT),
    ("7", "**Answer:** 7", CORRECT),
    ("7", "**Final Answer**\n\n7", CORRECT),
    ("7", "There are 3 red and 4 blue, so the answer is 7.", CORRECT),
    ("7", "First I thought of 5.\nThe final answer is \\boxed{7}.", CORRECT),
    ("7", "3 + 4\n#### 7", CORRECT),
    ("7", "<think>maybe 5</think>\n\n7", CORRECT),
    ("7", "<answer>7</answer>", CORRECT),
    ("7", "3 + 4 = 7", CORRECT),
    ("7", "$7$", CORRECT),
    ("7", "`7`", CORRECT),
    ("7", '"7"', CORRECT),
    ("7", "There are 7 apples in the picture.", CORRECT),
    ("7", "The answer is 8, not 7.", WRONG),
    ("7", "The answer is not 7.", UNDECIDED),
    ("7", "The answer is 5? No, the answer is 7.", CORRECT),
    ("7", "7 apples and 3 pears", UNDECIDED),
    ("5", "7 apples and 3 pears", WRONG),
    ("7 apples", "7 apples and 3 pears", CORRECT),
    ("3 apples", "7 apples and 3 pears", WRONG),
    ("7", "between 5 and 7", UNDECIDED),
    ("7", "5-7", UNDECIDED),
    ("7", "COVID-19 and H2O", WRONG),
    ("7", "7 (seven)", CORRECT),
    ("7", "seven (7)", CORRECT),
    ("12:45", "So the clock shows 12:45.", CORRECT),
    ("cat", "The answer is a cat.", CORRECT),
    ("cat", "It is a cat.", CORRECT),
    ("St. Louis", "The answer is St. Louis.", CORRECT),
]
PERCENT: list[Pair] = [
    ("50%", "50%", CORRECT),
    ("50%", "50 %", CORRECT),
    ("50%", "50 percent", CORRECT),
    ("50%", "fifty percent", CORRECT),
    ("50%", "50 per cent", CORRECT),
    ("50%", "50\\%", CORRECT),
    ("50%", "50.0%", CORRECT),
    ("50%", "50", CORRECT),
    ("50%", "0.5", UNDECIDED),
    ("50%", "1/2", UNDECIDED),
    ("50%", "0.5%", WRONG),
    ("50%", "51%", WRONG),
    ("50%", "5%", WRONG),
    ("100%", "1", UNDECIDED),
    ("0.5", "50%", UNDECIDED),
    ("50", "50%", UNDECIDED),
    ("12", "50%", WRONG),
    ("50%", "50% of 200", CORRECT),
    ("50%", "half", UNDECIDED),
]
MONEY: list[Pair] = [
    ("$5", "5", CORRECT),
    ("\\$5", "5", CORRECT),
    ("5", "\\$5", CORRECT),
    ("$5", "\\$5", CORRECT),
    ("$5", "$5.00", CORRECT),
    ("$5", "5 dollars", CORRECT),
    ("$5", "5 USD", CORRECT),
    ("$5", "US$5", CORRECT),
    ("$5", "€5", WRONG),
    ("€5", "5 euros", CORRECT),
    ("$5", "5 CAD", UNDECIDED),
    ("$5", "5 apples", UNDECIDED),
    ("$0.50", "50 cents", CORRECT),
    ("$1.5B", "1.5", WRONG),
    ("$1.5B", "1.5 billion", CORRECT),
    ("$1.5B", "$1,500,000,000", CORRECT),
    ("$1.5B", "$1.5M", WRONG),
    ("$5m", "5 million dollars", CORRECT),
    ("-$5", "$-5", CORRECT),
    ("$1,200.50", "1200.5", CORRECT),
    ("$5", "$6", WRONG),
]
UNITS: list[Pair] = [
    ("5 km", "5", CORRECT),
    ("5 km", "5 km", CORRECT),
    ("5 km", "5 kilometers", CORRECT),
    ("5 km", "5000 m", CORRECT),
    ("5 km", "5 m", WRONG),
    ("5 kg", "5 km", WRONG),
    ("5", "5 km", CORRECT),
    ("2 weeks", "14 days", CORRECT),
    ("7 apples", "7 apple", CORRECT),
    ("7 apples", "7 pears", UNDECIDED),
    ("7 apples", "There are 7 red apples.", CORRECT),
    ("60 in", "5 ft", CORRECT),
    ("20 °C", "20°C", CORRECT),
    ("20 °C", "20 °F", WRONG),
    ("90°", "90^\\circ", CORRECT),
]
YEARS: list[Pair] = [
    ("2010", "2010", CORRECT),
    ("2010", "1950", WRONG),
    ("2010", "2011", WRONG),
    ("2010", "In 2010.", CORRECT),
    ("2010", "The answer is 2010", CORRECT),
    ("2010", "2010.0", CORRECT),
    ("2010", "March 5, 2010", CORRECT),
    ("2010", "2009 and 2010", UNDECIDED),
    ("2010", "the year", WRONG),
]
TIMES: list[Pair] = [
    ("12:30", "12:30", CORRECT),
    ("12:30", "12:45", WRONG),
    ("12:30", "12", UNDECIDED),
    ("3:30", "3:30 PM", CORRECT),
    ("3:30 PM", "15:30", CORRECT),
    ("3:30 PM", "3:30 AM", WRONG),
    ("3:30 pm", "3:30 p.m.", CORRECT),
    ("3:30", "15:30", UNDECIDED),
    ("3:30", "03:30", CORRECT),
    ("3:30", "half past three", CORRECT),
    ("3:45", "a quarter to 4", CORRECT),
    ("12:00", "noon", CORRECT),
    ("3 pm", "15:00", CORRECT),
    ("3:20", "6:40", UNDECIDED),
]
RATIOS: list[Pair] = [
    ("10:1", "10:1", CORRECT),
    ("10:1", "10:7", WRONG),
    ("10:1", "1:10", WRONG),
    ("10:1", "20:2", CORRECT),
    ("10:1", "10 : 1", CORRECT),
    ("10:1", "10 to 1", CORRECT),
    ("10:1", "10/1", CORRECT),
    ("10:1", "10", UNDECIDED),
    ("16:9", "The aspect ratio is 16:9.", CORRECT),
    ("1:2:3", "1:2:3", CORRECT),
    ("1:2:3", "1:2", WRONG),
]
DATES: list[Pair] = [
    ("2010-03-05", "March 5, 2010", CORRECT),
    ("2010-03-05", "5 March 2010", CORRECT),
    ("2010-03-05", "the 5th of March 2010", CORRECT),
    ("2010-03-05", "05/03/2010", UNDECIDED),
    ("2010-03-25", "25/03/2010", CORRECT),
    ("2010-03-25", "03/25/2010", CORRECT),
    ("2010-03-05", "March 6, 2010", WRONG),
    ("March 2010", "March 5, 2010", UNDECIDED),
    ("March 5, 2010", "April 5, 2010", WRONG),
    ("March", "March", CORRECT),
    ("March", "April", WRONG),
]
CHOICES: list[Pair] = [
    ("B", "B", CORRECT),
    ("B", "b", CORRECT),
    ("B", "(B)", CORRECT),
    ("B", "B.", CORRECT),
    ("B", "B) because the bar is longer", CORRECT),
    ("B", "B. Not A.", CORRECT),
    ("B", "Option B", CORRECT),
    ("B", "A is wrong, so (B)", CORRECT),
    ("B", "A is wrong and C is incorrect, so B", CORRECT),
    ("B", "The answer is (B).", CORRECT),
    ("B", "The correct option is B because A has fewer.", CORRECT),
    ("B", "**B**", CORRECT),
    ("B", "\\boxed{B}", CORRECT),
    ("B", "\\boxed{\\text{B}}", CORRECT),
    ("(B)", "B", CORRECT),
    ("B", "C", WRONG),
    ("B", "(C)", WRONG),
    ("B", "A or B", UNDECIDED),
    ("B", "A or C", WRONG),
    ("A", "A cat sits there", UNDECIDED),
    ("B", "It cannot be determined", UNDECIDED),
    ("A", "not B", UNDECIDED),
]
WORDS: list[Pair] = [
    ("Yes", "yes", CORRECT),
    ("Yes", "Yes.", CORRECT),
    ("Yes", "Yes, it is.", CORRECT),
    ("Yes", "No", WRONG),
    ("No", "No, there is not.", CORRECT),
    ("Yes", "Yes and no", UNDECIDED),
    ("Yes", "blue", WRONG),
    ("March", "march", CORRECT),
    ("Asia", "Asia", CORRECT),
    ("Asia", "the Asia", CORRECT),
    ("Asia", "Europe", WRONG),
    ("red", "The car is red.", CORRECT),
    ("red", "The car is not red.", UNDECIDED),
    ("red", "dark red", UNDECIDED),
    ("cat", "cats", UNDECIDED),
    ("cat", "dog", WRONG),
    ("New York", "new york", CORRECT),
    ("New York", "New  York.", CORRECT),
    ("red car", "blue car", WRONG),
    ("Don't", "Won't", WRONG),
    ("C++", "C", WRONG),
    ("colour", "color", UNDECIDED),
    ("café", "café", CORRECT),
    ("5-10", "5 to 10", CORRECT),
    ("5–10", "5-10", CORRECT),
    ("5-10", "6-10", UNDECIDED),
    ("5-10", "20-30", WRONG),
    ("A man rides a brown horse along the beach at sunset", "Someone on a horse", UNDECIDED),
]
LISTS: list[Pair] = [
    ("1 and 2", "2", WRONG),
    ("1 and 2", "1", WRONG),
    ("1 and 2", "1, 2", CORRECT),
    ("1 and 2", "2 and 1", CORRECT),
    ("1, 2, 3", "[1, 2, 3]", CORRECT),
    ("1, 2, 3", "1; 2; 3", CORRECT),
    ("1, 2, 3", "1, 2, 4", WRONG),
    ("red, blue and green", "green, red, blue", CORRECT),
    ("red, blue and green", "red, blue, and green", CORRECT),
    ("red, blue", "red", WRONG),
    ("red, blue", "- red\n- blue", CORRECT),
    ("red, blue", "red, yellow", WRONG),
    ("(1, 2)", "(2, 1)", WRONG),
    ("(1, 2)", "(1, 2)", CORRECT),
    ("(1, 2)", "(1,2)", CORRECT),
    ("1,000", "1 and 0", WRONG),
]
FAMILIES = {
    "numbers": NUMBERS,
    "sentences": SENTENCES,
    "percent": PERCENT,
    "money": MONEY,
    "units": UNITS,
    "years": YEARS,
    "times": TIMES,
    "ratios": RATIOS,
    "dates": DATES,
    "choices": CHOICES,
    "words": WORDS,
    "lists": LISTS,
}
CASES = [(family, *pair) for family, pairs in FAMILIES.items() for pair in pairs]


@pytest.mark.parametrize(("family", "gold", "prediction", "verdict"), CASES)
def test_a_labelled_pair_gets_its_verdict(family: str, gold: str, prediction: str, verdict: str) -> None:
    judged = answers._judge(prediction, gold, None, 0.0, None, ask_worker=False)
    assert judged.verdict == verdict, judged


def test_there_are_enough_labelled_pairs_and_none_is_repeated() -> None:
    assert len(CASES) >= 250
    assert len(CASES) == len(set(CASES))


# The table of pairs that a plain symbolic checker gets wrong; each must get its verdict with the worker allowed too.
TRAPS: list[Pair] = [
    ("12:30", "12:45", WRONG),
    ("10:1", "10:7", WRONG),
    ("5 million", "5", WRONG),
    ("5 million", "5000000", CORRECT),
    ("$1.5B", "1.5", WRONG),
    ("1e3", "1", WRONG),
    ("1e3", "1000", CORRECT),
    ("50%", "0.5", UNDECIDED),
    ("100%", "1", UNDECIDED),
    ("1 and 2", "2", WRONG),
    ("3 1/2", "3.5", CORRECT),
    ("−5", "-5", CORRECT),
    ("½", "0.5", CORRECT),
    ("\\$5", "5", CORRECT),
    ("B", "B", CORRECT),
    ("Yes", "Yes", CORRECT),
    ("March", "March", CORRECT),
    ("B", "A is wrong, so (B)", CORRECT),
    ("7", "7 apples and 3 pears", UNDECIDED),
    ("1,5", "1.5", UNDECIDED),
    ("1.234,5", "1.234", WRONG),
]


@pytest.mark.parametrize(("gold", "prediction", "verdict"), TRAPS)
def test_a_pair_that_symbolic_checkers_misjudge_gets_its_verdict(gold: str, prediction: str, verdict: str) -> None:
    assert judge(prediction, gold).verdict == verdict


@pytest.mark.parametrize(
    ("gold", "kind"),
    [
        ("7", "number"),
        ("1/2", "number"),
        ("seven", "number"),
        ("7 apples", "number"),
        ("1,000", "number"),
        ("1234.5", "number"),
        ("2010", "year"),
        ("3010", "number"),
        ("50%", "percent"),
        ("fifty percent", "percent"),
        ("$5", "money"),
        ("5 euros", "money"),
        ("12:30", "time"),
        ("3 pm", "time"),
        ("16:9", "ratio"),
        ("B", "choice"),
        ("(C)", "choice"),
        ("2010-03-05", "date"),
        ("March 5, 2010", "date"),
        ("1, 2 and 3", "list"),
        ("red, blue and green", "list"),
        ("[1, 2]", "list"),
        ("cat", "text"),
        ("A man and his dog", "text"),
        ("New York", "text"),
        ("March", "date"),
    ],
)
def test_the_type_of_a_gold_answer_is_inferred_and_recorded(gold: str, kind: str) -> None:
    assert infer_type(gold) == kind
    assert judge("nothing of the sort", gold).answer_type == kind


def test_a_declared_type_overrules_the_inferred_one() -> None:
    assert judge("2050", "2010", relative_tolerance=0.05).verdict == WRONG
    assert judge("2050", "2010", "number", relative_tolerance=0.05).verdict == CORRECT
    assert judge("50%", "50", "percent").verdict == CORRECT
    assert judge("6:40", "3:20", "ratio").verdict == CORRECT
    assert judge("6:40", "3:20", "time").verdict == WRONG


def test_numeric_answers_keep_their_relative_error_and_others_have_none() -> None:
    assert judge("110", "100").relative_error == pytest.approx(0.1)
    assert judge("90", "100").relative_error == pytest.approx(0.1)
    assert judge("$110", "$100").relative_error == pytest.approx(0.1)
    assert judge("100", "100").relative_error == 0.0
    assert judge("1", "0").relative_error == float("inf")
    for prediction, gold in (("2011", "2010"), ("12:45", "12:30"), ("10:7", "10:1"), ("dog", "cat"), ("C", "B")):
        assert judge(prediction, gold).relative_error is None


def test_a_tolerance_is_relative_to_the_gold_and_inclusive() -> None:
    assert judge("19", "20", relative_tolerance=0.05).verdict == CORRECT
    assert judge("20", "19", relative_tolerance=0.05).verdict == WRONG
    assert judge("105", "100", relative_tolerance=0.05).verdict == CORRECT
    assert judge("106", "100", relative_tolerance=0.05).verdict == WRONG
    assert judge("0.01", "0", relative_tolerance=0.05).verdict == WRONG


def test_one_accepted_gold_is_enough_and_an_open_one_is_kept() -> None:
    assert judge("NYC", ["New York", "NYC"]).verdict == CORRECT
    assert judge("0.5", ["12", "50%"]).verdict == UNDECIDED
    assert judge("9", ["7", "8"]).verdict == WRONG
    assert judge("9", ["70", "8"]).relative_error == pytest.approx(0.125)


@pytest.mark.parametrize("gold", ["", "  ", [], ["", " "]])
def test_without_a_gold_answer_nothing_is_decided(gold: str | Sequence[str]) -> None:
    judged = judge("7", gold)
    assert (judged.verdict, judged.reason) == (UNDECIDED, "no_gold")


OPTIONS = ["red", "dark red", "blue", "7"]


@pytest.mark.parametrize(
    ("gold", "prediction", "verdict"),
    [
        ("C", "blue", CORRECT),
        ("C", "C. blue", CORRECT),
        ("C", "(C) blue", CORRECT),
        ("C", "The answer is blue.", CORRECT),
        ("C", "It looks blue to me", CORRECT),
        ("blue", "C", CORRECT),
        ("blue", "(C)", CORRECT),
        ("B", "dark red", CORRECT),
        ("A", "dark red", WRONG),
        ("A", "It is dark red", WRONG),
        ("A", "It is red", CORRECT),
        ("D", "7", CORRECT),
        ("C", "red", WRONG),
        ("C", "B) blue", UNDECIDED),
        ("C", "red or blue", UNDECIDED),
        ("C", "not blue", UNDECIDED),
        ("C", "green", UNDECIDED),
    ],
)
def test_a_choice_is_a_letter_or_the_text_of_an_option(gold: str, prediction: str, verdict: str) -> None:
    assert judge(prediction, gold, "choice", options=OPTIONS).verdict == verdict


@pytest.mark.parametrize(
    ("gold", "prediction", "verdict"),
    [
        ("\\sqrt{2}", "\\frac{2}{\\sqrt{2}}", CORRECT),
        ("\\sqrt{2}", "\\sqrt{3}", WRONG),
        ("2\\pi", "$\\pi \\cdot 2$", CORRECT),
        ("(x+1)^2", "x^2 + 2x + 1", CORRECT),
        ("7", "\\sqrt{49}", CORRECT),
        ("7", "\\sqrt{50}", WRONG),
        ("x=5", "5", CORRECT),
        ("\\frac{\\sqrt{3}}{2}", "0.866", UNDECIDED),
        ("\\frac{\\sqrt{3}}{2}", "0.7", WRONG),
        ("x + 1", "y + 1", UNDECIDED),
        ("7", "2/3 of the pears and 7 apples", UNDECIDED),
    ],
)
def test_expressions_are_compared_by_algebra(gold: str, prediction: str, verdict: str) -> None:
    assert judge(prediction, gold).verdict == verdict


def test_a_symbolic_comparison_that_takes_too_long_is_undecided_and_the_next_one_works() -> None:
    endless = "\\int_0^{10^{9}} \\sin(x^{x^{x}}) \\cdot \\prod_{k=1}^{10^{8}} (x-k) dx"
    started = time.monotonic()
    late = mathworker.vote(endless, "9^{9^{9^{9}}}", timeout_s=0.5)
    assert late is not None and (late.verdict, late.reason) == (UNDECIDED, "expression_took_too_long")
    assert time.monotonic() - started < 30
    found = mathworker.vote("\\sqrt{4}", "2")
    assert found is not None and found.verdict == CORRECT


def test_the_symbolic_worker_ends_with_the_process_that_started_it() -> None:
    program = (
        "import os; from distill import mathworker as m; m.vote('2', '2');"
        "print(m._worker._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    worker = int(done.stdout)
    deadline = time.monotonic() + 10
    while _is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(worker)


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=500, deadline=None)
def test_any_two_texts_get_a_verdict(prediction: str, gold: str) -> None:
    judged = answers._judge(prediction, gold, None, 0.0, None, ask_worker=False)
    assert judged.verdict in (CORRECT, WRONG, UNDECIDED)


@given(
    st.text(alphabet="0123456789.,:%$/- ()ABCabc½−\\{}^", min_size=1, max_size=20),
    st.sampled_from(sorted(answers._JUDGES)),
)
@settings(max_examples=500, deadline=None)
def test_an_answer_always_agrees_with_itself(text: str, kind: str) -> None:
    if text.strip():
        assert answers._judge(text, text, kind, 0.0, None, ask_worker=False).verdict == CORRECT


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=2))
@settings(max_examples=300, deadline=None)
def test_a_number_is_the_same_with_and_without_separators(value: Decimal) -> None:
    assert judge(f"{value:,}", str(value), "number").verdict == CORRECT
    assert judge(str(value + 1), str(value), "number").verdict == WRONG


def test_equivalence_is_symmetric_and_asks_no_worker() -> None:
    for a, b in (("7", "7.0"), ("50%", "50"), ("1,000", "1000"), ("a cat", "Cat"), ("(B)", "B")):
        assert equivalent(a, b)
        assert equivalent(b, a)
    assert not equivalent("7", "8")
    assert not equivalent("\\sqrt{4}", "2")


def test_judging_numbers_is_fast_enough_for_millions_of_traces() -> None:
    started = time.perf_counter()
    for value in range(4000):
        judge(f"The answer is {value % 97}.", str(value % 89), "number")
    rate = 4000 / (time.perf_counter() - started)
    assert rate > 5_000, f"{rate:.0f} judgements a second"  # about 50,000 on an idle core


# Eight pairs (prediction, target) from the published tests of pix2struct, with the averages they give there.
PAIRS = [
    ("abc", "abc"),
    ("abc", "Abc"),
    ("Abc", "abc"),
    ("100%", "96%"),
    ("100%", "94%"),
    ("100%", "0.96"),
    ("100%", "0.94"),
    ("Don't", "Won't"),
]


def test_reference_metrics_agree_with_the_published_averages() -> None:
    def average(metric: Callable[[str, str], float]) -> float:
        return 100 * sum(metric(prediction, target) for prediction, target in PAIRS) / len(PAIRS)

    assert average(exact_match) == 12.5
    assert average(anls) == pytest.approx(47.5)
    assert average(relaxed_accuracy) == 62.5


@pytest.mark.parametrize(
    ("prediction", "score"),
    [("The Coca", 0.0), ("CocaCola", 0.89), ("Coca cola", 1.0), ("Cola", 0.0), ("Cat", 0.0)],
)
def test_anls_agrees_with_the_values_published_for_two_aliases(prediction: str, score: float) -> None:
    assert anls(prediction, ["Coca Cola", "Coca Cola Company"]) == pytest.approx(score, abs=0.005)


@pytest.mark.parametrize(
    ("prediction", "similarities"),
    [
        ("The Coca", (0.44, 0.29)),
        ("CocaCola", (0.89, 0.47)),
        ("Coca cola", (1.0, 0.53)),
        ("Cola", (0.44, 0.23)),
        ("Cat", (0.22, 0.12)),
    ],
)
def test_the_similarities_below_the_threshold_agree_too(prediction: str, similarities: tuple[float, float]) -> None:
    found = [anls(prediction, gold, threshold=1.01) for gold in ("Coca Cola", "Coca Cola Company")]
    assert found == pytest.approx(similarities, abs=0.006)  # published cut to two places


@pytest.mark.parametrize(
    ("prediction", "gold", "score"),
    [
        ("19", "20", 1.0),
        ("20", "19", 0.0),
        ("1950", "2010", 1.0),
        ("0.01", "0", 0.0),
        ("0", "0", 1.0),
        ("1,000", "1000", 0.0),
        ("$5", "5", 0.0),
        ("Yes.", "Yes", 0.0),
    ],
)
def test_relaxed_accuracy_keeps_the_definition_with_its_oddities(prediction: str, gold: str, score: float) -> None:
    assert relaxed_accuracy(prediction, gold) == score


def test_rouge_l_is_the_longest_common_subsequence_f_measure_of_the_best_gold() -> None:
    assert rouge_l("the cat sat", "the cat sat") == 1.0
    assert rouge_l("the cat", "the cat sat on a mat") == pytest.approx(2 * (1.0 * 2 / 6) / (1.0 + 2 / 6))
    assert rouge_l("the cat", ["something else", "the cat"]) == 1.0
    assert rouge_l("", "the cat") == 0.0
