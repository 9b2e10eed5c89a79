"""The judge of an exported task, as the process that lmms-eval's task starts."""

import subprocess
import sys
from pathlib import Path

import orjson
import pyarrow.parquet as pq
from PIL import Image

from distill.recipe.loading import load
from student.evaluation import lmms_tasks

TYPE = """
from distill.answers.user_types import UserAnswerType

Backwards = UserAnswerType(name="own_backwards", same=lambda answer, gold: answer.strip()[::-1] == gold)
"""


def test_an_answer_type_of_the_users_own_judges_in_the_process_of_the_judge(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "mine.py").write_text(TYPE)
    (tmp_path / "rows.jsonl").write_bytes(orjson.dumps({"image": "a.png", "question": "q", "answer": "abc"}) + b"\n")
    (tmp_path / "r.toml").write_text('[data.test]\nsource = "rows.jsonl"\nanswer_type = "mine.py:Backwards"\n')
    (task,) = lmms_tasks.write(load(tmp_path / "r.toml"), ["test"], tmp_path / "out")
    (row,) = pq.read_table(task.folder / "questions.parquet").drop_columns("images").to_pylist()
    asked = b"".join(orjson.dumps([row, f"<think>x</think>{reply}"]) + b"\n" for reply in ("cba", "bca"))
    command = [sys.executable, "-m", "student.evaluation.lmms_judge", str(task.folder)]
    told = subprocess.run(command, input=asked, capture_output=True, check=True).stdout
    assert [orjson.loads(line)["accuracy"] for line in told.splitlines()] == [1.0, 0.0]


def test_sources_that_differ_in_signs_alone_become_tasks_of_different_names(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "rows.jsonl").write_bytes(orjson.dumps({"image": "a.png", "question": "q", "answer": "abc"}) + b"\n")
    names = ("a.b", "a-b", "c.d")
    (tmp_path / "r.toml").write_text("".join(f'[data."{name}"]\nsource = "rows.jsonl"\n' for name in names))
    tasks = lmms_tasks.write(load(tmp_path / "r.toml"), names, tmp_path / "out")
    assert tasks[2].name == "distill_r_c_d" and len({task.name for task in tasks}) == 3
    assert all(task.name.isidentifier() and (task.folder / f"{task.name}.yaml").is_file() for task in tasks)
