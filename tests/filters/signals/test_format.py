import time
from dataclasses import replace

import pytest
from worlds.run_fixtures import sample, trace

from filters.signals.families.format import PROBLEMS, Format, format_problem, truncated_by


@pytest.mark.parametrize(
    ("reasoning", "answer", "problem"),
    [
        ("Two and two.", "4", None),
        ("", "4", None),
        ("2 < 3, so <b> is bold and a|b is a pipe", "x < y", None),
        ("Two and two.", "  ", "empty_answer"),
        ("Two.", "<think>again</think> 4", "think_tag_in_answer"),
        ("Two.</think> more", "4", "think_tag_in_reasoning"),
        ("<Thinking>Two.", "4", "think_tag_in_reasoning"),
        ("In <image> there are two.", "4", "image_placeholder"),
        ("Two.", "4 <|image_pad|>", "image_placeholder"),
        ("Two.", "4<|im_end|>", "special_token"),
        ("Two.", "4</s>", "special_token"),
        ("Two\ufffd and two.", "4", "unreadable_characters"),
        ("Two\x00 and two.", "4", "unreadable_characters"),
    ],
)
def test_each_problem_of_layout_is_named(reasoning, answer, problem):
    assert format_problem(reasoning, answer) == problem
    (row,) = Format().measure(sample(), [trace(answer=answer, reasoning=reasoning)])
    assert (row["format_valid"], row["format_problem"]) == (problem is None, problem)


def test_of_several_problems_the_gravest_is_named():
    assert format_problem("<think>\x00", "") == "empty_answer"
    assert format_problem("<image>", "<think> <|im_end|>") == "think_tag_in_answer"
    assert len(set(PROBLEMS)) == 6


def test_a_trace_that_answers_at_once_is_valid_but_has_no_reasoning():
    (row,) = Format().measure(sample(), [trace(reasoning=" \n")])
    assert row["format_valid"] and not row["has_reasoning"]


def test_a_failed_request_has_no_layout_to_judge():
    (row,) = Format().measure(sample(), [trace(outcome="error", reasoning="", answer="")])
    assert row == {"format_state": "not_applicable"}


PROSE = "The red bar is at six. The blue bar is at eight. "


@pytest.mark.parametrize(
    ("reasoning", "answer", "how"),
    [
        (PROSE + "So the sum is 14.", "14", None),
        (PROSE + "So the sum of both bars and", "14", "mid_sentence"),
        (PROSE + "If I add both bars,", "14", "mid_sentence"),
        (PROSE + "That makes the answer to this question:", "14", None),
        (PROSE + "So the final answer is:", "14", None),
        (PROSE + "This leaves us with Norway", "", "mid_sentence"),
        (PROSE + "This leaves us with 14", "", None),
        (PROSE + "\n- the left bar of Norway", "", None),
        ("red bar six, blue bar eight, the sum is fourteen", "", None),
        (PROSE, "The sum of the two bars is six plus eight, which is the", "mid_sentence"),
        (PROSE, "It is written in this table:", "mid_sentence"),
        (PROSE, "the", None),
        (PROSE, "A", None),
        (PROSE, "Norway, Sweden and", None),
        (PROSE, "Reading all the signs from left to right: Lord of the Rings", None),
        (PROSE, "```python\nprint(14)", "open_block"),
        (PROSE, "```python\nprint(14)\n```", None),
        ("Der rote Balken zeigt sechs und der", "14", "mid_sentence"),
        ("红色柱子是6，蓝色柱子是8，所以两个柱子的总和，", "14", "mid_sentence"),
        ("红色柱子是6，蓝色柱子是8，所以两个柱子的总和是14。", "14", None),
        ("", "", None),
    ],
)
def test_a_text_that_breaks_off_is_cut_though_the_server_says_that_it_stopped(reasoning, answer, how):
    (row,) = Format().measure(sample(), [trace(answer=answer, reasoning=reasoning)])
    assert (row["truncated"], row["truncated_by"]) == (how is not None, how)


@pytest.mark.parametrize("text", ["<think>Two and two", "<think>Two.</think>4<think>but", "<Thinking>Two."])
def test_an_open_think_tag_is_a_cut(text):
    assert truncated_by(replace(trace(answer="4"), text=text)) == "open_think_tag"
    assert truncated_by(replace(trace(answer="4"), text=text + "</think>")) is None


@pytest.mark.parametrize("named", [{"finish_reason": "length"}, {"outcome": "truncated_answer"}])
def test_the_token_limit_cuts_whatever_the_text_looks_like(named):
    assert truncated_by(trace(**named)) == "length"


@pytest.mark.timing
def test_long_texts_take_no_longer_than_their_length():
    for text in ("<" * 1_000_000, "[" * 1_000_000, "the " * 250_000, "$" * 1_000_000, "<think" * 160_000):
        begun = time.process_time()
        truncated_by(replace(trace(answer=text, reasoning=text), text=text))
        format_problem(text, text)
        assert time.process_time() - begun < 5
