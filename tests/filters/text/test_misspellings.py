"""Typos and tenses of one word, and words that only look alike."""

import pytest

from filters.text.misspellings import is_same_word


@pytest.mark.parametrize(
    "pair",
    ["relationship/relatonship", "between/betwen", "question/qestion", "because/becuase", "middle/midddle",
     "drawing/drawign", "lentement/lentemnt", "demnach/demnahc"],
)  # fmt: skip
def test_one_letter_that_makes_no_other_word_is_a_typo(pair: str) -> None:
    assert is_same_word(*pair.split("/")) and is_same_word(*pair.split("/")[::-1])


@pytest.mark.parametrize(
    "pair",
    ["angle/angel", "alkane/alkene", "nitrate/nitrite", "trail/trial", "house/horse", "adapted/adopted", "form/from",
     "wurde/würde", "dessus/dessous", "lions/lines", "bars/bar", "cat/cut", "solid/lipid", "electrons/electron"],
)  # fmt: skip
def test_two_words_of_similar_letters_are_two(pair: str) -> None:
    assert not is_same_word(*pair.split("/"))


@pytest.mark.parametrize(
    "pair", ["covers/covered", "rises/rose", "shows/showing", "carries/carried", "stops/stopped"]
)
def test_tenses_are_one_word(pair: str) -> None:
    assert is_same_word(*pair.split("/"))


def test_a_plural_and_another_voice_are_two_words() -> None:
    assert not is_same_word("dogs", "dog")
    assert not is_same_word("painted", "painting")
