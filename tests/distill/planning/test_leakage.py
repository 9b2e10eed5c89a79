"""Training data in evaluation data: counted over whole sources, refused before anything is paid or trained."""

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner
from worlds.run_fixtures import make_image

import distill
from distill import cli
from distill.artifacts.integrity import dataset_digest
from distill.artifacts.manifest import Manifest
from distill.errors import DataError, DistillError
from distill.planning import leakage
from distill.planning.compared_sources import evaluation_sources, training_sources
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe

RECIPE = """
[data.questions]
source = "questions.jsonl"
[data.test]
source = "test.jsonl"
[data.held]
source = "held.jsonl"
[data.captions]
source = "captions.jsonl"
[[teachers]]
name = "only"
model = "nobody/nothing"
backend = "embedded"
"""
STAGES = """
[student]
model = "nobody/nothing"
[[stages]]
name = "align"
data = "captions"
train = ["projector"]
[[stages]]
name = "reason"
data = "traces"
train = ["language"]
"""


def rows(folder: Path, images: range, *asked: str) -> list[dict[str, str]]:
    """Every question about every image."""
    names = [Path(make_image(folder / "images", number, 48).path) for number in images]
    return [
        {"image": f"images/{name.name}", "question": question, "answer": str(number)}
        for name, number in zip(names, images, strict=True)
        for question in asked
    ]


def bars(*heights: int) -> Image.Image:
    image = Image.new("RGB", (256, 192), "white")
    draw = ImageDraw.Draw(image)
    for place, height in enumerate(heights):
        draw.rectangle((20 + 55 * place, 180 - 20 * height, 60 + 55 * place, 180), fill=(200, 60 * place, 90))
    return image


def world(folder: Path, text: str = "", **sources: list[dict[str, str]]) -> Recipe:
    """A recipe with these sources; the others do not exist."""
    for name, content in sources.items():
        (folder / f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in content))
    path = folder / "recipe.toml"
    path.write_text(RECIPE + text)
    return load(path)


TWO = ("How many dots are left of the tallest tower?", "What colour is the smallest square?")


@pytest.fixture
def by_row(tmp_path: Path) -> Recipe:
    """Two questions on each of eight images; the test set holds the second one of two images."""
    everything = rows(tmp_path, range(8), *TWO)
    test = [everything[1], everything[3]]
    questions = [row for row in everything if row not in test]
    return world(tmp_path, questions=[*questions, everything[3]], test=test)


def test_a_split_by_row_is_counted_by_image_and_by_question(by_row: Recipe) -> None:
    (found,) = leakage.measure_leakage(by_row, training=["questions"]).overlaps
    assert (found.training, found.evaluation, found.rows, found.questions) == ("questions", "test", 15, 2)
    assert (found.pairs, found.images, found.texts, found.touched) == (1, 2, 6, 2)
    assert [leak.kind for leak in found.examples] == ["pair", "image", "image"]


def test_a_image_that_was_saved_or_resized_again_is_the_same_image(tmp_path: Path) -> None:
    chart = bars(3, 7, 5, 2)
    chart.save(tmp_path / "test.png")
    chart.resize((200, 150), Image.Resampling.LANCZOS).save(tmp_path / "train.jpg", quality=90)
    bars(3, 7, 5, 6).save(tmp_path / "other.png")
    recipe = world(
        tmp_path,
        questions=[{"image": name, "question": "What is it?", "answer": "x"} for name in ("train.jpg", "other.png")],
        test=[{"image": "test.png", "question": "Where does it end?", "answer": "y"}],
    )
    (found,) = leakage.measure_leakage(recipe, training=["questions"]).overlaps
    assert (found.pairs, found.images) == (0, 1)
    assert found.examples[0].picture.endswith("train.jpg")


def test_the_words_of_a_template_and_images_without_content_leak_nothing(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), "white").save(tmp_path / "white.png")
    blank = [{"image": "white.png", "question": f"Is {number} even?", "answer": "yes"} for number in (2, 4, 6)]
    recipe = world(
        tmp_path,
        questions=[*rows(tmp_path, range(4), *TWO), *blank[:2]],
        test=[*rows(tmp_path, range(4, 6), *TWO), *blank[2:]],
    )
    found = leakage.measure_leakage(recipe, training=["questions"])
    assert not found.leaking and not found.refusal()
    assert found.overlaps[0].texts == 8
    assert "no image and no question in common" in str(found.overlaps[0])


@pytest.mark.parametrize("image_of", [{}, {"image": "white.png"}])
def test_a_question_without_a_image_or_on_a_blank_one_leaks_by_its_words(
    tmp_path: Path, image_of: dict[str, str]
) -> None:
    Image.new("RGB", (32, 32), "white").save(tmp_path / "white.png")
    asked = "Which river flows through both Vienna and Budapest?"
    other = {"question": "Name the capital city of Peru."}
    recipe = world(
        tmp_path,
        questions=[image_of | {"question": asked}, image_of | other],
        test=[image_of | {"question": asked.upper()}],
    )
    if not image_of:
        recipe = load(recipe.path, {f"data.{name}.columns.image": '""' for name in ("questions", "test")})
    (found,) = leakage.measure_leakage(recipe, training=["questions"]).overlaps
    assert (found.pairs, found.images, found.texts, found.touched) == (1, 0, 0, 1)


def test_every_source_that_trains_is_compared_with_every_source_that_tests(tmp_path: Path) -> None:
    more = """
[[stages]]
name = "more"
data = "questions"
replay = {captions = 0.1}
train = ["language"]
[stages.validation]
data = "held"
"""
    shared = rows(tmp_path, range(2), "What is it?")
    other = [row | {"question": "Where is it?"} for row in shared]
    recipe = world(tmp_path, STAGES + more, questions=other, captions=shared, test=other, held=shared)
    assert training_sources(recipe) == ("questions", "captions")
    assert training_sources(recipe, recipe.stages[:1]) == ("captions",)
    assert evaluation_sources(recipe) == ("test", "held")
    found = {
        (each.training, each.evaluation): (each.pairs, each.images)
        for each in leakage.measure_leakage(recipe).overlaps
    }
    assert found == {
        ("questions", "test"): (2, 0),
        ("questions", "held"): (0, 2),
        ("captions", "test"): (0, 2),
        ("captions", "held"): (2, 0),
    }


def test_generate_train_eval_and_ablate_refuse_with_counts_and_three_examples_until_overlap_is_allowed(
    tmp_path: Path,
) -> None:
    shared = rows(tmp_path, range(5), "What is it?")
    other = [row | {"question": "Where is it?"} for row in shared]
    recipe = world(tmp_path, STAGES, questions=other, captions=shared, test=other)
    for command in ("generate", "train", "eval", "ablate"):
        done = CliRunner().invoke(cli.app, [command, str(recipe.path), "--run", str(tmp_path / "run")])
        assert done.exit_code == 2
        assert "[data.questions] and [data.test] overlap: 5 of 5 rows" in done.stderr
        assert ("[data.captions] and [data.test] overlap: 5 of 5 rows" in done.stderr) == (command != "generate")
        assert done.stderr.count("\n  ") == (3 if command == "generate" else 6)
        assert "distill split" in done.stderr and "allow_overlap = true under [eval]" in done.stderr
        allowed = [command, str(recipe.path), "--run", str(tmp_path / "run"), "--set", "eval.allow_overlap=true"]
        done = CliRunner().invoke(cli.app, allowed)
        assert "overlap" not in done.stderr and done.exit_code != 0  # there is no such model, and no dataset


def test_generate_check_refuses_what_generate_refuses_and_nothing_else(tmp_path: Path) -> None:
    shared = rows(tmp_path, range(5), "What is it?")
    other = [row | {"question": "Where is it?"} for row in shared]
    recipe = world(tmp_path, STAGES, questions=other, captions=shared, test=other)
    check = ["generate", str(recipe.path), "--run", str(tmp_path / "run"), "--check"]
    done = CliRunner().invoke(cli.app, check)
    assert done.exit_code == 2 and "[data.questions] and [data.test] overlap: 5 of 5 rows" in done.stderr
    assert "[data.captions]" not in done.stderr and not (tmp_path / "run").exists()


def test_the_verbs_for_programs_refuse_with_the_counts_of_the_commands_until_overlap_is_allowed(
    tmp_path: Path,
) -> None:
    shared = rows(tmp_path, range(5), "What is it?")
    other = [row | {"question": "Where is it?"} for row in shared]
    recipe = world(tmp_path, STAGES, questions=other, captions=shared, test=other)
    for command, verb in (("generate", distill.generate), ("train", distill.train), ("eval", distill.evaluate)):
        said = CliRunner().invoke(cli.app, [command, str(recipe.path), "--run", str(tmp_path / "run")]).stderr
        with pytest.raises(DataError) as refused:
            verb(recipe, tmp_path / "other")
        assert "overlap: 5 of 5 rows" in str(refused.value) and str(refused.value) in said
        allowed = distill.load(recipe.path, {"eval.allow_overlap": "true"})
        with pytest.raises(DistillError) as later:
            verb(allowed, tmp_path / "other")
        assert "overlap" not in str(later.value)  # there is no such model, and no dataset


def test_allowing_overlap_warns_and_leaves_finished_evaluations_as_they_are(by_row: Recipe, tmp_path: Path) -> None:
    from student.evaluation.students import fields_of_arms

    allowed = load(by_row.path, {"eval.allow_overlap": "true"})
    found = leakage.refuse_leakage(allowed, tmp_path / "run", ["questions"])
    assert found.summary().splitlines()[2].split()[:6] == ["questions", "test", "15", "1", "2", "6"]
    assert "warning: training data is in the evaluation data" in found.summary()
    assert str(found.overlaps[0]).startswith("[data.questions] and [data.test] overlap: 3 of 15 rows")
    assert fields_of_arms(allowed, {}) == fields_of_arms(by_row, {})


def test_of_questions_that_are_learned_through_the_dataset_those_in_it_count(tmp_path: Path) -> None:
    asked = rows(tmp_path, range(4), "What is it?")
    recipe = world(tmp_path, STAGES, questions=asked, captions=[], test=asked[:1])
    run = tmp_path / "run"
    (found,) = leakage.measure_leakage(recipe, training=["questions"]).overlaps
    leaking = found.examples[0].sample
    from distill.data.reader import samples

    ids = [sample.id for sample in samples(recipe)]
    (run / "filter/dataset/train").mkdir(parents=True)
    part = run / "filter/dataset/train/part-00000.parquet"
    pq.write_table(pa.table({"sample_id": ids}), part)
    with pytest.raises(DataError, match="1 of 4 rows"):
        leakage.refuse_leakage(recipe, run, ["questions"])
    pq.write_table(pa.table({"sample_id": [name for name in ids if name != leaking]}), part)
    assert leakage.refuse_leakage(recipe, run, ["questions"]).overlaps[0].rows == 3
    # A student that learned from an earlier dataset may have seen the row that the current one leaves out.
    filtered = Manifest(stage="filter", fingerprint="now", fields={})
    filtered.write(run / "filter")
    for dataset in (dataset_digest(filtered), "before"):
        Manifest(stage="train", fingerprint="t", fields={"data.traces": dataset}).write(run / "train" / "reason")
        if dataset != "before":
            assert leakage.refuse_leakage(recipe, run, ["questions"], is_trained=True).overlaps[0].rows == 3
    with pytest.raises(DataError, match="1 of 4 rows"):
        leakage.refuse_leakage(recipe, run, ["questions"], is_trained=True)


def test_what_was_found_is_kept_until_a_source_or_a_image_changes(by_row: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = leakage.measure_leakage(by_row, folder, training=["questions"])
    kept = (folder / "questions.parquet").stat().st_mtime_ns
    assert leakage.measure_leakage(by_row, folder, training=["questions"]) == first
    assert (folder / "questions.parquet").stat().st_mtime_ns == kept
    # The image of another question becomes one of the test set.
    (tmp_path / "images/00007.png").write_bytes((tmp_path / "images/00000.png").read_bytes())
    (found,) = leakage.measure_leakage(by_row, folder, training=["questions"]).overlaps
    assert found.leaking > first.overlaps[0].leaking


def test_what_cannot_be_read_or_compared_in_time_is_named_and_raises_nothing(tmp_path: Path) -> None:
    recipe = world(tmp_path, STAGES, questions=rows(tmp_path, range(300), "What is it?"))
    found = leakage.measure_leakage(recipe, limit_s=0.0)
    assert not found.overlaps and "test.jsonl does not exist" in found.not_compared["test"]
    recipe = world(tmp_path, STAGES, test=rows(tmp_path, range(1), "What is it?"))
    found = leakage.measure_leakage(recipe, limit_s=0.0)
    assert "captions.jsonl does not exist" in found.not_compared["captions"]
    assert "only its first 256 rows were" in found.not_compared["questions"]
    assert found.summary().count("\nnote: ") == 2
    assert found.overlaps[0].rows == 256 and found.leaking  # what was found by then counts


def test_a_source_whose_name_ends_in_files_replaces_no_notes_of_another_one(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, range(1), TWO[0])
    recipe = world(tmp_path, '[data."questions.files"]\nsource = "captions.jsonl"\n', questions=[row], test=[row])
    (tmp_path / "captions.jsonl").write_bytes(orjson.dumps(row) + b"\n")
    compare = {"training": ["questions", "questions.files"], "evaluation": ["test"]}
    first = leakage.measure_leakage(recipe, tmp_path / "cache", **compare)
    assert [each.pairs for each in first.overlaps] == [1, 1]
    assert leakage.measure_leakage(recipe, tmp_path / "cache", **compare) == first
