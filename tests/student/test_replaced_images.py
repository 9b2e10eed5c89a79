"""An image replaced in place, however late in its source, is noticed before an old result is taken for its own."""

import json
import os
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds import student_worlds as worlds

from distill.checks.context import CheckContext
from distill.checks.machine import check_replaced_images
from distill.data.images import image_files
from distill.data.source_images import compare_images
from distill.errors import StaleError
from distill.planning.outdated import outdated
from distill.recipe.recipe import Recipe
from student.evaluate import evaluate
from student.train import train

ALIGN = worlds.stage("align", "questions", train='["projector"]', steps=2)
EVAL = '[eval]\nallow_overlap = true\nmax_new_tokens = 2\nwithout_image = false\n[eval.arms]\nalign = "align"\n'


@pytest.fixture
def recipe(place: Path) -> Recipe:
    """A recipe whose training and test rows have forty images each, in folders of their own."""
    for number in range(40):
        worlds.make_image(place / "tests" / f"{number}.png", 100 + number)
    (place / "test.jsonl").write_bytes((place / "questions.jsonl").read_bytes())
    made = worlds.recipe(place, ALIGN, more=EVAL)
    text = made.path.read_text().replace(
        '"test.jsonl"\nimages_root = "images"', '"test.jsonl"\nimages_root = "tests"'
    )
    made.path.write_text(text)
    return worlds.load(made.path)


def test_a_replaced_image_of_a_training_source_makes_the_stage_stale(recipe: Recipe, place: Path) -> None:
    train(recipe, place / "run")
    worlds.make_image(place / "images" / "20.png", 777)
    with pytest.raises(StaleError, match=r"1 of the 40 .*images/20.png\n.*train --stage align --fresh`"):
        train(recipe, place / "run")
    with pytest.raises(StaleError, match="other images"):
        train(recipe, place / "run", stage="align")
    assert train(recipe, place / "run", fresh=True).counts["stages"] == 1


def test_a_replaced_image_of_an_evaluation_source_makes_the_evaluation_stale(recipe: Recipe, place: Path) -> None:
    train(recipe, place / "run")
    before = evaluate(recipe, place / "run")
    assert evaluate(recipe, place / "run") == before
    worlds.make_image(place / "tests" / "20.png", 777)
    with pytest.raises(StaleError, match=r"\[data.test\]: 1 of the 40 .*20.png\n.*`distill eval --fresh`"):
        evaluate(recipe, place / "run")
    assert evaluate(recipe, place / "run", fresh=True).counts == before.counts


def test_a_student_whose_training_images_were_replaced_is_not_evaluated(recipe: Recipe, place: Path) -> None:
    train(recipe, place / "run")
    evaluate(recipe, place / "run")
    worlds.make_image(place / "images" / "20.png", 777)
    with pytest.raises(StaleError, match=r"1 of the 40 .*images/20.png\n.*`distill train --stage align --fresh`"):
        evaluate(recipe, place / "run")
    with pytest.raises(StaleError, match=r"images/20\.png"):
        evaluate(recipe, place / "run", fresh=True)
    assert not (place / "run" / "eval.previous").exists()


def test_status_and_check_name_replaced_images(recipe: Recipe, place: Path) -> None:
    train(recipe, place / "run")
    evaluate(recipe, place / "run")
    context = CheckContext(recipe, place / "run", gpu_name=None, seconds=45.0)
    assert outdated(place / "run", recipe) == {}
    assert not [*check_replaced_images(context)]
    worlds.make_image(place / "images" / "20.png", 777)
    worlds.make_image(place / "tests" / "20.png", 777)
    found = outdated(place / "run", recipe)
    assert "1 of 40 images of [data.questions] that were looked at were replaced" in found["train align"]
    assert "`distill eval --fresh`" in found["eval"] and "tests/20.png" in found["eval"]
    stage, evaluation = check_replaced_images(context)
    assert "1 of the 40" in stage.message and "images/20.png" in stage.message
    assert "tests/20.png" in evaluation.message and "`distill eval --fresh`" in evaluation.mend


def test_images_that_are_written_again_with_equal_bytes_cost_no_training_and_are_read_once(
    recipe: Recipe, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read, read_bytes = place / "run", [], image_files.read_bytes
    train(recipe, run), evaluate(recipe, run)
    train(recipe, run), evaluate(recipe, run)  # compares what changed just before it was read

    def counted(ref: image_files.ImageRef) -> bytes:
        read.append(ref.path)
        return read_bytes(ref)

    monkeypatch.setattr(image_files, "read_bytes", counted)
    os.utime(place / "images" / "20.png"), os.utime(place / "tests" / "20.png")
    train(recipe, run), evaluate(recipe, run)
    assert read == [str(place / "images" / "20.png"), str(place / "tests" / "20.png")]
    train(recipe, run), evaluate(recipe, run)
    assert len(read) == 2


def test_a_run_of_an_earlier_version_stays_finished(recipe: Recipe, place: Path) -> None:
    train(recipe, place / "run"), evaluate(recipe, place / "run")
    for record in place.glob("run/**/*read_images.parquet"):
        record.unlink()
    worlds.make_image(place / "images" / "20.png", 777)
    assert train(recipe, place / "run").counts["stages"] == 1
    assert compare_images(recipe, place / "run" / "train" / "align") == {}


def test_an_image_of_a_shared_tar_that_is_replaced_in_place_is_noticed(recipe: Recipe, place: Path) -> None:
    """Rows name ranges of the archive, which is no file of the source."""
    archive, rows = place / "images" / "all.tar", []

    def pack() -> None:
        with tarfile.open(archive, "w") as file:
            for number in range(40):
                file.add(place / "images" / f"{number}.png", arcname=f"{number}.png")
        with tarfile.open(archive) as file:
            for row, line in enumerate((place / "questions.jsonl").read_text().splitlines()):
                found = file.getmember(f"{row}.png")
                image = {"path": "all.tar", "offset": found.offset_data, "length": found.size}
                rows.append(json.loads(line) | {"image": image})

    pack()
    (place / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    train(recipe, place / "run")
    data = bytearray(archive.read_bytes())
    data[rows[20]["image"]["offset"] + 60] ^= 1
    archive.write_bytes(data)
    with pytest.raises(StaleError, match=r"other images of \[data.questions\]: 1 of the 40 .*all.tar"):
        train(recipe, place / "run")


def test_a_trace_whose_image_in_the_dataset_is_another_one_is_counted_and_not_learned(place: Path) -> None:
    """The filter names each image by the digest of its bytes."""
    dataset = place / "run" / "filter" / "dataset" / "train" / "part-00000.parquet"
    rows = pq.read_table(dataset).to_pylist()
    for row in rows:
        row["images"][0]["path"] = f"{image_files.sha256(row['images'][0]['bytes'])[:16]}.png"
    rows[20]["images"][0]["bytes"] = rows[0]["images"][0]["bytes"]
    pq.write_table(pa.Table.from_pylist(rows), dataset)
    made = train(worlds.recipe(place, worlds.stage("reason", steps=1)), place / "run", stage="reason")
    assert made.counts["dropped_changed_image"] == 1 and made.counts["rows"] == 39
