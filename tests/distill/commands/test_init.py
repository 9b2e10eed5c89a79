"""`distill init`: from a folder of images or a table to a recipe that a check passes and a teacher is asked with."""

from pathlib import Path

import orjson
import pytest
from servers import stub_server
from students import tiny_models
from worlds.init_data import close_folder, distill, photos, read, write_csv

from distill.artifacts.journal import read_jsonl
from distill.checks.recipe_checks import check_recipe
from distill.commands import init_sources
from distill.planning import first_models
from distill.recipe.loading import load
from distill.recipe.recipe_text import edit_recipe_text
from teacher.generate import generate


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
    assert {sample.question for sample in asked} == set(init_sources.QUESTIONS)
    assert len({sample.images for sample in asked}) == 18
    # Without right answers nothing can be evaluated: these sections wait as comments.
    assert "test" not in recipe.data and "# [data.test]" in text and "# [eval]" in text


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
        ("few", "few: --test 0.1 of 6 rows is 1 row"),
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
    assert ("it already answers questions about images" in student) is (teacher is None)
    assert ("# as --teacher names it" in lines["model"]) is ("# as --student names it" in student) is bool(teacher)
    assert ("the run starts the server" in lines["backend"]) is not str(teacher).startswith("http")
    assert distill("photos", "--memory", "4", "--force").exit_code == 0
    assert "# the smallest of its family" in (tmp_path / "photos-distill" / "recipe.toml").read_text()


def test_a_data_set_of_the_hub_that_cannot_be_read_is_no_path_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = distill("hub:someone/nothing", "--gpu", "L4", "--out", "new")
    assert done.exit_code == 2 and "its local cache does not help" in done.stderr, done.stderr
    assert str(tmp_path) not in done.stderr and "does not exist" not in done.stderr


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


def test_a_folder_of_images_with_a_subfolder_that_may_not_be_read_is_used_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path / "photos")  # a quarter of them in photos/below
    close_folder(tmp_path / "photos" / "below", monkeypatch)
    done = distill("photos", "--question", "What is it?", "--test", "0.2")
    assert done.exit_code == 0, done.output
    assert f"left out: 1 folder that may not be read, such as {Path('photos', 'below')}" in done.stdout
    recipe = tmp_path / "photos-distill" / "recipe.toml"
    assert len(read(recipe)) == 12  # of 15; the other three are test rows


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
    assert edit_recipe_text(text, {"a.x": "new", "a.y": None, "a.w": {"v": True}}, {"b"}) == (
        'seed = 0\n\n[a]   # first\nx = "new"   # why\nw = { v = true }\n\n# [b]\n# z = 3\n'
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--column", "picture=image"), "--column = 'picture' is not known"),
        (("--question", " "), "no visible character"),
        (("--out", "a-file"), "a-file: --out is a file"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, arguments: tuple[str, str], message: str) -> None:
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


def test_images_with_any_name_that_is_text_are_used(tmp_path: Path) -> None:
    """Blanks that macOS writes into names of screenshots, families of emoji, line breaks: rows can name them."""
    odd = ["3.45\u202fPM", "\U0001f468\u200d\U0001f469", "a\u3000b", "a\u00adb", "a\nb", "a\tb", "\u202eb", "plain"]
    names = [f"{name}.jpg" for name in odd]
    for old, new in zip(photos(tmp_path / "photos", 9), [*names, "a\udcffb.png"], strict=True):
        (tmp_path / "photos" / old).rename(tmp_path / "photos" / new)
    done = distill("photos", "--out", "new", "--question", "What is it?", "--test", "0.13")
    assert done.exit_code == 0, done.output
    assert r"left out: 1 image with bytes that are no text in the name, such as 'a\udcffb.png'" in done.output
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
    assert done.exit_code == 2 and "--memory inf: give the memory of a GPU in GiB" in done.output


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


def test_a_table_with_capitals_in_its_ending_is_not_overwritten(tmp_path: Path) -> None:
    rows = [[name, "How many?", "1"] for name in photos(tmp_path / "photos")]
    table = tmp_path / "photos" / "train.CSV"
    write_csv(table, [["image", "question", "answer"], *rows])
    before = table.read_bytes()
    assert distill("photos/train.CSV", "--out", "photos").exit_code == 0
    assert table.read_bytes() == before and (tmp_path / "photos" / "train.csv").is_file()


def test_a_name_of_two_lines_is_written_as_a_value_and_its_comment_stays_one_line(tmp_path: Path) -> None:
    from distill.commands.init import _header

    lines = _header("photos", ["teacher: a\nseed = 3, as --teacher names it"]).splitlines()
    assert lines[-1] == "# teacher: a seed = 3, as --teacher names it" and all(line[0] == "#" for line in lines)


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    photos(tmp_path)
    done = distill("", "--out", "new")
    assert done.exit_code == 2 and "the SOURCE is empty" in done.output
