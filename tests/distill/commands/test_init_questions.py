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
        ({"questions": {"question": ["What?"], "answer": ["a", "b"]}}, "is not a list of turns"),
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


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"Question_0": "Is it?", "Question_1": "Is it red?", "Question_0_Answer": "yes"},
            "several columns of questions",
        ),
        ({"question": "Which?", "options": [{"id": 1, "text": "red"}], "answer": [1]}, "seem to hold choices"),
        ({"question": "Which?", "option": "A. red; B. blue", "answer": "A"}, "seem to hold choices"),
        ({"question": "Which?", "Choice A": "red", "Choice B": "blue", "answer": "none"}, "bad_answer: 8"),
        (
            {"conversations": [{"from": "user", "value": "<img>a.jpg</img>\nWhat?"}], "image": None},
            "the text names its images in <img>",
        ),
    ],
)
def test_a_question_that_would_lack_its_choices_image_or_answer_is_refused(
    data: Path, row: dict[str, Any], told: str
) -> None:
    assert told in asked(data, [row] * 8)[0]


@pytest.mark.parametrize("empty", [None, [], "", "[]"])
def test_empty_columns_of_choices_are_no_choices(data: Path, empty: Any) -> None:
    rows = [{"question": f"What is {at}?", "options": empty, "answer": f"a{at}"} for at in range(8)]
    assert asked(data, rows)[1] == {f"What is {at}?": f"a{at}" for at in range(8)}


def test_a_text_that_is_the_same_in_all_rows_is_no_question_beside_one(data: Path) -> None:
    rows = [{"instruction": "Answer it.", "inputs": f"What is {at}?", "outputs": f"a{at}"} for at in range(8)]
    assert asked(data, rows)[1] == {f"What is {at}?": f"a{at}" for at in range(8)}
    (data.parent / "new").rename(data.parent / "old")
    assert set(asked(data, [{"question": "Name it.", "note": "?", "answer": "a"}] * 8)[1]) == {"Name it."}


def test_names_of_columns_that_are_no_utf_8_are_refused(data: Path) -> None:
    (data / "rows.csv").write_bytes("image,question,réponse\n1.jpg,What?,a\n".encode("cp1252"))
    done = distill("data", "--out", "new")
    assert done.exit_code == 2 and "the names of the columns are not valid UTF-8" in done.output


@pytest.mark.parametrize("name", ["questions.md", "all.xlsx", "all.db", "notes.txt"])
def test_images_beside_files_that_may_hold_their_questions_are_refused(data: Path, name: str) -> None:
    (data / name).write_bytes(b"What is it?")
    assert f"1 files such as {name} may be about the images" in distill("data", "--out", "new").output
