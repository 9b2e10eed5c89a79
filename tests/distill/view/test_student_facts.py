"""What the server tells the students' page, also after files of the run were deleted."""

from pathlib import Path

from distill.artifacts.journal import write_jsonl
from distill.artifacts.layout import PREDICTIONS, RECIPE
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
