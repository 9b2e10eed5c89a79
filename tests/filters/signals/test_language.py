import subprocess
import sys
import time
from pathlib import Path

import pytest
from worlds.run_fixtures import sample, trace

from filters.signals.families.language import Guess, Language, guess_language, main_script
from filters.text.scripts import latin_alone, scripts

ROOT = Path(__file__).resolve().parents[3]
ENGLISH = "How many apples are there in the chart of this year?"


def measured(reasoning, question=ENGLISH, *answers, **meta):
    (row,) = Language().measure(sample(question, *answers, **meta), [trace(reasoning=reasoning)])
    return row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("six apples", {"latin": 9}),
        ("12 + 3 = 15%", {}),
        ("café", {"latin": 4}),
        ("ｆｕｌｌ", {"latin": 4}),
        ("图表", {"han": 6}),
        ("яблоко", {"cyrillic": 6}),
        ("りんご", {"japanese": 6}),
        ("図のりんごは", {"japanese": 13}),
        ("사과", {"hangul": 4}),
        ("Δx = α + β, μ, π", {"latin": 1}),
        ("το μήλο είναι", {"greek": 9}),
        ("α,β,γ,δ", {}),
        ("\ud800 bad", {"latin": 3}),
        ("𝑥𝐴", {}),
    ],
)
def test_letters_are_counted_by_script(text, expected):
    assert scripts(text) == expected


def test_a_rationale_that_turns_to_chinese_is_mixed():
    row = measured(
        "The red bar is at six and the blue one at eight. 等等，让我再看一下图表。 So the sum is fourteen."
    )
    assert row["language_scripts"] == "latin+han"
    assert 0.3 < row["language_mix"] < 0.6
    assert not row["language_switch"]
    assert row["language_state"] == "ok"


def test_the_position_where_a_rationale_changes_its_language_is_recorded():
    before = "The red bar is at six and the blue one at eight."
    row = measured(f"{before} 等等，让我再看一下图表。")
    assert row["language_switch_at"] == (len(before) + 1) / (len(before) + 13)
    row = measured(f"{before} La barre de gauche est la plus haute, donc la réponse est cinq. So it is five.")
    assert 0.4 < row["language_mix"] < 0.6
    assert 0.3 < row["language_switch_at"] < 0.5
    row = measured("图中的数值是5，so the answer must be Norway then，所以答案是挪威。", "图中哪个国家的数值最高？")
    assert row["language_switch_at"] == 8 / 50
    assert measured(before)["language_switch_at"] is None


@pytest.mark.parametrize(
    "text",
    [
        "The word “de la barre est la plus haute” is on the sign, and that is what it says.",
        "The sign over the door says de la mer et du soleil, and it is red.",
        "The score is 6 to 8 for Al Ain in the final of 2019, and that is all there is.",
    ],
)
def test_a_few_foreign_words_are_no_other_language(text):
    assert measured(text)["language_mix"] == 0


def test_a_rationale_in_another_script_than_its_question_is_a_switch():
    row = measured("首先看图表，红色柱子是6，蓝色柱子是8，所以答案是14。")
    assert row["language_switch"] and row["language_differs"] and row["language"] == "zh"
    back = measured("First I look at the red bar, which is at 6.", "图中有多少个苹果？")
    assert back["language_switch"] and back["language"] == "en"


def test_a_chinese_rationale_of_a_japanese_question_is_a_switch():
    assert measured("首先看图表，红色柱子是6。", "グラフの中で一番高い棒はどれですか？")["language_switch"]


@pytest.mark.parametrize(
    ("reasoning", "known"),
    [
        ("The bar called “销售额” reaches 5, more than 「利润」 and `成本` do.", {}),
        ("The bar of 销售额 reaches 5, which is the most of all.", {"question": "What is 销售额 in this chart?"}),
        ("The bar of 销售额 reaches 5, which is the most of all.", {"answers": ("销售额",)}),
        ("The bar of 销售额 reaches 5, which is the most of all.", {"bars": {"销售额": 5}}),
        ("With Δ = 5 and $\\text{销售额} = 6$ the ratio is α.", {}),
        ("Il y a 5 pommes à côté de l'arbre, déjà mûres.", {"question": "Combien de pommes y a-t-il dans l'arbre ?"}),
    ],
)
def test_labels_quotes_and_formulas_do_not_make_a_text_mixed(reasoning, known):
    question, answers = known.pop("question", ENGLISH), known.pop("answers", ())
    row = measured(reasoning, question, *answers, **known)
    assert row["language_mix"] == 0 and not row["language_switch"]


def test_only_a_whole_word_of_the_question_is_known_where_vowels_are_marks():
    text = "The picture shows the word {} near the door and a window of the house."
    words = {word: measured(text.format(word), "Which word of दिन and रात is it?") for word in ("दिन", "दान")}
    assert words["दिन"]["language_mix"] == 0 < words["दान"]["language_mix"]


def test_latin_names_in_a_chinese_text_are_no_mix_but_a_phrase_is():
    question = "图中哪个国家的数值最高？"
    assert measured("图中 Norway 的 GDP 是 5 km，比 Apple Inc 高，所以答案是挪威。", question)["language_mix"] == 0
    assert (
        measured("图中的数值是5，so the answer must be Norway then，所以答案是挪威。", question)["language_mix"] > 0.3
    )


def test_the_language_of_short_texts_is_right_and_names_and_numbers_have_none():
    rows = (ROOT / "tests/data/short_texts_by_language.tsv").read_text(encoding="utf-8").splitlines()
    expected = {text: code for code, text in (row.split("\t") for row in rows)}
    assert len(expected) == 61 and len({*expected.values()}) == 41
    assert {text: guess_language(text, main_script(scripts(text))).language for text in expected} == expected


def test_the_language_is_guessed_without_a_network():
    code = (
        "import socket; socket.socket.connect = socket.getaddrinfo = None\n"
        "from filters.signals.families.language import guess_language\n"
        "print(guess_language('Der Balken auf der linken Seite ist der höchste.', 'latin').language)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "de\n", done.stderr


def test_close_languages_are_not_surely_different():
    indonesian = Guess("id", {"id": 0.54, "ms": 0.31})
    assert not indonesian.excludes(Guess("ms", {"ms": 0.9, "id": 0.06}))
    assert indonesian.excludes(Guess("en", {"en": 0.97}))


def test_a_sentence_in_a_language_without_a_word_list_is_seen():
    row = measured("The red bar is at six. Pöydän ympärillä on neljä tuolia, joten vastaus on neljä. So it is four.")
    assert row["language"] == "fi" or row["language_mix"] > 0.4


def test_another_language_in_the_same_script_is_reported_only_when_both_are_certain():
    french = "Combien de barres sont dans le graphique de cette année ?"
    assert measured("The chart shows the bars and there are five of them.", french)["language_differs"] is True
    assert (
        measured("Le graphique montre les barres et il y en a cinq, donc cinq.", french)["language_differs"] is False
    )
    assert measured("red 6, blue 8: 6 + 8 = 14.", french)["language_differs"] is None
    assert measured("The chart shows the bars and there are five of them.", "Total?")["language_differs"] is None


def test_without_letters_nothing_is_said():
    assert measured("6 + 8 = 14") == {"language_state": "undecidable"}
    assert measured(" \n") == {"language_state": "not_applicable"}


@pytest.mark.parametrize(
    "text",
    [
        '"' * 1_000_000,
        "le la and the. " * 70_000,
        "等a " * 350_000,
        "$" * 1_000_000,
        "'a " * 330_000,
        "\\[" * 500_000,
    ],
)
@pytest.mark.timing
def test_a_million_characters_take_no_longer_than_a_few_seconds(text):
    begun = time.process_time()
    measured(text)
    assert time.process_time() - begun < 6


def test_signs_that_look_like_letters_are_of_no_script():
    assert dict(scripts("El 5º día, la 3ª vez, 20 Ω, xⁿ")) == {"latin": 11}


def test_no_character_of_a_text_of_latin_alone_counts_as_another_script():
    alone = "".join(filter(latin_alone, map(chr, range(0x110000))))
    assert len(alone) > 1000
    assert scripts(alone).keys() == {"latin"}


@pytest.mark.parametrize("character", ["一", "龥", "가", "힣", "А", "я", "ё", "ヶ", "㐀"])
def test_a_long_run_of_letters_counts_as_often_as_each_of_them(character):
    (script, length), *others = scripts(character).items()
    assert not others
    assert scripts(character * 50 + " x") == {script: 50 * length, "latin": 1}
