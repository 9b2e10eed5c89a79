"""Gold answers within longer answers, forms of a word, and units and numerals in several spellings."""

import pytest

from distill.answers.numbers.normalize import normalise
from distill.answers.texts.mentions import mentions
from distill.answers.verdicts import judge
from distill.answers.words.word_forms import same_word_form


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


@pytest.mark.parametrize(
    ("said", "gold", "question", "verdict"),
    [
        ("330 million", "330", "How many million users did the app have?", "correct"),
        ("330,000,000", "330", "How many million users did the app have?", "correct"),
        ("330 billion", "330", "How many million users did the app have?", "wrong"),
        ("36 m", "36", "What is the perimeter in centimetres?", "wrong"),
        ("36 cm²", "36", "What is the perimeter in centimetres?", "wrong"),
        ("0.36 m", "36", "What is the perimeter in centimetres?", "correct"),
        ("36 cm", "36", "What is the perimeter in centimetres?", "correct"),
        ("47 radians", "47", "What is the measure of angle ABC?", "wrong"),
        ("2,5 g", "2,5", "Wie viele Kilogramm wiegt der Sack?", "wrong"),
        ("190 g", "190", "How many calories does the bar have?", "wrong"),
        ("58%", "58", "How many percent support the measure?", "correct"),
        ("9 percentage points", "9", "By how many percentage points did it fall?", "correct"),
        ("58%", "58", "How many support the measure?", "undecided"),
        ("In Q3 2019 it had 12 users.", "12", "How many users did it have in Q3 2019?", "correct"),
        ("-3, 2", "2, -3", "What are the coordinates of A?", "wrong"),
        ("Four bars exceed 50.", "4", "How many bars have a value above 50?", "correct"),
        ("It is marked confidential.", "yes", "Is the document marked as confidential?", "correct"),
        ("It isn't marked confidential.", "yes", "Is the document marked as confidential?", "wrong"),
        ("It is signed.", "yes", "Is the document marked as confidential?", "undecided"),
        ("asexual reproduction", "asexual", "What type of reproduction is shown?", "correct"),
    ],
)
def test_the_question_says_what_a_bare_number_counts_and_which_words_are_repeated(
    said: str, gold: str, question: str, verdict: str
) -> None:
    assert judge(said, gold, question=question).verdict == verdict


@pytest.mark.parametrize(
    ("said", "gold", "verdict"),
    [
        (">50%", "more than 50%", "correct"),
        ("less than 50%", "more than 50%", "wrong"),
        ("3 or more", "at least 3", "correct"),
        ("at least 3", "more than 3", "undecided"),
        ("3 times the square root of 2", "3\\sqrt{2}", "correct"),
        ("The area is 36π square units.", "36\\pi", "correct"),
        ("π·6² = 36π", "36\\pi", "correct"),
        ("2x = 36π", "36\\pi", "undecided"),
        ("f(x) = 2x + 1", "y = 2x + 1", "correct"),
        ("x is greater than 4", "x > 4", "correct"),
        ("1.732", "\\sqrt{3}", "correct"),
        ("1.742", "\\sqrt{3}", "wrong"),
        ("-0.667", "-\\frac{2}{3}", "correct"),
        ("37.5%", "3/8", "correct"),
        ("un quart", "25 %", "correct"),
        ("3/4", "trois quarts", "correct"),
        ("3個", "三つ", "correct"),
        ("りんごは一つもありません。", "一つ", "undecided"),
        ("令和三年四月一日", "令和3年4月1日", "correct"),
        ("四十パーセント", "40%", "correct"),
        ("图中的水果是苹果。", "苹果", "correct"),
        ("不是苹果", "苹果", "wrong"),
        ("犬がいます。", "犬", "correct"),
        ("青いです。", "青", "correct"),
        ("page 4 of 12", "4", "correct"),
        ("- 17 -", "17", "correct"),
        ("-1,204", "(1,204)", "correct"),
        ("1974", "MCMLXXIV", "correct"),
        ("Quadrant 4", "III", "wrong"),
        ("GA, FL", "Georgia, Florida", "correct"),
        ("meeting of the board of directors", "Board of Directors meeting", "correct"),
        ("Bradford, Leeds", "Leeds and Bradford", "correct"),
        ("x > 2 or x < -2", "x < -2 or x > 2", "correct"),
        ("football (soccer)", "soccer", "correct"),
        ("football (not soccer)", "soccer", "undecided"),
        ("Rodríguez", "Rodriguez", "correct"),
        ("half a liter", "500 ml", "correct"),
        ("avant le 12 mars 2020", "12 mars 2020", "undecided"),
        ("half past twelve", "12:30 PM", "correct"),
        ("minuit", "12h00", "undecided"),
        ("14 h 05 min", "14h05", "correct"),
        ("Wednesday", "miércoles", "correct"),
        ("Lisbon", "Lisboa", "correct"),
        ("Thursday", "miércoles", "wrong"),
        ("10", "десять", "correct"),
        ("3명", "세 명", "correct"),
        ("European Union average", "EU average", "correct"),
        ("The statement is not true.", "false", "correct"),
        ("The statement is not true.", "true", "wrong"),
        ("That he's homeless", "he is homeless", "correct"),
        ("a circle, not a square", "circle", "correct"),
        ("a square, not a circle", "circle", "wrong"),
        ("Mrs. Adele Firth (Treasurer)", "Adele Firth", "correct"),
        ("It peaks in Jan.", "January", "correct"),
        ("The departure gate is B12.", "Gate B12", "correct"),
    ],
)
def test_each_class_of_blind_set_5_has_its_verdict(said: str, gold: str, verdict: str) -> None:
    assert judge(said, gold).verdict == verdict
