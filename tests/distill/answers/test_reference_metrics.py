"""Metrics of published results: values that the definitions give, at their edges too."""

import pytest

from distill.answers.reference_metrics import anls, exact_match, relaxed_accuracy, rouge_l, vqa_accuracy
from distill.answers.vqa_normalize import normalise


def test_vqa_accuracy_is_at_most_1() -> None:
    assert vqa_accuracy("cat", ["cat"] * 10) == 1.0
    assert vqa_accuracy("cat", ["cat"] * 2 + ["dog"] * 8) == (2 * 1 / 3 + 8 * 2 / 3) / 10
    assert vqa_accuracy("cat", []) == 0.0


@pytest.mark.parametrize(
    ("said", "gold", "value"),
    [
        ("95", "100", 1.0),
        ("94.9", "100", 0.0),
        ("105", "100", 1.0),
        ("96%", "1", 1.0),
        ("-100", "100", 0.0),
        ("0.01", "0", 0.0),
        ("0", "0", 1.0),
        ("Cat", "cat", 1.0),
        ("5 cats", "5", 0.0),
    ],
)
def test_a_number_is_right_within_5_percent_and_a_text_in_either_case(said: str, gold: str, value: float) -> None:
    assert relaxed_accuracy(said, gold) == value


def test_anls_is_zero_from_half_of_the_letters_on() -> None:
    assert anls("abcd", "abce") == 0.75
    assert anls("abcd", "abxy") == 0.0
    assert anls("  ABCD ", ["xxxx", "abcd"]) == 1.0
    assert anls("abcd", "abxy", threshold=0.6) == 0.5


def test_the_best_of_several_golds_counts() -> None:
    assert exact_match("cat", "cat") == exact_match("cat", ["dog", "cat"]) == 1.0
    assert exact_match("ca", "cat") == exact_match("Cat", ["cat"]) == 0.0
    assert rouge_l("a red bus", ["a red bus", "dog"]) == 1.0
    assert rouge_l("a red bus", "a bus stop here") == 2 * 2 / 7
    assert rouge_l("cat", "dog") == rouge_l("", "") == 0.0


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("Red-blue", "red blue"),
        ("red- blue", "red blue"),
        ("red -blue", "red blue"),
        ("1,000", "1000"),
        ("two cats", "2 cats"),
        ("none", "0"),
        ("zero", "0"),
        ("ten.", "10"),
        ("the cat and a dog", "cat and dog"),
        ("dont", "don't"),
        ("3.5", "3.5"),
    ],
)
def test_vqa_answers_are_compared_in_one_form(written: str, compared: str) -> None:
    assert normalise(written) == compared


def test_a_mark_at_the_edge_of_a_word_is_removed_everywhere() -> None:
    assert normalise("a-b c- d") == "ab c d"
    assert normalise("a-b c") == "b c"
