"""What is said of a single reply: hand-worked cases, and the metrics' published values as a reply shows them."""

import subprocess
import sys
from typing import Any

import pytest

from distill.rationale import Style
from distill.types import Sample
from student.inference.scoring import BY_STYLE, score_reply, summarize_predictions, with_unfinished_rationales

CHART = {"table": {"red": 5, "green": 9, "blue": 2}}


def sample(answer: str, *, question: str = "?", kind: str | None = None, **meta: Any) -> Sample:
    return Sample(id="s", images=(), question=question, answers=(answer,), answer_type=kind, domain="d", meta=meta)


def reply(text: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "tokens": 9, "rationale_tokens": 7, "truncated": False, **more}


def of(asked: Sample, text: str, **settings: Any) -> dict[str, Any]:
    return score_reply(asked, reply(text), **{"plain": False, "relative_tolerance": 0.0, **settings})


def thought(reasoning: str, answer: str) -> str:
    return f"<think>\n{reasoning}\n</think>\n\n{answer}"


@pytest.mark.parametrize(
    ("reasoning", "unsupported", "checked"),
    [
        # Two readings, the three numbers of the equation.
        ("green 9, red 5: 9 - 5 = 4.", [], 5),
        # The reading is wrong; what is computed from it is not wrong once more.
        ("green 8, red 5: 8 - 5 = 3.", ["green 8"], 5),
        # The readings are right, the arithmetic is not.
        ("green 9, red 5: 9 - 5 = 3.", ["3"], 5),
        # A label that the chart has not is judged besides.
        ("green 9, yellow 5: 9 - 5 = 4.", ["yellow"], 6),
    ],
)
def test_values_that_the_chart_does_not_support_are_named(reasoning: str, unsupported: list[str], checked: int):
    asked = sample("4", question="How much higher is the green bar than the red bar?", **CHART)
    found = of(asked, thought(reasoning, "4"))
    assert (found["unsupported"], found["unsupported_values"]) == (unsupported, len(unsupported))
    assert found["checked_values"] == checked


def test_a_kept_reply_has_the_tokens_of_the_rationale_that_the_setting_of_today_cuts():
    kept = reply("One.\n\nTwo.\n\n4", rationale_tokens_by_style={"think": 0, "plain": 5})
    for plain, tokens in ((False, 0), (True, 5)):
        found = score_reply(sample("4"), kept, plain=plain, relative_tolerance=0.0)
        assert found["rationale_tokens"] == tokens and "rationale_tokens_by_style" not in found


def test_a_number_of_the_question_is_supported():
    asked = sample("3", question="How many bars are above 1.5?", **CHART)
    assert of(asked, thought("1.5 is below red 5, green 9 and blue 2, so 3.", "3"))["unsupported"] == []


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (sample("4"), thought("green 8, red 5: 3.", "3")),
        (sample("4", **CHART), "3"),
        (sample("4", **CHART), thought("Let me think about it.", "3")),
    ],
    ids=["no table", "no rationale", "no value in the rationale"],
)
def test_where_nothing_can_be_checked_nothing_is_said(asked: Sample, text: str):
    found = of(asked, text)
    assert (found["unsupported"], found["unsupported_values"], found["checked_values"]) == (None, None, None)


def test_the_recipe_says_where_the_table_is_and_how_exactly_it_is_read():
    asked = sample("4", numbers={"red": 5, "green": 9})
    assert of(asked, thought("green 9.1", "4"))["unsupported"] is None
    assert of(asked, thought("green 9.1", "4"), table="numbers")["unsupported"] == ["green 9.1"]
    assert of(asked, thought("green 9.1", "4"), table="numbers", reading_tolerance=0.05)["unsupported"] == []


@pytest.mark.parametrize(
    ("text", "consistent", "verdict"),
    [
        (thought("9 - 5 = 4.", "4"), True, "correct"),
        # Wrong, but as the rationale has it.
        (thought("9 - 6 = 3.", "3"), True, "wrong"),
        # Right, but not for the reason given.
        (thought("9 - 6 = 3.", "4"), False, "correct"),
        (thought("The answer is 7.", "4"), False, "correct"),
        # A number of the equation, but not its result.
        (thought("9 - 5 = 4.", "5"), False, "wrong"),
        # The same digits in another unit, and an aside after the result, are left open.
        (thought("9.5 - 5.5 = 4 million.", "4"), None, "correct"),
        (thought("So it is 4. For comparison, red has 9 - 4 = 5.", "4"), None, "correct"),
        (thought("I look at the bars.", "4"), None, "correct"),
        (thought("9 - 5 = 4.", ""), None, "wrong"),
        ("4", None, "correct"),
    ],
)
def test_an_answer_is_consistent_when_the_rationale_concludes_it(text: str, consistent: bool | None, verdict: str):
    found = of(sample("4", kind="number"), text)
    assert found["consistent"] is consistent
    assert found["verdict"] == verdict or found["answer"] == ""


def test_a_choice_is_consistent_by_letter_or_by_text():
    asked = sample("B", kind="choice", options=["apple", "pear"])
    assert of(asked, thought("It is green and long, so it must be the pear.", "B"))["consistent"] is True
    assert of(asked, thought("The right choice is A.", "B"))["consistent"] is False


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "relaxed"),
    # The pairs of pix2struct's own test of its metrics, whose relaxed accuracy is ChartQA's.
    [
        ("abc", "abc", True, True),
        ("abc", "Abc", False, True),
        ("Abc", "abc", False, True),
        ("100%", "96%", False, True),
        ("100%", "94%", False, False),
        ("100%", "0.96", False, True),
        ("100%", "0.94", False, False),
        ("Don't", "Won't", False, False),
    ],
)
def test_exact_and_relaxed_correctness_are_those_of_the_reference(answer: str, gold: str, exact: bool, relaxed: bool):
    found = of(sample(gold), thought("So it goes.", answer))
    assert (found["exact"], found["relaxed"]) == (exact, relaxed)


def test_relaxed_accuracy_exact_match_and_anls_take_the_best_of_the_accepted_answers():
    asked = Sample(id="s", images=(), question="?", answers=("Coca Cola", "Coca Cola Company", "20"))
    found = of(asked, "CocaCola")
    assert found["anls"] == pytest.approx(8 / 9) and not found["exact"] and not found["relaxed"]
    assert of(asked, "Coca Cola Company")["exact"] and of(asked, "19")["relaxed"]
    assert not of(asked, "18.9")["relaxed"]


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    # The package's own cases; then Lin (2004), section 3.1.
    [
        ("testing one", "testing one two", 4 / 5),
        ("testing two", "testing one two", 4 / 5),
        ("", "testing one two", 0),
        ("police kill the gunman", "police killed the gunman", 3 / 4),
        ("the gunman kill police", "police killed the gunman", 2 / 4),
    ],
)
def test_rouge_l_has_published_values(prediction: str, gold: str, expected: float):
    assert of(sample(gold), prediction)["rouge_l"] == pytest.approx(expected)


def test_rouge_l_is_that_of_all_that_is_said_and_marks_are_not_words():
    # One of five words is the gold one: precision 1/5, recall 1.
    assert of(sample("4"), thought("nine minus five is", "4"))["rouge_l"] == pytest.approx(2 * 0.2 / 1.2)


@pytest.mark.parametrize("key", ["rationale", "cot", "rationales", "solution"])
def test_a_rationale_is_compared_with_the_reference_that_the_source_has(key: str):
    value: Any = "police killed the gunman"
    meta = {key: ["something else", value] if key == "rationales" else value}
    found = of(sample("yes", **meta), thought("police kill the gunman", "yes"))
    assert found["rationale_rouge_l"] == pytest.approx(3 / 4)
    assert of(sample("yes", **meta), "yes")["rationale_rouge_l"] is None
    assert of(sample("yes"), thought("police kill the gunman", "yes"))["rationale_rouge_l"] is None


def test_what_annotators_said_counts_as_vqa_counts_it():
    asked = sample("net", votes=["net"] * 2 + ["racket"] * 8)
    # Leaving out one of the two who agree leaves one third, any other leaves two thirds.
    assert of(asked, "net")["vqa_accuracy"] == pytest.approx((2 * 1 / 3 + 8 * 2 / 3) / 10)
    assert of(sample("net"), "net")["vqa_accuracy"] is None


def test_difficulty_and_what_the_reply_says_of_itself_are_kept():
    found = score_reply(sample("4", difficulty="hard"), reply("4", seconds=0.25), plain=False, relative_tolerance=0.0)
    assert found["difficulty"] == "hard" and found["seconds"] == 0.25
    assert of(sample("4"), "4")["difficulty"] is None


def test_a_reply_without_an_answer_is_worth_nothing_but_breaks_nothing():
    found = of(sample("4", **CHART), "<think>\ngreen 9")
    assert found["answer"] == "" and found["verdict"] != "correct"
    assert not found["exact"] and not found["relaxed"] and found["anls"] == 0


def test_a_summary_counts_undecided_answers_as_not_correct():
    lines = [of(sample("50%", question="Which percentage?"), text) for text in ("50%", "0.5", "51%")]
    found = summarize_predictions(lines)
    assert (found["n"], found["n_correct"], found["n_undecided"]) == (3, 1, 1)
    assert found["accuracy"] == pytest.approx(1 / 3) and found["mean_tokens"] == 9


def test_replies_are_scored_and_measured_without_loading_anything_heavy():
    """A judge of replies starts with every run of a benchmark."""
    code = (
        "import sys\nfrom distill.types import Sample\n"
        "from student.evaluation import metrics\nfrom student.inference import scoring\n"
        "reply = dict(text='<think>a</think>4', tokens=1, rationale_tokens=1, truncated=False)\n"
        "asked = Sample(id='s', images=(), question='?', answers=('4',))\n"
        "metrics.arm_metrics([scoring.score_reply(asked, reply, plain=False, relative_tolerance=0.0)] * 2)\n"
        "print([name for name in ('torch', 'transformers', 'nltk') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("style", "others", "is_rationale"),
    [
        ("think", ["a\n</think>\n\n4", "b\n</think>\n\n5", thought("c", "6")], True),
        ("think", ["a\n</think>\n\n4", thought("b", "5"), thought("c", "6")], False),
        ("think", ["4", "5"], False),  # answers alone
        ("plain", ["a\n\n4", "b\n\n5", "c\n\n6"], True),
        ("plain", ["4", "5", "c\n\n6"], False),
    ],
)
def test_a_cut_reply_is_a_rationale_where_the_other_replies_show_it(
    style: Style, others: list[str], is_rationale: bool
):
    cut = reply("green 9, red 5: 9 - 5 = 4", truncated=True, **{BY_STYLE: {"think": 0, "plain": 0}})
    given = {str(number): reply(text) for number, text in enumerate(others)}
    given |= {
        "ended": reply("4", **{BY_STYLE: {"think": 0, "plain": 0}}),
        "unasked": {"unasked": "image_token_in_text"},
    }
    found = with_unfinished_rationales(given | {"cut": cut}, style)
    assert {name: found[name] for name in given} == given
    scored = score_reply(sample("4", kind="number"), found["cut"], plain=style == "plain", relative_tolerance=0.0)
    assert (scored["answer"] == "") == is_rationale == (scored["verdict"] != "correct")
    assert scored["rationale_tokens"] == (cut["tokens"] if is_rationale else 0)
    assert scored["text"] == cut["text"] == (scored["reasoning"] or scored["answer"])
    assert scored.keys() == score_reply(sample("4"), cut, plain=False, relative_tolerance=0.0).keys()
