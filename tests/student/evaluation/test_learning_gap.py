"""Rows that a student learned, asked again, tell apart: not learned, learned and not carried over, learned."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distill.recipe.loading import load
from distill.types import Sample
from student.data.rows import TrainingRow
from student.evaluation.diagnosis import StudentFacts, diagnose
from student.evaluation.learning_gap import learning

RECIPE = """
[data.test]
source = "t.jsonl"
[student]
model = "m"
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
[eval]
max_new_tokens = 64
"""
FORTY = range(40)


def reply(number: int, *, right: bool, answer: str = "") -> dict[str, Any]:
    gold = str(number % 9)
    said = answer or (gold if right else str(number * number % 31 + 20))
    return {
        "sample_id": str(number),
        "verdict": "correct" if right else "wrong",
        "answer": said,
        "gold": [gold],
        "answer_type": "number",
        "domain": "scenes",
        "truncated": False,
        "well_formed": True,
        "reasoning": "I count.",
        "rationale_tokens": 2,
        "question": f"How many dots has number {number}?",
        "text": f"<think>I count {number} times.</think>{said}",
    }


def replies(right: int, answer: str = "") -> list[dict[str, Any]]:
    return [reply(n, right=n < right, answer="" if n < right else answer) for n in FORTY]


def rows(count: int) -> list[TrainingRow]:
    return [
        TrainingRow(
            id=str(n),
            images=(),
            question=f"How many dots has number {n}?",
            response=f"<think>I count.</think>{n % 9}",
            sample_id=str(n),
            source="traces",
        )
        for n in range(count)
    ]


def explained(folder: Path, of_test: list[Any], of_own: list[Any], **more: Any) -> dict[str, Any]:
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    right = sum(each["verdict"] == "correct" for each in of_test) / len(of_test)
    metrics = {"accuracy": right, "ci95": [right - 0.15, right + 0.15], "stage": "reason"} | more.pop("metrics", {})
    values = {"deltas": {}, "learned_tokens": 20.0, "learned": lambda: rows(30)} | more
    facts = StudentFacts(
        recipe=load(folder / "recipe.toml"),
        arm="distilled",
        metrics=metrics,
        replies=of_test,
        learned_replies=of_own,
        **values,
    )
    return {finding.name: finding for finding in diagnose(facts)}


@pytest.mark.parametrize(
    ("own", "test", "expected"),
    [
        (40, 16, "own_rows_only"),
        (34, 27, "carries_over"),
        (28, 26, "carries_over"),
        (10, 6, "not_learned"),
        (30, 27, "carries_over"),
    ],
)
def test_two_shares_say_what_was_learned(own: int, test: int, expected: str) -> None:
    assert learning(replies(own), replies(test)) == expected


def test_a_few_rows_say_nothing() -> None:
    assert learning(replies(40)[:19], replies(2)) == "unknown"


def test_a_student_that_answers_its_own_rows_alone_has_learned_them_by_heart(tmp_path: Path) -> None:
    bad = explained(tmp_path, replies(6), replies(39))["own_rows_only"]
    assert bad.kind == "fault" and bad.change.startswith("data.questions: more different questions")
    assert "39 of 40 rows that it learned (98 %), and 6 of 40 questions of the test (15 %)" in bad.problem
    assert "30 questions by heart" in bad.problem
    fair = explained(tmp_path, replies(18), replies(39))
    assert [fair["own_rows_only"].kind, fair["student"].kind] == ["open", "open"]
    many = explained(tmp_path, replies(6), replies(39), learned=lambda: rows(400))["own_rows_only"]
    assert "may not belong together" in many.problem and many.change.startswith("data.test: its columns of image")
    half = explained(tmp_path, replies(20), replies(40), learned=lambda: rows(400))["own_rows_only"]
    assert "does not generalise" in half.problem
    unseen = {"n": 40, "accuracy": 0.13, "gain": {"delta": 0.02, "ci95": [-0.1, 0.14]}}
    metrics = {"without_image": unseen}
    assert "blind" not in explained(tmp_path, replies(6), replies(39), metrics=metrics)
    assert "blind" in explained(tmp_path, replies(6), replies(6), metrics=metrics)


def test_a_student_that_does_not_answer_its_own_rows_has_not_learned(tmp_path: Path) -> None:
    early = explained(tmp_path, replies(4), replies(5), tokens_right=0.5)
    assert early["not_learned"].kind == "open", "a short training of a hard task is no fault"
    assert "learning rate, steps" in early["not_learned"].change
    fitted = explained(tmp_path, replies(4), replies(5), tokens_right=0.97)
    assert "chat template" in fitted["not_learned"].change and "97 % right tokens" in fitted["not_learned"].problem
    assert "not_learned" not in explained(tmp_path, replies(30), replies(30))


def test_another_test_explains_a_bad_result_only_of_a_student_that_learned(tmp_path: Path) -> None:
    asked = [Sample(id=str(n), images=(), question=f"Wie viele Punkte hat Bild {n}?", answers=("3",)) for n in FORTY]
    found = partial(explained, learned=lambda: rows(80), asked=asked)
    learned = found(tmp_path, replies(4), replies(39))
    differs = learned["test_question_differs"]
    assert differs.certainty == "likely" and differs.problem.startswith("distilled answers 39 of 40 rows")
    assert "own_rows_only" not in learned
    unlearned = found(tmp_path, replies(4), replies(5))
    assert "test_question_differs" not in unlearned and "not_learned" in unlearned
    unknown = found(tmp_path, replies(4), [])["test_question_differs"]
    assert unknown.problem.startswith("The test differs") and "questions with 'wie viele punkte'" in unknown.problem


def test_one_answer_to_all_is_no_matter_of_the_mix_where_the_rows_do_not_teach_it(tmp_path: Path) -> None:
    collapsed = explained(tmp_path, replies(2, "8"), replies(2, "8"))["one_answer"]
    assert collapsed.change.startswith("the training of this student: only 4 of 40 rows that it learned (10 %)")
    taught = [each | {"gold": ["8"], "verdict": "correct", "answer": "8"} for each in replies(0, "8")]
    assert explained(tmp_path, replies(2, "8"), taught)["one_answer"].change.startswith("filter.select.mix")
