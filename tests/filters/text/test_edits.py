"""Short texts with one edit: one text if the edit changes nothing that they say, two if it does."""

import numpy as np
import pytest

from filters.text.minhash import Scheme, are_near, band_keys, shingle_texts, sign

TEXT = (
    "The chart shows that the left bar, which is red, is about twice as tall as the bar of Graz. "
    "It does not mention a total, so the answer is not obvious."
)
SHORT = "The red bar of Graz clearly shows the most rain of all."


def is_near(text: str, other: str, threshold: float = 0.8) -> bool:
    return are_near(*shingle_texts([text, other], Scheme().shingle), threshold)


@pytest.mark.parametrize(
    "edit",
    ["shows/indicates", "shows/showed", "mention/state", "about/approximately", "mention/menttion",
     "so the/so the the", "does not/doesn't",
     "obvious/evident", "answer/answer, strictly speaking,", "which is/no doubt which is"],
)  # fmt: skip
def test_an_edit_that_keeps_what_is_said_keeps_the_text(edit: str) -> None:
    old, new = edit.split("/")
    assert is_near(TEXT, TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    "edit",
    ["left/right", "red/blue", "twice/thrice", "tall/wide", "Graz/Linz", "does not/does", "bar/pie", "about/exactly",
     "obvious/hidden", "is red/was red before", "total/median", "shows/hides", "which is/which will be", "so/so not"],
)  # fmt: skip
def test_an_edit_that_changes_what_is_said_makes_another_text(edit: str) -> None:
    old, new = edit.split("/")
    assert not is_near(TEXT, TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    "turned",
    ["rises by 20 points/rises to 20 points", "from Paris to London/to Paris from London", "sent by the/sent to the",
     "opened by the/opened for the", "if the/although the"],
)  # fmt: skip
def test_a_small_word_that_turns_a_relation_makes_another_text(turned: str) -> None:
    old, new = turned.split("/")
    text = f"In the year after the crisis, as the caption of the chart says in plain words, it was {old} line below."
    assert is_near(text, text.replace("says", "states"))
    assert not is_near(text, text.replace(old, new))


def test_a_short_text_may_have_one_edit_although_few_shingles_are_left() -> None:
    assert is_near(SHORT, SHORT.replace("shows", "confirms"), threshold=1.0)
    misspelt = SHORT.replace("rain", "rainfal")
    assert is_near(SHORT.replace("rain", "rainfall"), misspelt)
    assert not is_near(SHORT.replace("rain", "rainfall"), misspelt, threshold=1.0)
    assert not is_near("Graz shows the most rain.", "Graz confirms the most rain.")


def test_a_short_text_may_not_have_an_unknown_word_more() -> None:
    assert not is_near(SHORT, SHORT.replace("rain", "warm rain"))


def test_a_typo_in_a_text_without_capitals_is_one_only_in_a_known_word() -> None:
    assert is_near(TEXT.lower(), TEXT.lower().replace("mention", "menttion"))
    assert not is_near(TEXT.lower() + " it is kobenhavn", TEXT.lower() + " it is kobenhaven")


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("Das Diagramm zeigt links einen roten Balken.", "Das Diagramm veranschaulicht links einen roten Balken."),
        ("Le graphique montre une barre rouge, donc la valeur est haute.", "Le graphique indique une barre rouge, "
         "donc la valeur est haute."),
    ],
)  # fmt: skip
def test_words_of_german_and_french_can_be_exchanged(text: str, edited: str) -> None:
    more = " Mehr steht hier über Graz nicht."
    assert is_near(text + more, edited + more)
    assert not is_near(text + more, edited.replace("roten", "blauen").replace("rouge", "bleue") + more)


@pytest.mark.parametrize("count", range(8, 30))
def test_a_word_replaced_left_out_or_added_anywhere_leaves_a_common_key(count: int) -> None:
    words = ["Graz", *("w" + chr(98 + index // 20) + chr(98 + index % 20) for index in range(count))]
    keys = band_keys(sign([" ".join(words)], Scheme()).signatures, Scheme())
    for place in range(1, len(words)):
        edited = [[*words[:place], "wzz", *words[place + 1 :]], words[:place] + words[place + 1 :]]
        edited.append([*words[:place], "wzz", *words[place:]])
        for other in edited:
            assert np.any(keys == band_keys(sign([" ".join(other)], Scheme()).signatures, Scheme()))


@pytest.mark.parametrize(
    ("old", "new"),
    [("240 / 30 = 8", "$240/30=8$"), ("three rows", "3 rows"), ("12 percent", "12\\%"), ("larger", "greater"),
     ("would like", "wants"), ("sleeps", "is sleeping"), ("At first glance the", "The"), ("right one", "right"),
     ("For that reason", "Therefore"), ("shows", "indicates")],
)  # fmt: skip
def test_another_notation_phrase_or_form_of_a_verb_is_the_same(old: str, new: str) -> None:
    text = (
        "At first glance the larger cat sleeps in the garden. For that reason the sign shows 12 percent, and the "
        "three rows make 240 / 30 = 8 seats for a person who would like to sit near the door, which is the right one."
    )
    assert is_near(text, text.replace(old, new, 1))


@pytest.mark.parametrize("edit", ["in the box/on the box", "Focus/Signal", "red and blue/red or blue", "a man/men"])
def test_a_relation_of_place_or_a_name_that_is_also_a_common_word_counts(edit: str) -> None:
    old, new = edit.split("/")
    text = "We see that the company Focus shows a man and the red and blue ball in the box beside the wooden door."
    assert not is_near(text, text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("said", "other"),
    [("helps", "follows"), ("chooses", "describes"), ("supplies", "uses"), ("needs", "yields"),
     ("gibt", "nimmt"), ("allows", "requires"), ("proves that she knows", "suggests that she knows"),
     ("assumes that she knows", "confirms that she knows"),
     ("examines", "helps"), ("has no doubt about", "has doubt about"), ("donne", "choisit")],
)  # fmt: skip
def test_another_action_makes_another_text(said: str, other: str) -> None:
    text = f"We see that the woman in the red coat {said} the old man beside the door of the bakery in the town."
    assert not is_near(text, text.replace(said, other))


def test_the_steps_of_the_writer_may_have_other_words() -> None:
    text = "The chart shows two bars, so we use the sum of both, and then we find that the town has 12 parks in all."
    assert is_near(text, text.replace("we use", "we take").replace("we find", "I see"))
