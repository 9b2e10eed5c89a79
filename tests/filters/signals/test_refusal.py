import time

import pytest
from listed.refusal_sentences import HELD_OUT, TUNED
from worlds.run_fixtures import sample, trace

from filters.signals.families.refusal import Refusal, refusal_phrase


def measured(reasoning="", answer="", of=None, **named):
    (row,) = Refusal().measure(of or sample(), [trace(answer=answer, reasoning=reasoning, **named)])
    return row


@pytest.mark.parametrize(("sentence", "refuses"), TUNED)
def test_a_statement_about_the_image_is_no_refusal(sentence, refuses):
    assert bool(refusal_phrase(sentence)) == refuses


def test_new_sentences_are_classified_as_refusals_or_statements_too():
    found = [bool(refusal_phrase(sentence)) for sentence, _ in HELD_OUT]
    right = [refuses for _, refuses in HELD_OUT]
    assert sum(one and other for one, other in zip(found, right, strict=True)) >= 0.9 * sum(right)
    assert sum(one and not other for one, other in zip(found, right, strict=True)) <= 1
    assert len(TUNED) + len(HELD_OUT) >= 120


def test_a_refusal_is_found_in_the_middle_of_a_rationale_and_quoted():
    row = measured("The question is about a chart. However, I can’t see the image, so I take 5.\nThat gives 5.", "5")
    assert row == {"refusal_state": "ok", "refusal": True, "refusal_phrase": "i can't see the image"}


def test_a_rationale_that_looks_and_counts_is_no_refusal():
    assert measured("I cannot see any other bar, so the answer is 3.", "3") == {
        "refusal_state": "ok",
        "refusal": False,
        "refusal_phrase": None,
    }


def test_a_conditional_inability_does_not_hide_a_real_one_after_it():
    assert refusal_phrase("If I cannot see the image, I say so. Indeed I cannot see the image.")


@pytest.mark.parametrize(
    ("gold", "options", "refuses"),
    [
        (("12",), (), True),
        (("Cannot be determined",), (), False),
        (("not enough information",), (), False),
        (("B",), ("12", "It cannot be determined"), False),
        ((), (), False),  # without gold, nothing says that there was something to find
    ],
)
def test_saying_that_nothing_can_be_known_is_a_refusal_only_where_the_gold_answer_knows(gold, options, refuses):
    of = sample("How many?", *gold, **({"options": list(options)} if options else {}))
    assert measured("Some text.", "It cannot be determined from the chart.", of)["refusal"] == refuses


def test_thoughts_about_what_cannot_be_determined_are_no_refusal():
    assert not measured("At first it cannot be determined, but the legend helps.", "12", sample("How many?", "12"))[
        "refusal"
    ]


def test_what_generate_already_called_a_refusal_stays_one():
    assert measured("", "No.", outcome="refusal")["refusal"]
    assert measured("", "", outcome="refusal")["refusal"]


def test_an_empty_trace_has_nothing_to_decline():
    assert measured("", "", outcome="error") == {"refusal_state": "not_applicable"}


@pytest.mark.parametrize(
    "text",
    ["i can't see the " * 60_000, "as an ai " * 110_000, "I" * 1_000_000, "no image " * 110_000,
     "sorry, but i " * 75_000,
     "我无法" * 330_000, "\"i cannot see the image\" " * 40_000, "please the the the " * 50_000, "죄송" * 500_000]
)  # fmt: skip
@pytest.mark.timing
def test_a_million_characters_take_no_longer_than_a_few_seconds(text):
    begun = time.process_time()
    measured(text, text)
    assert time.process_time() - begun < 6
