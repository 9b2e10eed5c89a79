"""Unsupported values as a signal: what its columns say, and where it does not apply."""

import random
from typing import Any

import orjson
import pytest
from worlds.run_fixtures import default

from distill.types import Sample, Trace, Usage
from filters.signals.families.grounding import FEW, Grounding

COLOURS = ("red", "blue", "green", "yellow", "purple", "orange")


def measured(text: str, meta: dict[str, Any], question: str = "What is the sum of blue and red?") -> dict[str, Any]:
    sample = Sample(id="s", images=(), question=question, meta=meta)
    trace = Trace(
        id="t", sample_id="s", teacher="t", k=0, seed=0, reasoning=text, answer="", text=text, outcome="complete",
        finish_reason="stop", usage=Usage(), params={}, model="m", revision="r", engine={}, prompt_sha="",
        latency_s=0.0, created="",
    )  # fmt: skip
    (row,) = default(Grounding).measure(sample, [trace])
    assert set(row) <= set(Grounding.columns.names)
    return row


def test_a_clean_rationale_counts_nothing() -> None:
    row = measured("blue 8, red 6: 8 + 6 = 14.", {"bars": {"blue": 8, "red": 6}})
    assert row == {"grounding_state": "ok", "unsupported_values": 0, "grounding_checked": 5, "unsupported": None}


def test_a_misreading_is_counted_and_written_out() -> None:
    row = measured("blue 7, red 6: 7 + 6 = 13.", {"bars": {"blue": 8, "red": 6}})
    assert row["unsupported_values"] == 1
    (found,) = orjson.loads(row["unsupported"])
    assert (found["value"], found["reason"], found["expected"]) == ("blue 7", "reading", [8.0])


def test_supported_numbers_are_placed_in_the_text_as_it_is_written() -> None:
    bars = Sample(id="s", images=(), question="What is the sum?", meta={"bars": {"blue": 8, "red": 6}})
    for text in (
        "The blue bar is 8 and the red bar is 6.",
        r"First \(\frac{a}{b}\), then \textbf{blue} is 8 and red is \(6\).",
        r"With \,space\, the blue one is \text{8}\% and red is 6.",
    ):
        spans = default(Grounding).supported(bars, text)
        assert [text[start:end] for start, end in spans] == ["8", "6"], text
    assert default(Grounding).supported(Sample(id="s", images=(), question="?"), "8") == ()


def test_only_the_first_few_are_written_out_but_all_are_counted() -> None:
    row = measured("\n".join(f"blue: {number}" for number in range(20, 40)), {"bars": {"blue": 8, "red": 6}})
    assert row["unsupported_values"] == 20
    assert len(orjson.loads(row["unsupported"])) == FEW


@pytest.mark.parametrize("meta", [{}, {"cells": ["red circle"]}, {"table": "see the picture"}, {"digits": []}])
def test_without_a_table_there_is_nothing_to_measure(meta: dict[str, Any]) -> None:
    assert measured("blue is 8", meta) == {"grounding_state": "not_applicable"}


def test_without_a_rationale_there_is_nothing_to_measure() -> None:
    assert measured("", {"bars": {"blue": 8, "red": 6}}) == {"grounding_state": "not_applicable"}


def test_the_title_and_the_options_give_numbers_too() -> None:
    meta = {"bars": {"blue": 8, "red": 6}, "title": "Votes of 431 members", "options": ["14", "77"]}
    assert measured("431 members voted. It is not 77.", meta)["unsupported_values"] == 0
    assert measured("432 members voted.", meta)["unsupported_values"] == 1


def test_most_injected_misreadings_are_found_and_hardly_a_clean_rationale_is_flagged() -> None:
    rng = random.Random(0)
    alarms = found = 0
    for _ in range(300):
        one, two = rng.sample(COLOURS, 2)
        bars = {colour: rng.randint(1, 9) for colour in {one, two, *rng.sample(COLOURS, 3)}}
        question = f"What is the sum of the {one} and the {two} bar?"
        alarms += measured(told(bars, one, two, rng), {"bars": bars}, question)["unsupported_values"] > 0
        misread = bars | {one: rng.choice([value for value in range(1, 10) if value != bars[one]])}
        found += measured(told(misread, one, two, rng), {"bars": bars}, question)["unsupported_values"] > 0
    assert alarms <= 0.03 * 300
    assert found >= 0.95 * 300


def told(bars: dict[str, int], one: str, two: str, rng: random.Random) -> str:
    total = bars[one] + bars[two]
    return rng.choice(
        [
            f"{one} {bars[one]}, {two} {bars[two]}: {bars[one]} + {bars[two]} = {total}.",
            f"The {one} bar stands at {bars[one]}, the {two} one at {bars[two]}. Their sum is {total}.",
            f"{one.capitalize()} = {bars[one]}\n{two.capitalize()} = {bars[two]}\nTotal: {total}",
            f"I add {bars[one]} for {one} and {bars[two]} for {two} and get {total}.",
        ]
    )
