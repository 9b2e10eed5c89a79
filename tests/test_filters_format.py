import pytest
from run_fixtures import sample, trace

from filters.format import PROBLEMS, Format, format_problem


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
