"""Answers that repeat their question, and ranges that write their unit once or twice."""

import pytest

from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("¿Qué ciudad tiene la temperatura más baja?", "Burgos", "La temperatura más baja es la de Burgos."),
        ("Quel pays arrive en tête du classement ?", "les Pays-Bas", "Les Pays-Bas arrivent en tête."),
        ("Quel pays affiche le taux le plus élevé ?", "Allemagne", "C'est l'Allemagne, avec 42 %."),
        ("Qual é a cor do chapéu?", "preto", "O chapéu é preto."),
        ("Какой город изображён?", "Москва", "Это Москва."),
    ],
)
def test_a_sentence_with_only_the_words_of_its_question_and_the_gold_answer_states_it(
    question: str, gold: str, text: str
) -> None:
    assert judge(text, gold, question=question).verdict == "correct"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("Which country exceeds Germany?", "France", "Germany exceeds France."),
        ("Which country did Germany attack?", "Poland", "Poland attacked Germany."),
        ("Which line is longer, red or blue?", "blue", "Red is longer than blue."),
        ("Which city has the lowest value?", "Lima", "The lowest value is not Lima."),
        ("Quel animal chasse le chien ?", "chat", "Le chien chasse le chat."),
        ("Who is pushed by the girl?", "boy", "The boy pushes the girl."),
        ("¿Quién es más baja que Eva?", "Ana", "Ana es más alta que Eva."),
        ("What is next to the cat?", "dog", "The cat is next to the dog bed."),
    ],
)
def test_a_sentence_that_turns_denies_or_adds_to_its_question_restates_nothing(
    question: str, gold: str, text: str
) -> None:
    assert judge(text, gold, question=question).verdict != "correct"


@pytest.mark.parametrize(
    ("gold", "text", "verdict"),
    [
        ("2-8 °C", "2 °C to 8 °C", "correct"),
        ("2-8 °C", "between 2 and 8 degrees Celsius", "correct"),
        ("10%-20%", "10-20%", "correct"),
        ("2-8 °C", "2 °F to 8 °C", "undecided"),
        ("2-3 m", "2 to 3 km", "undecided"),
        ("2-8 °C", "not 2 to 8 °C", "undecided"),
    ],
)
def test_the_unit_of_a_range_counts_at_one_end_or_at_both(gold: str, text: str, verdict: str) -> None:
    assert judge(text, gold).verdict == verdict
