"""Gold answers within longer answers, forms of a word, and units and numerals in several spellings."""

import pytest

from distill.answers.numbers.normalize import normalise
from distill.answers.texts.mentions import mentions
from distill.answers.texts.word_forms import same_word_form
from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("She holds a red umbrella over her head.", "umbrella"),
        ("Germany has the highest value.", "Germany"),
        ("Germany (36 percent) is the tallest.", "Germany"),
        ("The tallest bar belongs to Germany, followed by France.", "Germany"),
        ("The document lists Boston, Chicago and Denver. The headquarters is in Chicago.", "Chicago"),
        ("stop sign", "stop"),
        ("a bottle of Budweiser", "budweiser"),
        ("The light blue bar represents it.", "Light blue"),
        ("on the left-hand side", "to the left"),
        ("The arrow points to the left.", "left"),
        ("Adults aged 18-29 are most likely.", "18-29"),
        ("That would be Germany.", "Germany"),
        ("John A. Miller is the sender.", "John A. Miller"),
        ("Es un perro.", "perro"),
        ("La flecha apunta a la izquierda.", "izquierda"),
        ("He is playing.", "to play"),
        ("The boy runs.", "running"),
        ("It is made of wood.", "wooden"),
        ("Germany. It is the tallest bar.", "Germany"),
    ],
)
def test_a_sentence_states_the_gold_words_that_stand_freely_in_it(text: str, gold: str) -> None:
    assert mentions(text, gold)
    assert judge(text, gold).verdict == "correct"


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("The animal is a hot dog.", "dog"),
        ("HP Lovecraft", "hp"),
        ("The building is in Chicago Heights.", "Chicago"),
        ("The cat is next to the bus.", "bus"),
        ("the assistant of the mayor", "mayor"),
        ("The tallest bar belongs to France, followed by Germany.", "Germany"),
        ("Netflix is the least popular; Disney+ leads.", "Netflix"),
        ("The company is Samsung, with LG second.", "LG"),
        ("The dog is black and the cat is white.", "white"),
        ("Blue; green stands for the others.", "green"),
        ("Thursday was cancelled; it takes place on Friday.", "Thursday"),
        ("Assistant Vice President of Marketing", "Vice President of Marketing"),
        ("Mrs. Whitfield is the sender; the addressee is John Platt.", "Mrs. Whitfield"),
        ("It might be a dog.", "dog"),
        ("It is blue or green. It is green in the middle.", "green"),
        ("wood-coloured plastic", "wood"),
        ("-|x|", "|x|"),
        ("a horse is nowhere to be seen, it is a mule", "horse"),
        ("The arrow points to the right, left of the sign.", "left"),
        ("The sign should read STOP.", "stop"),
        ("The winner is Samsung, with 31% for LG.", "LG"),
        ("word " * 60 + "is Germany", "Germany"),
    ],
)
def test_a_sentence_does_not_state_words_that_are_tied_to_others_doubted_or_beside_a_rival(
    text: str, gold: str
) -> None:
    assert not mentions(text, gold)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("umbrella", "umbrellas", True),
        ("city", "cities", True),
        ("surf", "surfing", True),
        ("surfs", "surfing", True),
        ("ride", "riding", True),
        ("left", "leftwards", True),
        ("wood", "wooden", True),
        ("interested", "interesting", False),
        ("new", "news", False),
        ("bus", "bu", False),
        ("class", "clas", False),
        ("ring", "r", False),
        ("plan", "plane", False),
    ],
)
def test_two_forms_of_a_word_are_the_same_word_if_one_is_plain(left: str, right: str, same: bool) -> None:
    assert same_word_form(left, right) is same_word_form(right, left) is same


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("25 cm2", "25 cm^2"),
        ("25 centimeters squared", "25 cm^2"),
        ("9.8 meters per second squared", "9.8 m/s^2"),
        ("$9.8\\ \\mathrm{m\\,s^{-2}}$", "$9.8 m/s^2 $"),
        ("5 m·s⁻¹", "5 m/s"),
        ("300 kelvin", "300 K"),
        ("3 Mio. Euro", "3 Mio Euro"),
        ("3,5 millions d'euros", "3,5 millions euros"),
        ("an hour and a half", "1.5 hours"),
        ("1万2千円", "12000円"),
        ("3亿5千万", "350000000"),
        ("apples per basket", "apples per basket"),
    ],
)
def test_units_scales_and_numerals_have_one_spelling(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("said", "gold", "verdict"),
    [
        ("R&D", "Research and Development", "correct"),
        ("the CEO", "Chief Executive Officer", "correct"),
        ("CFO", "Chief Executive Officer", "wrong"),
        ("35 millions d'euros", "3,5 millions d'euros", "wrong"),
        ("6,5", "6.5", "correct"),
        ("2万1千円", "1万2千円", "wrong"),
        ("9.8 m/s", "9.8 m/s^2", "wrong"),
        ("cat", "猫", "correct"),
        ("chat", "un chat", "correct"),
        ("P.O. Box 123 Raleigh NC 27602", "P.O. Box 123, Raleigh, NC 27602", "correct"),
        ("(1, 3]", "[1, 3]", "wrong"),
    ],
)
def test_each_class_of_blind_set_4_has_its_verdict(said: str, gold: str, verdict: str) -> None:
    assert judge(said, gold).verdict == verdict
