"""No text freezes or breaks the answer judge: what is long, what is broken, and what is made to be slow."""

import importlib.util
import random
import time
from pathlib import Path
from types import ModuleType

import pytest

from distill.answers import verdicts
from distill.answers.final_answer import MAX_CHARACTERS, final_answer
from distill.answers.numbers.number_words import spelled
from distill.answers.numbers.quantities import read_quantities
from distill.answers.verdicts import judge

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"
CHARACTERS = 1 << 16
LIMIT_S = 0.5
"""Ten times what any text of 64 kB may take; a quadratic pattern takes seconds."""


def fuzz() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "answers" / "answer_fuzz.py"
    spec = importlib.util.spec_from_file_location("answer_fuzz", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ("\\boxed{99}", WRONG),
        ("\\boxed{16}", CORRECT),
        ("<answer>99</answer>", WRONG),
        ("<answer>16</answer>", CORRECT),
        ("\n#### 99", WRONG),
        ("So the final answer is 99.", WRONG),
        ("So the final answer is 16.", CORRECT),
        ("\n16", CORRECT),
        ("\n99", WRONG),
        ("</think>16", CORRECT),
    ],
)
def test_a_long_answer_is_judged_by_its_final_answer(ends: str, verdict: str) -> None:
    said = "There are 3 rows, then 4 more of 7. " * 27_000 + ends
    assert len(said) > 970_000
    assert judge(said, "16").verdict == verdict


def test_an_answer_stated_before_a_long_explanation_is_found() -> None:
    explained = "The answer is 16.\n" + "This can be seen in the third row. " * 2000
    assert judge(explained, "16").verdict == CORRECT
    assert judge(explained, "17").verdict == WRONG


def test_what_agrees_in_the_part_of_an_answer_that_is_looked_at_stays_open() -> None:
    said = "no idea " * 1000 + "16"
    assert len(said) > MAX_CHARACTERS
    assert judge(said, "16").verdict != CORRECT
    assert judge("\\boxed{16" + " or 17" * 1000 + "}", "16").verdict != CORRECT


def test_long_texts_that_are_equal_agree_and_others_stay_open() -> None:
    text = "a long text of a document " * 400
    assert judge(text, text).verdict == CORRECT
    assert judge(text + "b", text + "c").verdict == UNDECIDED


@pytest.mark.parametrize("text", ["\ud800", "4\udfff", "\ud83d\ude00 4", "\\sqrt{\ud800}", "\udc80\\boxed{4}"])
def test_half_a_character_is_judged_like_any_other(text: str) -> None:
    for said, meant in ((text, "4"), ("4", text), (text, text), (text, "2\\sqrt{3}")):
        assert judge(said, meant).verdict in (CORRECT, WRONG, UNDECIDED)
    assert "\ud800" not in final_answer(text).text
    assert judge("\ud800\\boxed{4}", "4").verdict == CORRECT


@pytest.mark.parametrize(
    ("said", "gold"), [("፩ heures", "3:30"), ("las ፩ y media", "1:30"), ("Rocky ፩", "Rocky I"), ("፩/፪/20", "1/2/20")]
)
def test_a_figure_that_is_no_decimal_digit_is_judged_like_any_other_sign(said: str, gold: str) -> None:
    for one, other in ((said, gold), (gold, said)):
        assert judge(one, other).verdict in (CORRECT, WRONG, UNDECIDED)


SLOW = [
    *("twenty-", "the answer is twenty-", "one hundred and ", "so the ", "answer ", "answer:", "\n", " ", "\t "),
    *(
        "a. ",
        "<answer>",
        "\\boxed{",
        "\\boxed",
        "</think",
        "####",
        "$ ",
        "\\frac{1}",
        "\\text{",
        "1,",
        "1.",
        "1 000 ",
    ),
    *("½", "\ufdfa", "三", "1:2:", "1/", "not A, ", "is the ", "(1, ", "x^", "'1", "1-1-", "**", "__", ">", "> "),
    *("not 4 and not ", "option (A) ", "= 4 ", "half past ", "march 5 ", "5. märz ", "no ", "and a half "),
]


@pytest.fixture(scope="module")
def tables_loaded() -> None:
    """Tables and libraries that are loaded when first needed are no part of the time of a text."""
    for said, meant in (("Chad", "Mali"), ("5 dm", "5 furlong"), ("三", "4"), ("trois", "4"), ("march 5", "3:30")):
        judge(said, meant)


@pytest.mark.parametrize("unit", SLOW)
@pytest.mark.timing
@pytest.mark.usefixtures("tables_loaded")
def test_64_kb_of_anything_repeated_are_judged_at_once(unit: str) -> None:
    text = unit * (CHARACTERS // len(unit))
    for said, meant in ((text, "4"), (text, "red"), (text + "4x", "3:30"), ("4", text), (text, text + "4")):
        before = time.process_time()
        verdicts._judge(said, meant, None, 0.0, None, ask_worker=False)
        assert time.process_time() - before < LIMIT_S, (unit, said[-20:], meant[-20:])


@pytest.mark.parametrize("campaign", ["repeats", "mutations"])
def test_a_slice_of_the_campaigns_ends_without_a_traceback(campaign: str) -> None:
    """benchmarks/answers/answer_fuzz.py has the whole of them."""
    module = fuzz()
    draw = getattr(module, campaign)(random.Random(7), CHARACTERS)
    assert module.run(draw, 2000 if campaign == "mutations" else 200, 0, module.judged) == 0


@pytest.mark.parametrize("unit", ["twenty-", "twenty-one ", "point five ", "two point five ", "one hundred and "])
@pytest.mark.timing
def test_number_words_are_read_in_linear_time(unit: str) -> None:
    started = time.process_time()
    list(spelled(unit * (CHARACTERS // len(unit))))
    assert time.process_time() - started < LIMIT_S


def test_a_number_word_that_a_hyphen_ties_to_the_next_word_is_no_number() -> None:
    texts = ("twenty one-way tickets", "two hundred and five-star", "three-bedroom", "twenty-one", "twenty-twenty-")
    assert [[int(value) for value, _, _ in spelled(text)] for text in texts] == [[20], [200], [], [21], []]


def test_after_a_numeral_no_more_letters_are_read_than_a_unit_can_have() -> None:
    """Each numeral of a text without spaces would be followed by all the rest, and reading would be quadratic."""
    found = read_quantities("x三" * 1000)
    assert len(found) > 10 and max(len(quantity.unit) for quantity in found) <= 64


def test_of_a_listing_no_more_quantities_are_read_than_an_answer_can_have() -> None:
    assert len(read_quantities("2 " * 1000)) == 400
    assert judge("2 " * 1000, ["2"]).verdict != CORRECT
    assert judge("7 is one of " + "2 " * 900, ["7"]).verdict != CORRECT


@pytest.mark.parametrize("filler", ["a bar of 5; ", "x" * 40 + " "])
def test_a_hedge_just_before_a_number_counts_however_long_the_text_is(filler: str) -> None:
    assert judge("approximately 12", ["12.3"], "number").verdict == UNDECIDED
    assert judge(f"The {filler}total, from the chart, is approximately 12", ["12.3"], "number").verdict != WRONG
