"""Patterns that find their place by a letter find the same as before."""

import random
import re

import pytest

from distill.grounding.arithmetic.quick_patterns import compile_quick, longest_literal

CHANGED = {
    r"\bN is N": "N is N",
    r"\b(?:sum|total) of N": "the sum of N",
    r"\b(?:add|adding|totall?ing) N(?: [a-z]+)? (?:to|onto) N": "totaling N onto N",
    r"\b(?:sum|product) (of|over) N(?! ?[-+*/])": "product over N",
    r"(?<![-+*/^] )\bN mod(?:ulo)? N = N": "N mod N = N",
    r"(?<![-+*/^=(] )(?<![-+*/^=(\w])N (?:is|are) more than N": "N is more than N",
    r"\btak(?:e|ing) N away": "take N away",
    r"\bfrom -?N to -?N": "from -N to N",
}
UNCHANGED = {
    r"\b([a-z]+) N": "sum N",
    r"\?|\b(?:wrong|false)\b": "is it false",
    r"\b(?:a|an)? N": "an N",
    r"\bs?um": "um",
    r"sum of N": "sum of N",
    r"\b[a-z] = N": "x = N",
    r"\b(?:more|[a-z]+er) than N": "fewer than N",
}
PIECES = [*"N -+*/=(_é\n", " ", *(word for text in (CHANGED | UNCHANGED).values() for word in text.split())]


@pytest.mark.parametrize(("pattern", "example"), (CHANGED | UNCHANGED).items())
def test_the_quick_pattern_finds_the_same(pattern: str, example: str) -> None:
    chance = random.Random(pattern)
    quick, plain = compile_quick(pattern), re.compile(pattern)
    for _ in range(2000):
        pieces = [chance.choice([*PIECES, example]) + chance.choice(("", " ")) for _ in range(12)]
        text = "".join(pieces)
        expected = [(match.span(), match.groups()) for match in plain.finditer(text)]
        assert [(match.span(), match.groups()) for match in quick.finditer(text)] == expected, text
    assert quick.search(example) is not None


@pytest.mark.parametrize("pattern", CHANGED)
def test_a_pattern_that_begins_with_a_word_is_changed(pattern: str) -> None:
    assert compile_quick(pattern).pattern[0] == "["


@pytest.mark.parametrize("pattern", UNCHANGED)
def test_a_pattern_of_another_beginning_stays(pattern: str) -> None:
    assert compile_quick(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        (r"\bsum of N", "sum of N"),
        (r"ab+cde", "cde"),
        (r"abc?de", "ab"),
        (r"ab{0,40}cde", "cde"),
        (r"N [a-z]+ of N\b, (?:so |or )?N", " of N, "),
        (r"(?:sum|total) is", " is"),
        (r"\(N\)?", "(N"),
        ("sum of|total of", ""),
    ],
)
def test_the_longest_literal_stands_in_each_match(pattern: str, literal: str) -> None:
    assert longest_literal(pattern) == literal
