"""Numbers in words of other languages, marks of a final answer, and what may be left open, one promise at a time."""

import pytest

from distill.answers.final_answer import final_answer
from distill.answers.verdicts import judge

CORRECT, WRONG, UNDECIDED = "correct", "wrong", "undecided"

WORDS_FROM_THREE = {
    # Smaller ones are articles or English words in some of these languages, as elf and once are.
    "Arabic": "ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة",
    "Dutch": "drie vier vijf zes zeven acht negen tien",
    "French": "trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    "German": "drei vier fünf sechs sieben acht neun zehn",
    "Hindi": "तीन चार पाँच छह सात आठ नौ दस ग्यारह बारह तेरह चौदह पंद्रह सोलह सत्रह अठारह उन्नीस बीस",
    "Korean": "셋 넷 다섯 여섯 일곱 여덟 아홉 열",
    "Italian": "tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici",
    "Portuguese": "três quatro cinco seis sete oito nove dez onze doze treze catorze quinze",
    "Russian": "три четыре пять шесть семь восемь девять десять одиннадцать двенадцать тринадцать",
    "Spanish": "tres cuatro cinco seis siete ocho nueve diez",
}
NUMBERS_IN_WORDS = {
    "anderthalb": "1.5",
    "zweieinhalb": "2.5",
    "minus drei": "-3",
    "moins trois": "-3",
    "trois quarts": "0.75",
    "tres cuartos": "0.75",
    "un tiers": "1/3",
    "dos tercios": "2/3",
    "zwei Fünftel": "0.4",
    "deux et demi": "2.5",
    "dos millones y medio": "2500000",
    "डेढ़": "1.5",
    "ढाई": "2.5",
    "साढ़े तीन": "3.5",
    "सवा दो": "2.25",
    "पौने दो": "1.75",
    "दो सौ पाँच": "205",
    "दस हज़ार": "10000",
    "एक लाख": "100000",
    "दो करोड़": "20000000",
    "पांच": "5",
    "छः": "6",
    "छे": "6",
    "पन्द्रह": "15",
    "अठाईस": "28",
    "مئتان": "200",
    "مائتان": "200",
    "الفان": "2000",
    "مائة وخمسة": "105",
    "خمسة وعشرون": "25",
    "عشرين": "20",
    "تسعون": "90",
    "ثلاثة آلاف": "3000",
    "مليون": "1000000",
    "احدى": "1",
    "اثنتان": "2",
    "ثماني": "8",
    "одна": "1",
    "две": "2",
    "тридцать": "30",
    "сорок два": "42",
    "пятьдесят": "50",
    "шестьдесят семь": "67",
    "восемьдесят": "80",
    "девяносто": "90",
    "сто пять": "105",
    "trinta e dois": "32",
    "honderd": "100",
}


def test_each_number_word_of_a_language_is_its_number_and_not_the_next_one() -> None:
    wrong = []
    for language, text in WORDS_FROM_THREE.items():
        for number, word in enumerate(text.split(), start=3):
            if judge(word, str(number), "number").verdict != CORRECT:
                wrong.append((language, word, number))
            if judge(word, str(number + 1), "number").verdict != WRONG:
                wrong.append((language, word, number + 1))
    assert not wrong


def test_halves_parts_scales_and_other_spellings_of_numbers_have_their_values() -> None:
    wrong = [(words, gold) for words, gold in NUMBERS_IN_WORDS.items() if judge(words, gold).verdict != CORRECT]
    assert not wrong


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("7", False),
        ("\\boxed{7}", True),
        ("<answer>7</answer>", True),
        ("<answer>\\boxed{7}</answer>", True),
        ("3, then 4.\n#### 7", True),
        ("The answer is 7.", True),
        ('{"answer": 7}', True),
        ("La respuesta es 7", True),
    ],
)
def test_a_final_answer_says_whether_the_text_marks_it(text: str, marked: bool) -> None:
    found = final_answer(text)
    assert (found.text, found.marked) == ("7", marked)


@pytest.mark.parametrize(
    ("prediction", "gold", "kind", "verdict"),
    [
        # Of the numbers of a sentence, one between 1000 and 2999 is its year.
        ("In 1000 there were 5 bars.", "1000", "year", CORRECT),
        ("In 2999 there were 5 bars.", "2999", "year", CORRECT),
        ("In 999 there were 5 bars.", "999", "year", UNDECIDED),
        ("In 3000 there were 5 bars.", "3000", "year", UNDECIDED),
        # A comma may group thousands; where it cannot, it begins the decimals.
        ("0,75", "0.75", "number", CORRECT),
        ("1234,5", "1234.5", "number", CORRECT),
        ("1234,567", "1234.567", "number", UNDECIDED),
        ("123,4567", "123.4567", "number", UNDECIDED),
        ("1234,5678", "1234.5678", "number", CORRECT),
        # A ratio is a number only where it is written as one.
        ("3/4", "0.75", "ratio", CORRECT),
        ("3:4", "0.75", "ratio", CORRECT),
        ("4:3", "0.75", "ratio", WRONG),
        ("0.75", "3:4", "ratio", UNDECIDED),
        ("3", "3:4", "ratio", UNDECIDED),
        ("2", "3:4", "ratio", WRONG),
        # A list in one line of numbers, or a span of them.
        ("3 4 5", "3, 4, 5", "list", CORRECT),
        ("3 4 6", "3, 4, 5", "list", WRONG),
        ("3-5", "3, 4, 5", "list", UNDECIDED),
        ("[1, 5)", "(1, 5]", "list", WRONG),
        # Units of other writings.
        ("6公里", "6 km", None, CORRECT),
        ("6キロメートル", "6 km", None, CORRECT),
        ("6キロメートル", "6 m", None, WRONG),
        # One time in zones of one name, and in others.
        ("3 pm PT", "3 pm PST", "time", CORRECT),
        ("3 pm ET", "3 pm PT", "time", WRONG),
        ("3:15", "15:15", "time", UNDECIDED),
        ("3:15", "15:16", "time", WRONG),
        ("halb vier", "3:30", "time", CORRECT),
        ("Viertel nach drei", "3:15", "time", CORRECT),
        ("Viertel vor drei", "2:45", "time", CORRECT),
        ("trois heures moins le quart", "2:45", "time", CORRECT),
        ("las tres y media", "3:30", "time", CORRECT),
        ("下午3点半", "15:30", "time", CORRECT),
        # Dates in the order of each language, and what a date leaves open.
        ("5 March 2010", "2010-03-05", "date", CORRECT),
        ("March 5th, 2010", "2010-03-05", "date", CORRECT),
        ("5. März 2010", "2010-03-05", "date", CORRECT),
        ("March 6, 2010", "2010-03-05", "date", WRONG),
        ("March 2010", "2010-03-05", "date", UNDECIDED),
        # The letter of a choice, or the words of its option.
        ("(b) mitosis", "B", "choice", CORRECT),
        ("A or B", "B", "choice", UNDECIDED),
        ("C", "B", "choice", WRONG),
        # The same years, and the same person.
        ("2010-14", "2010-2014", None, CORRECT),
        ("2010-15", "2010-2014", None, WRONG),
        ("Smith, John", "John Smith", "text", CORRECT),
        ("Dr. John Smith", "John Smith, M.D.", "text", CORRECT),
    ],
)
def test_what_is_decided_and_what_is_left_open(prediction: str, gold: str, kind: str | None, verdict: str) -> None:
    assert judge(prediction, gold, kind).verdict == verdict


@pytest.mark.parametrize(
    ("text", "gold", "verdict"),
    [
        ("The UK, at 18%.", "United Kingdom", "correct"),
        ("It is the U.S.", "United States", "correct"),
        ("It's the United States of America.", "USA", "correct"),
        ("It is the Republic of Korea.", "South Korea", "correct"),
        ("It's the UK. Germany is third.", "United Kingdom", "correct"),
        ("It is the Democratic People's Republic of Korea.", "South Korea", "undecided"),
        ("It is the People's Republic of China.", "Taiwan", "undecided"),
        ("The Democratic Republic of the Congo", "Republic of the Congo", "wrong"),
        ("It is New Britain.", "UK", "wrong"),
        ("He told us about it.", "United States", "wrong"),
    ],
)
def test_a_country_has_its_other_names_inside_a_sentence(text: str, gold: str, verdict: str) -> None:
    assert judge(text, gold, question="Which country had the second largest share?").verdict == verdict


@pytest.mark.parametrize("name", ["Republic of India", "Hindustan"])
def test_a_country_has_all_of_its_listed_names(name: str) -> None:
    assert judge(name, "India").verdict == judge("India", name).verdict == CORRECT


def test_a_unit_in_another_language_is_not_another_word() -> None:
    assert judge("hours", "horas", question="¿En qué unidad se mide?").verdict == "undecided"


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("MRI", "The modality is magnetic resonance imaging (MRI)."),
        ("Magnetic resonance imaging", "The imaging modality used was MRI (Magnetic Resonance Imaging)."),
        ("CT", "This is a computed tomography (CT) scan."),
        ("H&E", "The stain is hematoxylin and eosin (H&E)."),
        ("WHO", "The report is of the World Health Organization (WHO)."),
    ],
)
def test_a_name_with_its_initials_is_one_name(gold: str, said: str) -> None:
    assert judge(said, gold, question="What imaging modality was used?").verdict == "correct"


def test_initials_that_the_name_does_not_spell_are_another_name() -> None:
    question = "What imaging modality was used?"
    assert judge("The modality is computed tomography (MRI).", "CT", question=question).verdict != "correct"
    assert judge("The modality is computed tomography (CT), not MRI.", "MRI", question=question).verdict == "wrong"


def test_words_in_quotes_before_one_noun_are_what_is_named() -> None:
    question, gold = "What does the green bar represent?", "Very favorable"
    assert judge('The green bar represents "Very favorable" opinions.', gold, question=question).verdict == "correct"
    denied = 'The green bar does not represent "Very favorable" opinions.'
    assert judge(denied, gold, question=question).verdict == "undecided"
    assert judge('"Spain" loses', "Spain", question="Who wins?").verdict != "correct"
