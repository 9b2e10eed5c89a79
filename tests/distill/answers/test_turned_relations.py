"""Answers that give the gold words the place of another thing of the question: Germany exceeds France."""

import pytest

from distill.answers.verdicts import judge


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("Which country exceeds Germany?", "France", "Germany exceeds France."),
        ("Which country exceeds Germany?", "France", "Germany surpasses France."),
        ("Which country did Germany attack?", "Poland", "Poland attacked Germany."),
        ("Which country attacked Germany?", "Poland", "Poland was attacked by Germany."),
        ("What is on the cup?", "book", "The cup is on the book."),
        ("What animal does the dog chase?", "cat", "The cat chases the dog."),
        ("Quel animal chasse le chien ?", "chat", "Le chien chasse le chat."),
        ("Wer jagt den Hund?", "Katze", "Der Hund jagt die Katze."),
        ("Ana o Eva, ¿quién es más baja?", "Ana", "Ana es más alta que Eva."),
    ],
)
def test_a_sentence_that_turns_the_relation_of_its_question_is_not_decided(
    question: str, gold: str, text: str
) -> None:
    assert judge(text, gold, question=question).verdict == "undecided"


@pytest.mark.parametrize(
    ("question", "gold", "text"),
    [
        ("Which country exceeds Germany?", "France", "France exceeds Germany."),
        ("Which country did Germany attack?", "Poland", "Germany attacked Poland."),
        ("Which country did Germany attack?", "Poland", "Poland was attacked by Germany."),
        ("Which country was attacked by Germany?", "Poland", "Germany attacked Poland."),
        ("Qui chasse le chien ?", "le chat", "Le chat chasse le chien."),
        ("¿Qué dice el cartel?", "alto", "El cartel dice alto."),
        ("¿Dónde duerme el perro?", "en la cama", "El perro duerme en la cama."),
        ("Где лежит собака?", "на ковре", "Собака лежит на ковре."),
        ("What is the capital of France?", "Paris", "France's capital is Paris."),
        ("What is the cup on?", "book", "The cup is on the book."),
        ("What does the sign say?", "bigger than life", "The sign says bigger than life."),
        ("What is the man holding?", "umbrella", "The man is holding an umbrella."),
    ],
)
def test_a_sentence_with_the_gold_answer_in_the_place_asked_for_is_right(question: str, gold: str, text: str) -> None:
    assert judge(text, gold, question=question).verdict == "correct"


@pytest.mark.parametrize(
    ("question", "text", "gold"),
    [
        ("Wer ist kleiner?", "Ana ist größer als Eva.", "Ana"),
        ("Quel animal est plus grand ?", "Le chat est plus petit que le chien.", "chat"),
    ],
)
def test_the_winner_of_the_opposite_comparison_in_another_language_stays_open(
    question: str, text: str, gold: str
) -> None:
    assert judge(text, gold, question=question).verdict == "undecided"
    assert judge(f"{gold}.", gold, question=question).verdict == "correct"
