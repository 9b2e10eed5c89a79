"""Questions about several images, with the turns before them, through all four verbs."""

from pathlib import Path

import orjson
import pyarrow.parquet as pq
from servers import stub_server
from worlds import student_worlds

from distill.recipe.loading import load
from filters.apply import apply
from student.evaluate import evaluate
from student.train import train
from teacher.generate import generate

RECIPE = """
[generate]
patience_s = 2.0
[data.questions]
source = "talks.jsonl"
images_root = "images"
format = "llava"
earlier_turns = true
[data.test]
source = "test.jsonl"
images_root = "images"
format = "llava"
earlier_turns = true
[[teachers]]
name = "stub"
model = "stub"
base_url = "{url}"
images = "base64"
[filter]
signals = ["answer", "format"]
[[filter.rules]]
name = "incomplete"
drop = "outcome <> 'complete'"
[student]
vision = "vision"
language = "language"
pixel_shuffle = 2
dtype = "float32"
{stage}
[eval]
data = "test"
max_new_tokens = 4
arms = {{ first = "first" }}
"""


def talk(folder: Path, number: int) -> bytes:
    """A row with two images and two turns."""
    names = [
        student_worlds.make_image(folder / "images" / f"{number}-{place}.png", 2 * number + place).name
        for place in range(2)
    ]
    said = [
        ("human", "<image>\n<image>\nHow many red squares?"),
        ("gpt", "2"),
        ("human", f"And row {number}?"),
        ("gpt", "3"),
    ]
    return orjson.dumps({"images": names, "conversations": [{"from": who, "value": text} for who, text in said]})


def test_two_images_and_two_turns_reach_the_teacher_the_dataset_the_student_and_its_evaluation(
    tmp_path: Path,
) -> None:
    student_worlds.parts(tmp_path)
    (tmp_path / "images").mkdir()
    for name, numbers in (("talks", range(6)), ("test", range(6, 8))):
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(talk(tmp_path, number) for number in numbers))
    with stub_server.serve(words=4) as url:
        text = RECIPE.format(url=url, stage=student_worlds.stage("first", steps=2))
        (tmp_path / "recipe.toml").write_text(text)
        recipe, run = load(tmp_path / "recipe.toml"), tmp_path / "run"
        assert generate(recipe, run).counts["complete"] == 12
    apply(recipe, run)
    rows = [
        row
        for part in (run / "filter" / "dataset" / "train").glob("*.parquet")
        for row in pq.read_table(part).to_pylist()
    ]
    assert len(rows) == 12 and {len(row["images"]) for row in rows} == {2}
    asked = {row["messages"][0]["content"] for row in rows}
    assert "User: How many red squares?\nAssistant: 2\nUser: And row 3?" in asked
    train(recipe, run)
    evaluate(recipe, run)
    predictions = [
        orjson.loads(line) for line in next(run.glob("eval/**/predictions.jsonl")).read_bytes().splitlines()
    ]
    assert len(predictions) == 4
