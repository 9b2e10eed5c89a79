"""What is odd about a student's replies and its test is named where the result is bad, and no rule has to know it."""

import random
from pathlib import Path
from typing import Any

from distill.recipe.loading import load
from distill.types import Sample
from student.data.rows import TrainingRow
from student.evaluation import odd_replies
from student.evaluation.diagnosis import StudentFacts, diagnose

RECIPE = '[data.test]\nsource = "t.jsonl"\n[student]\nmodel = "m"\n[[stages]]\nname = "reason"\ndata = "traces"\n'
GOLDS = [str(random.Random(n).randrange(12)) for n in range(60)]


def facts(folder: Path, replies: list[dict[str, Any]], accuracy: float, **more: Any) -> StudentFacts:
    (folder / "recipe.toml").write_text(f'{RECIPE}train = ["language"]\n[eval]\nmax_new_tokens = 64\n')
    metrics = {"accuracy": accuracy, "ci95": [accuracy - 0.1, accuracy + 0.1], "stage": "reason"}
    values = {"deltas": {}, "learned_tokens": 20.0} | more
    return StudentFacts(
        recipe=load(folder / "recipe.toml"), arm="distilled", metrics=metrics, replies=replies, **values
    )


def reply(number: int, answer: str, gold: str) -> dict[str, Any]:
    return {
        "sample_id": str(number),
        "verdict": "correct" if answer == gold else "wrong",
        "answer": answer,
        "gold": [gold],
        "answer_type": "number",
        "domain": "scenes",
        "truncated": False,
        "well_formed": True,
        "reasoning": "I count.",
        "rationale_tokens": 2,
        "question": f"How many dots has number {number}?",
        "text": f"<think>I count {number} times.</think>{answer}",
    }


def test_gold_answers_that_moved_are_named_and_right_replies_are_no_fault(tmp_path: Path) -> None:
    moved = [reply(n, gold, GOLDS[n - 5]) for n, gold in enumerate(GOLDS)]
    (found, *_) = diagnose(facts(tmp_path, moved, 0.1))
    assert found.name == "gold_shifted" and "the row 5 rows further on" in found.problem
    right = [reply(n, gold, gold) for n, gold in enumerate(GOLDS)]
    assert [finding.name for finding in diagnose(facts(tmp_path, right, 0.8))] == ["student"]


def test_a_test_that_is_asked_in_other_words_than_were_learned_is_named(tmp_path: Path) -> None:
    learned = [
        TrainingRow(id=str(n), images=(), question=f"How many dots has number {n}?", response=f"<think>I</think>{n}")
        for n in range(60)
    ]
    asked = [
        Sample(id=str(n), images=(), question=f"Wie viele Punkte hat Bild {n}?", answers=("3",)) for n in range(60)
    ]
    wrong = [reply(n, str(n), str(n * n + 3)) for n in range(60)]
    found = diagnose(facts(tmp_path, wrong, 0.1, learned=lambda: learned, asked=asked))
    (differs,) = [finding for finding in found if finding.name == "test_question_differs"]
    assert "the share of the question's words that are known" in differs.problem


def test_a_student_that_replies_as_the_one_before_it_is_the_same() -> None:
    replies = [reply(n, gold, gold) for n, gold in enumerate(GOLDS)]
    (found,) = odd_replies.equal_arms("distilled", replies, {"untouched": replies})
    assert found.name == "same_student" and "those of untouched" in found.problem
    other = [reply(n + 1, gold, gold) for n, gold in enumerate(GOLDS)]
    assert list(odd_replies.equal_arms("distilled", replies, {"untouched": other})) == []
