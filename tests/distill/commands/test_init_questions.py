"""`distill init` on rows that ask several questions, and on answers that the names of columns lead to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from worlds.init_data import distill, photos, read

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
    assert "columns 'a', 'b' seem to hold choices" in printed and not answers


LETTERED = {"A": "red", "B": "blue", "C": "green"}


@pytest.mark.parametrize(
    "row",
    [
        LETTERED,
        {**LETTERED, "right": "B"},
        {"(A)": "red", "(B)": "blue", "answer": "B"},
        {"A.": "red", "B.": "blue"},
        {"Answer A": "red", "Answer B": "blue"},
        {"A": 3, "B": 4, "points": 2},
    ],
    ids=["no answer", "an answer of another name", "brackets", "points", "a word before", "numbers"],
)
def test_lettered_columns_are_not_left_out_of_a_question_without_an_answer_among_them(
    data: Path, row: dict[str, Any]
) -> None:
    printed, answers = asked(data, [{"question": f"What is {at}?", **row} for at in range(8)])
    first = next(iter(row))
    assert f"columns {first!r}, " in printed and "seem to hold choices" in printed and not answers
    assert "--column answer=NAME" in printed and "option_a" in printed


def test_a_missing_answer_does_not_cost_the_others_their_lettered_choices(data: Path) -> None:
    rows = [{"question": f"What is {at}?", **LETTERED, "answer": "B" if at else None} for at in range(8)]
    shown = {question.partition("\n")[2]: answer for question, answer in asked(data, rows)[1].items()}
    assert shown == {"A. red\nB. blue\nC. green": "B"}


@pytest.mark.parametrize("others", ["none of them", "(B)", ""])
def test_lettered_columns_are_not_left_out_where_answers_name_only_some_of_them(data: Path, others: str) -> None:
    rows = [
        {
            "question": f"What is {at}?",
            **LETTERED,
            "answer": ("blue" if at % 2 else "purple") if others and at else others,
        }
        for at in range(8)
    ]
    printed, answers = asked(data, rows)
    assert "columns 'A', 'B', 'C' seem to hold choices" in printed and not answers


def test_lettered_columns_beside_answers_that_are_no_choices_are_measures(data: Path) -> None:
    rows = [{"question": f"What is {at}?", "A": 1.5, "B": 2.5, "answer": f"a{at}"} for at in range(8)]
    assert asked(data, rows)[1] == {f"What is {at}?": f"a{at}" for at in range(8)}


def exam(data: Path, key: str, columns: str = "A,B,C") -> None:
    names = sorted(str(path.relative_to(data)) for path in data.rglob("*.[Jj][Pp]*"))[:8]
    lines = [f"{100 + at},{name},What is {at}?,red,blue,green" for at, name in enumerate(names)]
    (data / "exam_2025.csv").write_text("\n".join([f"nr,image,question,{columns}", *lines]))
    (data / key).write_text("\n".join(["nr,solution", *(f"{107 - at},{'ABC'[at % 3]}" for at in range(8))]))


def test_letters_in_a_file_of_the_same_numbers_are_the_answers(data: Path) -> None:
    exam(data, "key_2025.csv")
    done = distill("data", "--out", "new")
    assert done.exit_code == 0 and "joined: key_2025 by 'nr'" in done.output, done.output
    recipe = Path("new/recipe.toml")
    samples = [sample for name in load(recipe).data for sample in read(recipe, name)]
    shown = {sample.question: sample.answer for sample in samples}
    assert shown == {f"What is {at}?\nA. red\nB. blue\nC. green": "ABC"[(7 - at) % 3] for at in range(8)}


def of_another_year(data: Path) -> None:
    exam(data, "key_2024.csv")


def with_a_number_missing(data: Path) -> None:
    exam(data, "key.csv")
    (data / "key.csv").write_text((data / "key.csv").read_text().rpartition("\n")[0])


def with_more_numbers(data: Path) -> None:
    exam(data, "key.csv")
    (data / "key.csv").write_text((data / "key.csv").read_text() + "\n108,A")


def with_a_number_twice(data: Path) -> None:
    exam(data, "key.csv")
    (data / "key.csv").write_text((data / "key.csv").read_text() + "\n107,B")


def with_a_letter_of_no_choice(data: Path) -> None:
    exam(data, "key.csv")
    (data / "key.csv").write_text((data / "key.csv").read_text().replace("107,A", "107,E"))


def two_keys(data: Path) -> None:
    exam(data, "key.csv")
    (data / "other.csv").write_text((data / "key.csv").read_text().replace("107,A", "107,B"))


@pytest.mark.parametrize(
    "change",
    [
        of_another_year,
        with_a_number_missing,
        with_more_numbers,
        with_a_number_twice,
        with_a_letter_of_no_choice,
        two_keys,
    ],
    ids=lambda change: change.__name__,
)
def test_letters_that_may_belong_to_other_questions_are_refused(data: Path, change: Callable[[Path], None]) -> None:
    change(data)
    done = distill("data", "--out", "new")
    assert done.exit_code and "columns 'A', 'B', 'C' seem to hold choices" in done.output, done.output


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
    assert f"1 file such as {name} may be about the images" in distill("data", "--out", "new").output
