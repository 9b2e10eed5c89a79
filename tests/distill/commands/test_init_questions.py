"""`distill init` on rows that ask several questions, and on answers that the names of columns lead to."""

import json
from pathlib import Path
from typing import Any

import pytest
from init_data import distill, photos, read

from distill.recipe.loading import load


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 20 images."""
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "data")
    return tmp_path / "data"


def asked(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, dict[str, str | None]]:
    """What `init` prints for these rows, each with an image of its own, and the answer to each question."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.[Jj][Pp]*"))
    table = [{"image": name, **row} for name, row in zip(names, rows, strict=False)]
    (folder / "rows.json").write_text(json.dumps(table))
    done = distill("data", "--out", "new")
    if done.exit_code:
        return done.output, {}
    recipe = Path("new/recipe.toml")
    samples = [sample for name in load(recipe).data for sample in read(recipe, name)]
    return done.output, {sample.question: sample.answer for sample in samples}


FORMS: dict[str, Any] = {
    "lists": lambda at: {"questions": [f"What is {at}?", f"Where is {at}?"], "answers": [f"a{at}", f"b{at}"]},
    "objects": lambda at: {
        "qa_pairs": [{"question": f"{word} is {at}?", "answer": f"{letter}{at}"} for word, letter in PAIRS]
    },
    "object of lists": lambda at: {
        "questions": {"question": [f"What is {at}?", f"Where is {at}?"], "answer": [f"a{at}", f"b{at}"]}
    },
}
PAIRS = (("What", "a"), ("Where", "b"))


@pytest.mark.parametrize("form", FORMS)
def test_each_question_of_a_row_has_its_own_answer(data: Path, form: str) -> None:
    printed, answers = asked(data, [FORMS[form](at) for at in range(8)])
    assert answers == {f"{word} is {at}?": f"{letter}{at}" for at in range(8) for word, letter in PAIRS}
    assert "turns: 8 of the first 8 rows ask several questions" in printed


def test_choices_of_a_question_within_a_row_are_its_own(data: Path) -> None:
    pairs = [{"question": f"{word}?", "choices": [word, "no"], "answer": word} for word in ("red", "blue")]
    _, answers = asked(data, [{"qa_pairs": pairs}] * 8)
    assert answers == {"red?\nA. red\nB. no": "A", "blue?\nA. blue\nB. no": "A"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"questions": ["What?", "Where?"], "answers": ["a", "b", "c"]},
            "2 questions need a list",
        ),
        ({"questions": ["What?", "Where?"], "answer": "a"}, "2 questions need a list"),
        ({"questions": [{"text": "What?", "answer": "a"}]}, "an object without a text `question`"),
        ({"questions": {"question": ["What?"], "answer": ["a", "b"]}}, "is not a list of turns"),
        (
            {"qa_pairs": [{"question": f"{at}?", "image": f"{at}.jpg", "answer": "a"} for at in range(2)]},
            "questions about different images",
        ),
    ],
)
def test_questions_whose_answers_or_images_are_not_clear_are_refused(
    data: Path, row: dict[str, Any], reason: str
) -> None:
    assert reason in asked(data, [row] * 8)[0]


def test_answers_of_a_row_are_not_those_of_each_of_its_questions(data: Path) -> None:
    row = {"qa_pairs": [{"question": "What?"}, {"question": "Where?"}], "answers": ["a", "b"]}
    assert asked(data, [row] * 8)[1] == {"What?": None, "Where?": None}


def test_an_answer_is_found_by_the_name_of_its_question_and_is_no_choice(data: Path) -> None:
    rows = [{"note_a": "x", "reason_q": f"What is {at}?", "reason_a": f"a{at}"} for at in range(8)]
    assert asked(data, rows)[1] == {f"What is {at}?": f"a{at}" for at in range(8)}
    choices = [{"q": f"What is {at}?", "a": "red", "b": "blue", "right": "b"} for at in range(8)]
    (data.parent / "new").rename(data.parent / "old")
    printed, answers = asked(data, choices)
    assert "no column of right answers" in printed and set(answers.values()) == {None}
