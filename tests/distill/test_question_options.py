import pytest

from distill.question_options import read_options
from distill.types import Sample


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        ("What colour is it? A) red B) blue", ("red", "blue")),
        ("What colour is it? (a) red (b) dark blue (c) green", ("red", "dark blue", "green")),
        ("Which planet? A. Mars B. Jupiter C. Venus", ("Mars", "Jupiter", "Venus")),
        ("What colour?\nA: red\nB: blue\nAnswer with the option's letter.", ("red", "blue")),
        ("What colour? [A] red [B] blue Answer with the letter.", ("red", "blue")),
        ("Options: A) red, B) blue, or C) green", ("red", "blue", "green")),
        ("Which is it, (a) the cat or (b) the dog?", ("the cat", "the dog")),
        ("选哪个？（A）苹果（B）香蕉", ("苹果", "香蕉")),
        ("选择 A、苹果 B、香蕉", ("苹果", "香蕉")),
        ("Which triangle? A equilateral B isosceles C scalene", ("equilateral", "isosceles", "scalene")),
        ("A. W. Spears is who? (A) Only 1. (B) Both 1. and 2.", ("Only 1.", "Both 1. and 2.")),
        ("Vitamin A) or B)? Choices: A) this B) that", ("this", "that")),
        ("Text. " * 1000 + "A) red B) blue", ("red", "blue")),
    ],
)
def test_options_are_read_from_the_text_of_a_question(question: str, texts: tuple[str, ...]) -> None:
    offered = read_options(question)
    assert (offered.texts, offered.numbered) == (texts, False)


@pytest.mark.parametrize(
    "question",
    [
        "What is the designation of A. W. Spears?",
        "In panels (a) and (b), which bar is larger?",
        "What colour? A) red C) blue",
        "What colour? A) red b) blue",
        "What colour? A) red",
        "What colour? B) red C) blue",
        "What colour? A) red (B) blue",
        "Is line A longer than line B or line C?",
        "Which is taller? A house B tree",
        "What is shown? A man with vitamin B and vitamin D",
        "Find the mean. (a) Which is larger? (b) Why is it?",
        "Points (x, a) and (y, b) are on the line",
        "What are f(a) and f(b) here?",
        "The image has (1) a cat and (2) a dog. Which is bigger?",
        "Options: 1. 3 2. 4",
        "How many of these are true?\n1. Snow is white.\n2. Grass is red.",
        "Options: A) red B) blue or a. green b. black",
        "",
    ],
)
def test_a_question_that_holds_letters_or_numbers_alone_offers_nothing(question: str) -> None:
    assert read_options(question).texts == ()


@pytest.mark.parametrize(
    "question",
    ["Which animal? Options: 1. cat 2. dog", "Which animal is it?\n1) cat\n2) dog", "Choices:\n(1) cat\n(2) dog"],
)
def test_numbered_items_are_options_under_a_heading_or_one_a_line(question: str) -> None:
    assert (read_options(question).texts, read_options(question).numbered) == (("cat", "dog"), True)


def test_the_list_of_a_row_goes_before_the_text_of_its_question() -> None:
    sample = Sample(id="0", images=(), question="Which? A) red B) blue", meta={"options": ["rot", "blau"]})
    assert sample.options == ("rot", "blau")
    assert Sample(id="0", images=(), question=sample.question).options == ("red", "blue")
