"""One plain clause that states the gold answer, and near misses of it; comparisons, causes, phrases, yes and no."""

import pytest

from distill.answers import judge
from distill.answers.texts.plain_clauses import states_plainly

STATED = [
    ("What does the woman have around her neck?", "a necklace", "She wears a pearl necklace."),
    ("What is the man's profession?", "chef", "He works as a chef."),
    ("What's in the vase?", "flowers", "The vase is filled with flowers."),
    ("What room is this?", "kitchen", "A modern kitchen with white cabinets"),
    ("What is the largest animal in the picture?", "elephant", "An African elephant"),
    ("Where are the people sitting?", "on the grass", "The people are seated on the grass."),
    ("What's on top of the cake?", "strawberries", "The cake is topped with strawberries."),
    ("What airline does this plane belong to?", "Lufthansa", "This plane belongs to Lufthansa, the German airline."),
    ("What is the man getting into?", "car", "He's getting into a black limousine, a car."),
    ("What kind of shop is it?", "bakery", "Bread and cakes in the window: it's a bakery."),
    ("Who wrote the book?", "Stephen King", "The author is Stephen King."),
    ("What is the name of the store?", "Rosewood Bakery", "The shop is called Rosewood Bakery."),
    ("Which state is shown in dark green?", "Texas", "Dark green is used for Texas."),
    ("How is the dog feeling?", "happy", "Happy and excited"),
    ("Qué está comiendo el niño?", "un helado", "El niño está comiendo un helado."),
    ("Qual é o animal na foto?", "cachorro", "Um cachorro marrom"),
    ("What is the dog trying to catch?", "frisbee", "The dog wants to catch the frisbee."),
    ("Quel est le métier de l'homme ?", "boulanger", "Il travaille comme boulanger."),
    ("Why is the woman wearing gloves?", "it's cold", "Because it is cold outside."),
    ("What is the reason given for the delay?", "bad weather", "It's delayed because of bad weather."),
]


@pytest.mark.parametrize(("question", "gold", "text"), STATED)
def test_one_plain_clause_states_its_answer(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict == "correct"


NEAR_MISSES = [
    ("What animal is this?", "cow", "It's a sea cow."),
    ("What is on the plate?", "cake", "A rice cake"),
    ("What sport is being played?", "tennis", "It's table tennis."),
    ("What is on the wall?", "clock", "A picture of a clock"),
    ("What is the woman wearing?", "hat", "She carries a hat."),
    ("What is the woman doing?", "cooking", "She teaches cooking."),
    ("What is the man doing?", "skateboarding", "He's carrying a skateboard while walking to his car."),
    ("Who is sitting?", "girl", "The girl stands."),
    ("What is behind the man?", "a waterfall", "There's a waterfall in front of him and a cave behind him."),
    ("Who wrote the book?", "Stephen King", "The book is about Stephen King."),
    ("Who painted the picture?", "Monet", "It was stolen from Monet."),
    ("What is the bus's destination?", "Downtown", "The bus comes from Downtown."),
    ("What is the woman's mood?", "happy", "She seems less happy."),
    ("What is the woman's mood?", "sad", "She comforts a sad boy."),
    ("Which country has the lowest value?", "Chad", "Chad is followed by Mali, the lowest."),
    ("Où se trouve le chat ?", "sur le canapé", "Le chat est sous le canapé."),
    ("¿De qué color es el coche?", "rojo", "El coche tiene asientos rojos."),
    ("Quel animal est-ce ?", "chat", "C'est un poisson-chat."),
    ("Why is the man running?", "late", "Because he is never late."),
]


@pytest.mark.parametrize(("question", "gold", "text"), NEAR_MISSES)
def test_a_near_miss_is_not_accepted(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict != "correct"


def test_a_clause_of_other_words_or_without_a_question_states_nothing() -> None:
    assert not states_plainly("She wears a necklace", "a necklace", "")
    assert not states_plainly("She wears a scarf", "a necklace", "What does she wear?")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The lamp is larger than the vase.", "correct"),
        ("The vase is smaller than the lamp.", "correct"),
        ("The vase is larger than the lamp.", "undecided"),
        ("The lamp is larger than the bed.", "undecided"),
        ("The lamp is cleaner than the vase.", "undecided"),
    ],
)
def test_a_comparison_names_the_one_asked_for(text: str, verdict: str) -> None:
    assert judge(text, "lamp", question="Which object is larger, the vase or the lamp?").verdict == verdict


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("Where is the cat?", "under the table", "The cat is lying beneath the table."),
        ("Which corner is the logo in?", "top right", "The logo sits in the upper right corner."),
        ("How often is it published?", "twice a month", "Two times per month"),
        ("What is the subject?", "Budget revision for fiscal year 1987", "FY 1987 budget revision"),
        ("What vehicle is this?", "motorcycle", "It's a motorbike."),
        ("To whom is it addressed?", "Ms. Helen Carter", "It is addressed to Helen Carter, the marketing manager."),
        ("In welcher Stadt steht das Gebäude?", "München", "Munich"),
        ("How tall is the building?", "about 120 meters", "~120 m tall"),
    ],
)
def test_phrases_titles_and_names_that_mean_the_same(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict == "correct"


@pytest.mark.parametrize(
    ("question", "gold", "text", "verdict"),
    [
        ("Is the right door open?", "no", "The left door is open.", "undecided"),
        ("Is the right door open?", "no", "The right door is closed.", "correct"),
        ("Are there more chairs than people?", "no", "There are fewer chairs than people.", "correct"),
        ("Is the form signed?", "Yes", "It is signed and dated.", "correct"),
        ("Can you see the horse's tail?", "no", "The horse's tail is visible.", "wrong"),
        ("Ist das Fenster offen?", "nein", "Das Fenster ist zu.", "correct"),
        ("Ist das Fenster offen?", "ja", "Das Fenster ist geschlossen.", "wrong"),
        ("Trägt der Mann eine Brille?", "ja", "Der Mann trägt eine Brille.", "correct"),
        ("Le feu est-il rouge ?", "non", "Le feu est vert.", "correct"),
        ("¿Hay más hombres que mujeres?", "sí", "Hay más mujeres que hombres.", "undecided"),
        ("O homem está sentado?", "sim", "O homem está sentado.", "correct"),
        ("男性は帽子をかぶっていますか？", "はい", "帽子をかぶっています。", "correct"),
        ("男性は帽子をかぶっていますか？", "はい", "帽子をかぶっていません。", "wrong"),
    ],
)
def test_yes_or_no_by_one_opposite_in_the_order_of_the_question(
    question: str, gold: str, text: str, verdict: str
) -> None:
    assert judge(text, gold, question=question).verdict == verdict


@pytest.mark.parametrize(
    ("question", "gold", "text", "verdict"),
    [
        ("What is the date of the letter?", "June 3, 1994", "The letter is dated 06/03/1994.", "correct"),
        ("What is the date of the letter?", "3 June 1994", "03/06/1994", "correct"),
        ("What is the date of the letter?", "3 June 1994", "06/03/1994", "undecided"),
        ("¿Cuál es la fecha de vencimiento?", "05/08/2023", "La fecha es el 5/8/2023.", "correct"),
        ("Which month had the fewest visitors?", "February", "February 2020", "correct"),
        ("What is the page number?", "14", "The page number is 14 of 36.", "correct"),
        ("What percentage said so?", "7", "7 out of 10 respondents", "undecided"),
        (
            "By how much did the share grow?",
            "9 percentage points",
            "It grew by 9 points, from 11% to 20%.",
            "correct",
        ),
        ("By how much did the share grow?", "9 percentage points", "9 pp", "correct"),
    ],
)
def test_dates_parts_and_changes_that_a_question_settles(question: str, gold: str, text: str, verdict: str) -> None:
    assert judge(text, gold, question=question).verdict == verdict


@pytest.mark.parametrize(
    ("question", "gold", "text", "verdict"),
    [
        ("この標識は何を意味しますか？", "止まれ", "「止まれ」を意味します。", "correct"),
        ("傘の色は何色ですか？", "赤", "赤い傘です。", "correct"),
        ("哪个城市的人口最少？", "拉萨", "从图中可以看出，拉萨的人口最少。", "correct"),
        ("哪个城市的人口最多？", "上海", "北京的人口最多，其次是上海。", "undecided"),
    ],
)
def test_chinese_and_japanese_sentences(question: str, gold: str, text: str, verdict: str) -> None:
    assert judge(text, gold, question=question).verdict == verdict
