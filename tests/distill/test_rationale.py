"""A text and its two parts: rationale and answer, for teachers, the judge and students alike."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distill.answers.final_answer import final_answer
from distill.rationale import CLOSE, OPEN, TAGS, enclose, join, split, thinking_end
from teacher.ask import answer_text
from teacher.messages.parse import parse

ROOT = Path(__file__).resolve().parents[2]
plain_texts = st.text(alphabet="ab 1\n.", max_size=30)


@pytest.mark.parametrize(
    ("text", "rationale", "answer", "state", "well_formed"),
    [
        ("<think>\nrow 1: 2\n</think>\n\n7", "row 1: 2", "\n\n7", "closed", True),
        ("row 1: 2\n</think>\n7", "row 1: 2", "\n7", "closed", True),
        ("7", "", "7", "none", True),
        ("<think>\nrow 1: 2", "row 1: 2", "", "open", False),
        ("<think>a</think>", "a", "", "closed", False),
        ("<think>a</think>b</think>7", "ab", "7", "malformed", False),
        ("First <think>a</think>7", "a", "7", "malformed", False),
        ("<think>a</think>7<think>", "a", "7", "malformed", False),
        ("[THINK]a[/THINK]7", "a", "7", "closed", True),
        ("", "", "", "none", False),
    ],
)
def test_a_text_is_split_at_its_think_tags(
    text: str, rationale: str, answer: str, state: str, well_formed: bool
) -> None:
    parts = split(text)
    assert parts == (rationale, answer, state)
    assert parts.well_formed == well_formed


def test_in_plain_style_a_rationale_ends_at_the_last_blank_line() -> None:
    assert split("one row\n\nthen another\n\n7", "plain")[:2] == ("one row\n\nthen another", "7")
    assert split("7", "plain")[:2] == ("", "7")
    assert not split("one row\n\n", "plain").well_formed


@given(plain_texts, plain_texts)
def test_what_is_joined_or_enclosed_is_split_into_the_same_parts(rationale: str, answer: str) -> None:
    rationale, answer = rationale.strip(), answer.strip()
    assert split(join(rationale, answer, "think"))[:2] == (rationale, f"\n\n{answer}")
    assert split(enclose(rationale, answer))[:2] == (rationale, answer)
    if "\n\n" not in answer:
        assert split(join(rationale, answer, "plain"), "plain")[:2] == (rationale, answer)


@pytest.mark.parametrize(("opening", "closing"), TAGS)
def test_parser_judge_and_questions_outside_a_plan_know_the_same_tags(opening: str, closing: str) -> None:
    text = f"{opening}3 and 4, so 7 or 8{closing} Lisbon"
    assert (
        parse(text).answer == answer_text(text) == final_answer(text).text == split(text).answer.strip() == "Lisbon"
    )
    assert text[thinking_end(text) :] == " Lisbon"
    assert answer_text(text.removesuffix(f"{closing} Lisbon")) == "" == parse(f"{opening}3 and 4").answer


def test_think_tags_are_written_in_one_module() -> None:
    """Docstrings may name them, and so may the descriptions of recipe keys."""
    others = []
    for package in ("distill", "teacher", "filters", "student"):
        for path in (ROOT / package).rglob("*.py"):
            if path.is_relative_to(ROOT / "distill/recipe"):
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            others += [
                path
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
                if OPEN in node.value or CLOSE in node.value
            ]
    assert set(others) == {ROOT / "distill/rationale.py"}
