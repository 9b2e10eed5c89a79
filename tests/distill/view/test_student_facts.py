"""What the server tells the students' page, also after files of the run were deleted."""

from pathlib import Path

from worlds.run_fixtures import make_image

from distill.artifacts.journal import write_jsonl
from distill.artifacts.layout import PREDICTIONS, RECIPE
from distill.data import reader
from distill.recipe.loading import load
from distill.view.student_facts import ReplyQuery, Students


def test_replies_are_shown_without_images_where_their_source_is_gone(tmp_path: Path) -> None:
    (tmp_path / RECIPE).write_text('[data.test]\nsource = "gone.jsonl"\n', encoding="utf-8")
    line = {"sample_id": "s", "question": "How many?", "gold": ["1"], "domain": "", "arm": "a", "verdict": "correct"}
    (tmp_path / "eval").mkdir()
    write_jsonl(tmp_path / "eval" / PREDICTIONS, [line])
    students = Students(tmp_path)
    for _ in range(2):
        found = students.questions(ReplyQuery(right="a"))
        assert found["total"] == 1 and found["rows"][0]["images"] == 0


def test_images_are_those_of_the_evaluation_that_was_made_last(tmp_path: Path) -> None:
    students = Students(tmp_path)
    for number, name in enumerate(("first", "second")):
        row = {"image": make_image(tmp_path, number).path, "question": f"How many, {name}?", "answer": "1"}
        write_jsonl(tmp_path / f"{name}.jsonl", [row])
        settings = f'[data.{name}]\nsource = "{name}.jsonl"\n[eval]\ndata = "{name}"\n'
        (tmp_path / RECIPE).write_text(settings, encoding="utf-8")
        (asked,) = reader.samples(load(tmp_path / RECIPE), name)
        line = {"sample_id": asked.id, "question": asked.question, "gold": ["1"], "domain": "", "arm": "a"}
        write_jsonl(tmp_path / "eval" / PREDICTIONS, [line | {"verdict": "correct"}])
        assert [row["images"] for row in students.questions(ReplyQuery())["rows"]] == [1]
