"""`distill init`: from a folder or table of any shape to a recipe that a check passes and a teacher is asked with."""

import csv
import errno
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import stub_server
import tiny_models
from PIL import Image
from run_fixtures import picture
from typer.testing import CliRunner, Result

from distill import cli
from distill.artifacts.journal import read_jsonl
from distill.checks.recipe_checks import check_recipe
from distill.commands import init
from distill.data import reader
from distill.data.images import image_files
from distill.planning import first_models
from distill.recipe.filling import filled
from distill.recipe.loading import load
from distill.types import Sample
from teacher.generate import generate


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def photos(folder: Path, count: int = 20) -> list[str]:
    """Names of pictures in a folder and one below it, some with capitals in their suffix, some turned by EXIF."""
    names = []
    for number in range(count):
        path = Path(picture(folder / ("below" if number % 4 == 0 else ""), number, 40).path)
        image, turned = Image.open(path), Image.Exif()
        turned[0x0112] = 6
        renamed = path.with_suffix(".JPG" if number % 2 else ".jpeg")
        image.save(renamed, exif=turned)
        path.unlink()
        names.append(str(renamed.relative_to(folder)))
    return names


def distill(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["init", *arguments])


def read(recipe: Path, name: str = "questions") -> list[Sample]:
    found = list(reader.read(load(recipe), name))
    assert all(isinstance(item, Sample) for item in found), found
    return [item for item in found if isinstance(item, Sample)]


def write_csv(path: Path, rows: list[list[str]], delimiter: str = ",", bom: str = "") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(bom)
        csv.writer(file, delimiter=delimiter).writerows(rows)


def test_a_folder_of_images_alone_becomes_a_recipe_that_teachers_are_asked_with_in_three_commands(
    tmp_path: Path,
) -> None:
    photos(tmp_path / "photos")
    with stub_server.serve(words=4) as url:
        tiny_models.build(tmp_path / "student")
        done = distill("photos", "--teacher", f"{url}#stub", "--gpu", "L4", "--student", "student")
        assert done.exit_code == 0, done.output
        recipe = load(tmp_path / "photos-distill" / "recipe.toml")
        report = check_recipe(recipe, tmp_path / "run")
        assert not report.problems, report.as_text()
        assert "nothing is evaluated" in report.as_text()
        assert generate(recipe, tmp_path / "run", limit=5).counts["samples"] == 5
    assert (
        "20 images" in done.stdout and "the folder has no questions" in done.stdout and "L4, 22.5 GiB" in done.stdout
    )
    assert "distill check recipe.toml" in done.stdout and "distill generate recipe.toml" in done.stdout
    text = recipe.path.read_text()
    assert text.startswith("#:schema ./recipe.schema.json\n")
    assert orjson.loads((recipe.path.parent / "recipe.schema.json").read_bytes())["properties"]["teachers"]
    asked = read(recipe.path)
    assert {sample.question for sample in asked} == set(init.QUESTIONS)
    assert len({sample.images for sample in asked}) == 18
    # Without right answers nothing can be evaluated: these sections wait as comments.
    assert "test" not in recipe.data and "# [data.test]" in text and "# [eval]" in text


@pytest.mark.parametrize(
    ("delimiter", "suffix", "bom"), [(",", "csv", "\ufeff"), (";", "csv", ""), ("\t", "tsv", "")]
)
def test_a_table_of_other_columns_is_guessed_said_and_split_by_image(
    tmp_path: Path, delimiter: str, suffix: str, bom: str
) -> None:
    names = photos(tmp_path / "data" / "shots")
    rows = [[name, f"How many, in {name}?", "3,5"] for name in [*names, *names]]
    rows = [[*row[:1], f"{row[1]} {at}", *row[2:]] for at, row in enumerate(rows)]
    source = tmp_path / "data" / f"all.{suffix}"
    write_csv(source, [["Bild", "Frage", "Antwort"], *rows, ["gone.jpg", "Where?", "x"]], delimiter, bom)
    done = distill(str(source))
    assert done.exit_code == 0, done.output
    assert "image = 'Bild', question = 'Frage', answer = 'Antwort'" in done.stdout
    assert f"images: in {tmp_path / 'data' / 'shots'}" in done.stdout
    assert "left out: 1 rows that cannot be used (missing_image: 1)" in done.stdout
    recipe = tmp_path / "all-distill" / "recipe.toml"
    assert orjson.loads((recipe.parent / "left_out.jsonl").read_bytes())["reason"] == "missing_image"
    train, test = read(recipe), read(recipe, "test")
    assert (len(train), len(test)) == (36, 4) and {sample.answer for sample in train} == {"3,5"}
    assert not {sample.images for sample in train} & {sample.images for sample in test}
    assert load(recipe).eval.arms["distilled"] == "reason"


@pytest.mark.parametrize("source", ["shards", "shards/part/0.tar"])
def test_tar_shards_become_rows_that_name_their_ranges(tmp_path: Path, source: str) -> None:
    (tmp_path / "shards/part").mkdir(parents=True)
    with tarfile.open(tmp_path / "shards/part/0.tar", "w") as shard:
        for number in range(12):
            shard.add(picture(tmp_path / "files", number, 40).path, f"{number}.png")
            (tmp_path / "row.json").write_bytes(
                orjson.dumps({"question": f"How many? {number}", "answer": f"{number}"})
            )
            shard.add(tmp_path / "row.json", f"{number}.json")
    done = distill(source, "--gpu", "L4", "--out", "new")
    assert done.exit_code == 0, done.output
    samples = read(tmp_path / "new/recipe.toml") + read(tmp_path / "new/recipe.toml", "test")
    data = [[image_files.read_bytes(ref) for ref in sample.images] for sample in samples]
    names = [int(sample.answers[0]) for sample in samples]
    assert sorted(names) == list(range(12))
    assert data == [[Path(picture(tmp_path / "files", number, 40).path).read_bytes()] for number in names]
    assert sorted(path.suffix for path in (tmp_path / "new").rglob("*")) == [".json", ".jsonl", ".jsonl", ".toml"]


def test_a_data_set_of_the_hub_becomes_rows_with_their_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "image": [picture(tmp_path / "files", number, 40).path for number in range(12)],
        "question": [f"How many? {number}" for number in range(12)],
    }
    saved = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    saved.save_to_disk(tmp_path / "saved")
    loaded = datasets.load_from_disk(tmp_path / "saved")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, subset, *, split: loaded)
    done = distill("hub:someone/some-data", "--gpu", "L4", "--out", "new")
    assert done.exit_code == 0, done.output
    assert len(read(tmp_path / "new/recipe.toml")) == 11


def test_a_tar_beside_images_is_no_table(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    (tmp_path / "photos/backup.tar").write_bytes(b"anything")
    assert distill("photos", "--gpu", "L4").exit_code == 0


def test_tables_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    names = photos(folder)
    rows = [{"file_name": name, "question": f"What is in {name}?", "answer": "a"} for name in names]
    (folder / "metadata.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    write_csv(folder / "more.csv", [["file_name", "question", "answer"], [names[0], "Where?", "b"]], ",", "")
    done = distill(str(folder))
    assert done.exit_code == 0, done.output
    assert "not read: more.csv; to read one of them" in done.stdout
    assert len(read(tmp_path / "data-distill" / "recipe.toml")) < len(names)


def test_paths_that_are_absolute_and_links_that_lead_out_are_read(tmp_path: Path) -> None:
    names = photos(tmp_path / "far" / "away")
    lines = [{"file": str(tmp_path / "far" / "away" / name), "prompt": f"What is it? {name}"} for name in names]
    (tmp_path / "all.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert distill("all.jsonl").exit_code == 0
    assert len(read(tmp_path / "all-distill" / "recipe.toml")) == 18
    (tmp_path / "linked").mkdir()
    for number, name in enumerate(names):
        (tmp_path / "linked" / f"{number}.jpg").symlink_to(tmp_path / "far" / "away" / name)
    done = distill("linked", "--question", "What is it?")
    assert done.exit_code == 0 and "links lead out" in done.stdout
    assert len(read(tmp_path / "linked-distill" / "recipe.toml")) == 18


def test_choices_become_part_of_the_question_whether_the_answer_is_a_letter_a_text_or_a_place(tmp_path: Path) -> None:
    names = photos(tmp_path / "images")
    answers = ["B", "plane", 1]
    lines = [
        {"image": name, "question": f"Which? {name}", "options": ["train", "plane"], "answer": answers[at % 3]}
        for at, name in enumerate(names)
    ]
    (tmp_path / "all.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    done = distill("all.jsonl")
    assert done.exit_code == 0 and "format scienceqa" in done.stdout
    samples = read(tmp_path / "all-distill" / "recipe.toml")
    assert {sample.answer for sample in samples} == {"B"}
    assert all(sample.question.endswith("A. train\nB. plane") for sample in samples)
    text = (tmp_path / "all-distill" / "recipe.toml").read_text()
    assert "what each column of the table holds" in text and "add answer =" not in text


def test_choices_with_labels_and_rows_without_choices_are_read_from_one_table(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"image": name, "question": f"How many? {name}", "answer": "2"} for name in photos(tmp_path / "images")
    ]
    for line in lines[::2]:
        line |= {"choices": {"A": "train", "B": "plane"}, "answer": "B"}
    (tmp_path / "all.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert "format scienceqa" in distill("all.jsonl").stdout
    samples = read(tmp_path / "all-distill" / "recipe.toml")
    assert {sample.question.partition("\n")[2]: sample.answer for sample in samples} == {
        "": "2",
        "A. train\nB. plane": "B",
    }


def test_images_in_a_folder_beside_that_of_the_table_are_found(tmp_path: Path) -> None:
    names = photos(tmp_path / "images")
    (tmp_path / "tables").mkdir()
    rows = b"".join(orjson.dumps({"image": name, "question": "What is it?", "answer": "x"}) + b"\n" for name in names)
    (tmp_path / "tables" / "all.jsonl").write_bytes(rows)
    done = distill("tables/all.jsonl")
    assert done.exit_code == 0 and f"images: in {tmp_path / 'images'}" in done.stdout


def test_a_source_that_cannot_be_read_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "all.xlsx").write_bytes(b"PK")
    assert "save the sheet as CSV" in distill("all.xlsx").stderr
    assert "does not exist" in (message := distill("nothere").stderr)
    assert "data.questions" not in message and "recipe" not in message


def test_nothing_is_written_over_without_force_and_the_source_never(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    assert distill("photos").exit_code == 0
    kept = (tmp_path / "photos-distill" / "recipe.toml").read_bytes()
    done = distill("photos", "--student", "other/model")
    assert done.exit_code == 2 and "recipe.toml" in done.stderr and "--force" in done.stderr
    assert (tmp_path / "photos-distill" / "recipe.toml").read_bytes() == kept
    assert distill("photos", "--student", "other/model", "--force").exit_code == 0
    assert load(tmp_path / "photos-distill" / "recipe.toml").student.model == "other/model"  # type: ignore[union-attr]
    done = distill("photos-distill/train.jsonl", "--out", "photos-distill", "--force")
    assert done.exit_code == 2 and "would be overwritten" in done.stderr
    assert (tmp_path / "photos-distill" / "train.jsonl").is_file()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("empty", "no image and no table"),
        ("empty.jsonl", "holds no rows"),
        ("broken.jsonl", "not valid JSON"),
        ("sidecars", "--question TEXT asks about the images"),
        ("nothing-here.csv", "does not exist"),
        ("words.csv", "--column image=NAME"),
        ("gone.csv", "missing_image: 1; row 1"),
        ("twice.csv", "more than one column has the name 'image'"),
        ("one.csv", "--test 0.1 of 2 rows is 0 rows"),
        ("few", "few: --test 0.1 of 6 rows is 1 rows"),
    ],
)
def test_data_that_cannot_be_used_is_a_plain_error_and_leaves_nothing_behind(
    tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text("no json")
    photos(tmp_path / "sidecars", 2)
    for number in range(2):
        (tmp_path / "sidecars" / f"{number}.jpg.json").write_text("{}")
    write_csv(tmp_path / "words.csv", [["a", "b"], ["1", "2"]])
    write_csv(tmp_path / "gone.csv", [["image", "question"], ["1.jpg", "2?"]])
    write_csv(tmp_path / "twice.csv", [["image", "image", "question"], ["1.jpg", "1.jpg", "2?"]])
    photos(tmp_path / "few", 2)
    write_csv(
        tmp_path / "one.csv",
        [["image", "question"], *([f"few/{name}", "2?"] for name in photos(tmp_path / "few", 2))],
    )
    before = sorted(tmp_path.rglob("*"))
    done = distill(source)
    assert done.exit_code == 2 and message in done.stderr, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_column_that_cannot_be_guessed_is_asked_for_on_a_terminal(tmp_path: Path) -> None:
    names = photos(tmp_path / "images")
    write_csv(tmp_path / "all.csv", [["image", "words"], *([name, f"say {name}"] for name in names)])
    settings = init.FirstSettings(
        columns={}, questions=(), most_images=None, test=0.1, seed=0, teacher=None, student=None, gpu="L4",
        memory_gib=None, force=False, ask=lambda role, columns: columns[1],
    )  # fmt: skip
    init.init_recipe("all.csv", tmp_path / "out", settings)
    assert load(tmp_path / "out" / "recipe.toml").data["questions"].columns.question == "words"


def test_a_large_folder_is_sampled_and_says_so(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    done = distill("photos", "--images", "10", "--question", "Is it red?")
    assert "uses 10 of 20 images, chosen at random" in done.stdout
    assert len(read(tmp_path / "photos-distill" / "recipe.toml")) == 9


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ("data/rows.csv", "--images"),
        ("data", "--images"),
        ("hub:someone/some-data", "--images"),
        ("data/rows.csv", "--question"),
        ("hub:someone/some-data", "--question"),
    ],
)
def test_options_of_a_folder_of_images_are_refused_for_a_table(tmp_path: Path, source: str, option: str) -> None:
    rows = [[name, "How many?", str(at)] for at, name in enumerate(photos(tmp_path / "data"))]
    write_csv(tmp_path / "data" / "rows.csv", [["image", "question", "answer"], *rows])
    done = distill(source, "--out", "new", option, "10")
    assert done.exit_code == 2 and option in done.output and "is for a folder of images" in done.output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("teacher", [None, "someone/else", "http://127.0.0.1:8000/v1#someone/else"])
def test_comments_of_the_recipe_describe_the_models_that_it_names(tmp_path: Path, teacher: str | None) -> None:
    photos(tmp_path / "photos")
    named = ("--teacher", teacher, "--student", "someone/small") if teacher else ()
    assert distill("photos", "--gpu", "L4", *named).exit_code == 0
    text = (tmp_path / "photos-distill" / "recipe.toml").read_text()
    lines = {line.partition(" = ")[0]: line for line in text.partition("[[teachers]]")[2].splitlines()[:4]}
    student = text.partition("[student]\n")[2].partition("\n")[0]
    assert ("the largest of its family" in lines["model"]) is (teacher is None)
    assert ("it sees and speaks already" in student) is (teacher is None)
    assert ("# as --teacher names it" in lines["model"]) is ("# as --student names it" in student) is bool(teacher)
    assert ("the run starts the server" in lines["backend"]) is not str(teacher).startswith("http")
    assert distill("photos", "--memory", "4", "--force").exit_code == 0
    assert "# the smallest of its family" in (tmp_path / "photos-distill" / "recipe.toml").read_text()


@pytest.mark.parametrize("earlier", [False, True])
def test_a_recipe_that_is_refused_leaves_nothing_and_keeps_an_earlier_one(tmp_path: Path, earlier: bool) -> None:
    photos(tmp_path / "photos")
    if earlier:
        assert distill("photos", "--out", "new").exit_code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = distill("photos", "--out", "new", "--teacher", "ftp://someone/else", "--force")
    assert done.exit_code == 2 and "ftp://someone/else" in done.stderr and "/tmp" not in done.stderr, done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (tmp_path / "new").exists() is earlier


@pytest.mark.parametrize("out", ["/proc/new", "/dev/null/new", "x" * 300], ids=["proc", "below-a-file", "long"])
def test_a_folder_that_cannot_be_made_is_named_in_one_plain_error(tmp_path: Path, out: str) -> None:
    photos(tmp_path / "photos")
    done = distill("photos", "--out", out)
    assert done.exit_code != 0 and f"{out}: cannot write there: " in done.stderr.replace("\n", "")
    assert "give another folder with --out" in done.stderr and "pathlib" not in done.stderr


def close_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is there, and what it holds may not be read: for root too."""

    def refusing(call: Callable[..., Any], *, below_only: bool) -> Callable[..., Any]:
        def checked(path: Any, *arguments: Any, **options: Any) -> Any:
            where = Path(path).absolute() if isinstance(path, str | Path) else Path()
            if folder in where.parents or (where == folder and not below_only):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *arguments, **options)

        return checked

    for name, below_only in (("scandir", False), ("listdir", False), ("stat", True), ("lstat", True)):
        monkeypatch.setattr(os, name, refusing(getattr(os, name), below_only=below_only))


def test_a_folder_of_images_with_a_subfolder_that_may_not_be_read_is_used_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "photos")  # a quarter of them in photos/below
    close_folder(tmp_path / "photos" / "below", monkeypatch)
    done = distill("photos", "--question", "What is it?", "--test", "0.2")
    assert done.exit_code == 0, done.output
    assert f"left out: 1 folders that may not be read, such as {Path('photos', 'below')}" in done.stdout
    recipe = tmp_path / "photos-distill" / "recipe.toml"
    assert len(read(recipe)) == 12  # of 15; the other three are test rows


@pytest.mark.parametrize("command", ["init", "split"])
def test_a_table_beside_a_folder_that_may_not_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    names = photos(tmp_path / "photos")
    rows = [[name, "How many?", str(at)] for at, name in enumerate(names)]
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "answer"], *rows])
    (tmp_path / "photos" / "closed").mkdir()
    close_folder(tmp_path / "photos" / "closed", monkeypatch)
    done = CliRunner().invoke(cli.app, [command, "photos", "--out", "new"])
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "new" / "train.csv").read_text().splitlines()) == 1 + 18


@pytest.mark.parametrize(
    ("memory", "teacher", "student"),
    [(4, "2B-Thinking", "2B-Instruct"), (16, "4B", "2B"), (24, "8B", "2B"), (80, "32B", "4B")],
)
def test_models_are_the_largest_that_the_card_holds(memory: float, teacher: str, student: str) -> None:
    card, _ = first_models.chosen_card(None, memory)
    assert teacher in first_models.teacher_for(card)[0].name and student in first_models.student_for(card)[0].name
    assert first_models.teacher_for(card)[1] == (memory > 4)


def test_a_filled_recipe_keeps_its_comments() -> None:
    text = "seed = 0\n\n[a]   # first\nx = 1   # why\ny = 2\n\n[b]\nz = 3\n"
    assert filled(text, {"a.x": "new", "a.y": None, "a.w": {"v": True}}, {"b"}) == (
        'seed = 0\n\n[a]   # first\nx = "new"   # why\nw = { v = true }\n\n# [b]\n# z = 3\n'
    )


def test_a_table_in_utf_16_as_spreadsheets_write_it_is_read(tmp_path: Path) -> None:
    rows = "".join(f"photos/{name}\tWie groß ist {name}?\t3\r\n" for name in photos(tmp_path / "photos"))
    (tmp_path / "all.csv").write_text(f"Bild\tFrage\tAntwort\r\n{rows}", encoding="utf-16", newline="")
    assert distill("all.csv").exit_code == 0
    assert "groß" in read(tmp_path / "all-distill" / "recipe.toml")[0].question


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--column", "picture=image"), "--column = 'picture' is not known"),
        (("--question", " "), "no visible character"),
        (("--out", "a-file"), "a-file: --out is a file"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, arguments: tuple[str, str], message: str) -> None:
    photos(tmp_path / "photos", 2)
    (tmp_path / "a-file").write_text("")
    done = distill("photos", *arguments)
    assert done.exit_code == 2 and message in done.stderr


def test_what_is_left_out_names_its_image_and_the_next_command_can_be_pasted(tmp_path: Path) -> None:
    photos(tmp_path / "my photos")
    (tmp_path / "my photos" / "broken.jpg").write_bytes(b"no image")
    done = distill("my photos")
    assert "cd 'my photos-distill'" in done.stdout
    left_out = (tmp_path / "my photos-distill" / "left_out.jsonl").read_text()
    assert left_out.count(str(tmp_path / "my photos" / "broken.jpg")) == 3


@pytest.mark.parametrize(
    ("first", "cells"),
    [
        (["0.png", "How many squares?", "2"], "'0.png', 'How many squares?', '2'"),
        (
            ["https://images.example/0.jpeg", "Count the squares", "2"],
            "'https://images.example/0.jpeg', 'Count the squares', '2'",
        ),
        (["0", "Count the squares", "2"], "'Count the squares', '2'"),
    ],
)
def test_a_table_without_a_header_line_is_refused_before_its_first_row_is_lost(
    tmp_path: Path, first: list[str], cells: str
) -> None:
    for number in range(4):
        picture(tmp_path, number, 40)
    rows = [first, ["1.png", "Count the squares", "2"], ["2.png", "How many?", "3"], ["3.png", "How many?", "2"]]
    write_csv(tmp_path / "rows.csv", rows)
    done = distill("rows.csv", "--out", "out")
    assert done.exit_code == 2 and f"not like column names: {cells}. It would be lost" in done.output, done.output
    assert not (tmp_path / "out").exists()


def test_names_that_a_row_repeats_are_still_names(tmp_path: Path) -> None:
    names = [Path(picture(tmp_path, number, 40).path).name for number in range(12)]
    rows = [["image", "question", "answer"], *([name, "How many?", "2"] for name in names)]
    write_csv(tmp_path / "rows.csv", [*rows, ["image", "question", "answer"]])
    assert distill("rows.csv", "--out", "out", "--test", "0.3").exit_code == 0


@pytest.mark.parametrize(
    "names",
    [("photo", "question", "Réponse"), ("imagem", "pergunta", "resposta"), ("изображение", "вопрос", "ответ"),
     ("图片", "问题", "答案"), ("이미지", "질문", "답변"), ("画像", "質問", "回答"),
     ("immagine", "domanda", "risposta")],
    ids=" ".join,
)  # fmt: skip
def test_usual_names_of_other_languages_are_known_with_their_accents(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = [[name, "Count the dots", str(at)] for at, name in enumerate(photos(tmp_path / "photos"))]
    write_csv(tmp_path / "photos" / "rows.csv", [list(names), *rows])
    done = distill("photos", "--out", "new")
    assert done.exit_code == 0, done.output
    columns = load(tmp_path / "new" / "recipe.toml").data["questions"].columns
    assert (columns.image, columns.question, columns.answer) == names


def test_a_column_of_answers_that_is_not_known_is_asked_for_and_none_can_be_said(tmp_path: Path) -> None:
    rows = [[name, "How many?", str(at)] for at, name in enumerate(photos(tmp_path / "photos"))]
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "zahl"], *rows])
    assert "if 'zahl' holds them, say --column answer=NAME" in distill("photos", "--out", "a").output
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "answer"], *rows])
    assert distill("photos", "--out", "b", "--column", "answer=").exit_code == 0
    assert not any(sample.answers for sample in read(tmp_path / "b" / "recipe.toml"))


def test_images_with_any_name_that_is_text_are_used(tmp_path: Path) -> None:
    """Blanks that macOS writes into names of screenshots, families of emoji, line breaks: rows can name them."""
    odd = ["3.45\u202fPM", "\U0001f468\u200d\U0001f469", "a\u3000b", "a\u00adb", "a\nb", "a\tb", "\u202eb", "plain"]
    names = [f"{name}.jpg" for name in odd]
    for old, new in zip(photos(tmp_path / "photos", 9), [*names, "a\udcffb.png"], strict=True):
        (tmp_path / "photos" / old).rename(tmp_path / "photos" / new)
    done = distill("photos", "--out", "new", "--question", "What is it?", "--test", "0.13")
    assert done.exit_code == 0, done.output
    assert r"left out: 1 images whose names hold bytes that are no text, such as 'a\udcffb.png'" in done.output
    rows = [row for part in ("train", "test") for row in read_jsonl(tmp_path / "new" / f"{part}.jsonl")]
    assert {row["image"] for row in rows} == set(names)
    assert len(read(tmp_path / "new" / "recipe.toml")) == 7


def test_rows_of_one_image_alone_and_a_card_without_an_end_are_refused_with_the_next_step(tmp_path: Path) -> None:
    names = photos(tmp_path / "photos")
    rows = [[names[0], "How many?", "1"], [names[0], "How large?", "2"]]
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "answer"], *rows])
    done = distill("photos")
    assert done.exit_code == 2 and "give rows about another image" in done.output
    done = distill("photos", "--memory", "inf")
    assert done.exit_code == 2 and "--memory inf: give the GiB of a card" in done.output


def test_images_of_kinds_that_are_not_read_are_counted(tmp_path: Path) -> None:
    names = photos(tmp_path / "photos")
    for name in ("one.HEIC", "two.heic", "three.svg"):
        (tmp_path / "photos" / name).write_bytes(b"some")
    (tmp_path / "photos" / names[0]).write_bytes(b"no image")
    done = distill("photos", "--out", "new")
    assert "left out: images of kinds that are not read (.heic: 2, .svg: 1); save them as JPEG or PNG" in done.output
    left_out = list(read_jsonl(tmp_path / "new" / "left_out.jsonl"))
    assert {row["source"] for row in left_out} == {str(tmp_path / "photos")}
    for name in names:
        (tmp_path / "photos" / name).unlink()
    done = distill("photos", "--out", "other")
    assert done.exit_code == 2 and "(.heic: 2, .svg: 1); save them as JPEG" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--column", "image"), "--column image: write KEY=COLUMN"),
        (("--test", "0.999"), "--test 0.999 of 20 rows leaves no training row"),
        (("--teacher", ""), "--teacher: the name of the model is empty"),
        (("--student", " "), "--student: the name of the model is empty"),
        (("--teacher", "http://#m"), "--teacher = 'http://' is no address of a server"),
        (("--teacher", "http://[half/v1#m"), "is no address of a server"),
        (("--teacher", "http://host:99999/v1#m"), "is no address of a server"),
        (("--teacher", "http://127.0.0.1:8000/v1#"), "write URL#MODEL"),
        (("--teacher", "http://127.0.0.1:8000/v1"), "write URL#MODEL"),
        (("--gpu", "L4", "--memory", "80"), "--gpu L4 and --memory 80: give one of them"),
    ],
    ids=str,
)
def test_an_option_without_a_meaning_is_refused_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    rows = [[name, "How many?", str(at)] for at, name in enumerate(photos(tmp_path / "photos"))]
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "answer"], *rows])
    done = distill("photos", "--out", "new", *arguments)
    assert done.exit_code == 2 and message in done.output, done.output
    assert not (tmp_path / "new").exists()


def test_what_an_earlier_init_or_a_run_wrote_is_not_taken_for_the_data(tmp_path: Path) -> None:
    """It would lose the rows that are no training rows; with --force, for ever."""
    names = photos(tmp_path / "photos")
    assert distill("photos", "--out", "photos").exit_code == 0
    done = distill("photos", "--out", "photos", "--force")
    assert done.exit_code == 2 and "was written by an earlier `distill init`" in done.output
    assert len(list(read_jsonl(tmp_path / "photos" / "test.jsonl"))) == 6
    rows = [{"image": name, "question": "What?", "answer": str(at)} for at, name in enumerate(names)]
    shutil.copytree(tmp_path / "photos", tmp_path / "more", ignore=lambda *_: ["train.jsonl", "test.jsonl"])
    (tmp_path / "more" / "recipe.schema.json").unlink()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "more" / "rows.parquet")
    assert distill("more", "--out", "more/new").exit_code == 0
    done = distill("more", "--out", "other")
    assert done.exit_code == 2 and "Give your table itself as SOURCE" in done.output
    assert distill("more/rows.parquet", "--out", "other").exit_code == 0


def test_hidden_files_and_folders_are_no_tables(tmp_path: Path) -> None:
    """macOS writes `._rows.csv` beside `rows.csv` on disks of other kinds."""
    names = photos(tmp_path / "photos")
    (tmp_path / "photos" / "._rows.csv").write_bytes(b"\0\5\26")
    (tmp_path / "photos" / "old.json").mkdir()
    assert "the folder has no questions" in distill("photos", "--out", "images").output
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question"], *([name, "What?"] for name in names)])
    done = distill("photos", "--out", "table")
    assert done.exit_code == 0 and "rows.csv: columns 'image', 'question'" in done.output


def test_a_column_of_answers_that_is_empty_gives_no_test_set(tmp_path: Path) -> None:
    rows = [[name, "How many?", ""] for name in photos(tmp_path / "photos")]
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "answer"], *rows])
    done = distill("photos", "--out", "new")
    assert "no test row has a right answer in the column 'answer'" in done.output
    assert list(load(tmp_path / "new" / "recipe.toml").data) == ["questions"]


def test_a_table_with_capitals_in_its_ending_is_not_overwritten(tmp_path: Path) -> None:
    rows = [[name, "How many?", "1"] for name in photos(tmp_path / "photos")]
    table = tmp_path / "photos" / "train.CSV"
    write_csv(table, [["image", "question", "answer"], *rows])
    before = table.read_bytes()
    assert distill("photos/train.CSV", "--out", "photos").exit_code == 0
    assert table.read_bytes() == before and (tmp_path / "photos" / "train.csv").is_file()


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    photos(tmp_path)
    done = distill("", "--out", "new")
    assert done.exit_code == 2 and "the SOURCE is empty" in done.output
