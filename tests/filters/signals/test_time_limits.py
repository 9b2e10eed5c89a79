"""Texts of 64 kB that a search for slow ones found (`benchmarks/answers/slow_texts.py`)."""

import time

import pytest

from distill.recipe.recipe import Recipe
from distill.types import Sample, Trace, Usage
from filters.signals import registry
from filters.signals.families.language import foreign_sentences, measure_mix
from filters.signals.families.personal_data import Checks, addresses

SAMPLE = Sample(id="a", images=(), question="How many more?", answers=("7",), meta={"table": {"red": 8, "blue": 6}})


def trace_of(reasoning: str, answer: str) -> Trace:
    return Trace(
        id="0", sample_id="a", teacher="t", k=0, seed=0, reasoning=reasoning, answer=answer, text=reasoning + answer,
        outcome="complete", finish_reason="stop", usage=Usage(), params={}, model="m", revision="",
        engine={"name": "e", "version": "1"}, prompt_sha="", latency_s=0.0, created="",
    )  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize(
    "unit",
    [
        "\\( y ",
        "\\[ y. ",
        "“a 12/24/2001  1 _ ",
        "10:30: ",
        "1:2:3:",
        "The bar of Sweden reaches 12 an.**d the bar of Norway reaches 30. x^2 ",
        "\ufdfa \ufdfa \r\n A ",
        "2,",
        "2001-01-01 ",
    ],
)
@pytest.mark.parametrize("in_answer", [False, True])
def test_all_signals_of_64_kb_take_a_fraction_of_a_second(unit: str, in_answer: bool) -> None:
    families = tuple(family.from_recipe(Recipe()) for family in registry.FAMILIES.values())
    registry.rows(families, SAMPLE, [trace_of("The red bar is 8.", "3 km")])  # loads what is loaded once
    text = unit * (65_536 // len(unit.encode()))
    trace = trace_of("It is 42.", text) if in_answer else trace_of(text, "42")
    begun = time.process_time()
    registry.rows(families, SAMPLE, [trace])
    assert time.process_time() - begun < 0.5


def test_a_formula_that_is_never_closed_hides_no_foreign_letters() -> None:
    assert measure_mix("see \\[ x and нет", "latin", "") == measure_mix("see    x and нет", "latin", "")
    assert measure_mix("see \\[ нет \\] and x", "latin", "") == (0.0, None)


def test_of_very_many_sentences_some_stand_for_their_neighbours() -> None:
    foreign = "Die Antwort steht rechts unten neben dem roten Balken. "
    own = "Then compare bars quickly from bottom upwards again. "
    share, start = foreign_sentences(own * 1500 + foreign * 1500, "latin", "en")
    assert share == pytest.approx(len(foreign) / len(foreign + own), abs=0.02)
    assert start is not None and abs(start - len(own) * 1500) < 10 * len(own)


def test_an_address_is_found_among_times_and_words_with_colons() -> None:
    text = "At 10:30:15 abc::x asked 2606:4700:4700::1111, 1:2:3 and 2a00:1450:4001:081b:0000:0000:0000:200e, done"
    assert list(addresses(text, Checks())) == ["2606:4700:4700::1111", "2a00:1450:4001:081b:0000:0000:0000:200e"]
