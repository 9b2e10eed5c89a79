"""`distill split`: no image in both files, rows as they were, the same split whatever their order."""

import csv
import random
import re
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner
from worlds.run_fixtures import make_image

from distill import cli
from distill.commands.split import source_of, split_source
from distill.data import reader
from distill.errors import DataError
from distill.planning import leakage
from distill.recipe.loading import load
from distill.types import Sample

ASKED = ("How many dots are left of the tallest tower?", "What colour is the smallest square?", "Is it round?")


def table(folder: Path, count: int = 20, columns: tuple[str, str] = ("image", "question")) -> list[dict[str, object]]:
    """Three questions about every image, in no order."""
    names = [Path(make_image(folder / "images", number, 40).path).name for number in range(count)]
    rows: list[dict[str, object]] = [
        {columns[0]: f"images/{name}", columns[1]: asked, "answer": str(at), "note": f"n{at}"}
        for name in names
        for at, asked in enumerate(ASKED)
    ]
    random.Random(0).shuffle(rows)
    return rows


def jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def lines(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def splitted(source: Path, out: Path, **settings: float | None) -> None:
    recipe, name = source_of(str(source), name=None, settings={}, columns=[])
    split_source(recipe, out, name=name, **settings)


def test_the_command_splits_by_image_and_its_files_load_and_do_not_overlap(tmp_path: Path) -> None:
    rows = table(tmp_path)
    source = jsonl(tmp_path / "all.jsonl", rows)
    out = tmp_path / "parts"
    done = CliRunner().invoke(cli.app, ["split", str(source), "--test", "0.2", "--seed", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    train, test = lines(out / "train.jsonl"), lines(out / "test.jsonl")
    assert (len(train), len(test)) == (48, 12)
    assert sorted(map(orjson.dumps, [*train, *test])) == sorted(map(orjson.dumps, rows))
    assert train == [row for row in rows if row in train]  # in the order of the source
    assert not {row["image"] for row in train} & {row["image"] for row in test}
    assert "train.jsonl: 48 rows, 16 images" in done.stdout and "test.jsonl: 12 rows, 4 images" in done.stdout
    # What the command prints is what a recipe needs, and nothing leaks.
    recipe = tmp_path / "elsewhere" / "recipe.toml"
    recipe.parent.mkdir()
    recipe.write_text(done.stdout[done.stdout.index("[data.questions]") :])
    (found,) = leakage.measure_leakage(load(recipe), training=["questions"]).overlaps
    assert (found.rows, found.questions, found.leaking) == (48, 12, 0)


def test_no_control_character_of_a_path_reaches_the_terminal(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "all.jsonl", table(tmp_path, 4))
    done = CliRunner().invoke(cli.app, ["split", str(source), "--test", "0.3", "--out", str(tmp_path / "a\x1b]0;me")])
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout and r"a\u001b]0;me" in done.stdout


def test_a_name_as_init_takes_it_is_refused_with_the_one_to_write(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["split", "hub:someone/nothing", "--out", str(tmp_path / "new")])
    assert done.exit_code == 2 and "takes the name of the hub alone, someone/nothing" in done.stderr


def test_order_changes_nothing_and_the_seed_does(tmp_path: Path) -> None:
    rows = table(tmp_path)
    splitted(jsonl(tmp_path / "a.jsonl", rows), tmp_path / "a")
    splitted(jsonl(tmp_path / "b.jsonl", rows[::-1]), tmp_path / "b")
    splitted(jsonl(tmp_path / "c.jsonl", rows), tmp_path / "c", seed=1)

    def tested(name: str) -> set[bytes]:
        return {orjson.dumps(row) for row in lines(tmp_path / name / "test.jsonl")}

    assert tested("a") == tested("b") != tested("c")


def test_without_a_share_a_small_table_has_up_to_a_third_of_its_rows_tested(tmp_path: Path) -> None:
    answered = jsonl(tmp_path / "answered.jsonl", table(tmp_path, count=60))
    splitted(answered, tmp_path / "a", test=None)
    assert len(lines(tmp_path / "a" / "test.jsonl")) == 60  # of 180, of three questions each
    unanswered = [{**row, "answer": ""} for row in lines(answered)]
    splitted(jsonl(tmp_path / "unanswered.jsonl", unanswered), tmp_path / "b", test=None)
    assert len(lines(tmp_path / "b" / "test.jsonl")) == 18  # nothing can be evaluated with them
    many = [
        {"image": row["image"], "question": f"{row['question']} {at}", "answer": "1"}
        for row in lines(answered)
        for at in range(8)
    ]
    splitted(jsonl(tmp_path / "many.jsonl", many), tmp_path / "c", test=None)
    assert len(lines(tmp_path / "c" / "test.jsonl")) == 144  # a tenth of 1,440


def test_images_that_were_saved_again_rows_of_several_and_blank_ones(tmp_path: Path) -> None:
    def chart(*heights: int) -> Image.Image:
        image = Image.new("RGB", (240, 160), "white")
        for place, height in enumerate(heights):
            ImageDraw.Draw(image).rectangle((20 + 50 * place, 150 - 20 * height, 55 + 50 * place, 150), fill="navy")
        return image

    chart(3, 6, 2).save(tmp_path / "first.png")
    chart(3, 6, 2).resize((180, 120), Image.Resampling.LANCZOS).save(tmp_path / "again.jpg", quality=90)
    for number in range(4):
        make_image(tmp_path, number, 40)
    Image.new("RGB", (30, 30), "grey").save(tmp_path / "blank.png")
    together = [["first.png"], ["again.jpg", "00000.png"], ["00000.png", "00001.png"]]
    rows = [{"image": names, "question": f"Question {at}?"} for at, names in enumerate(together)]
    apart = [{"image": [f"{name:05d}.png", "blank.png"], "question": "What?"} for name in (2, 3)]
    blank = [{"image": ["blank.png"], "question": f"How many is {number}?"} for number in range(5)]
    source = jsonl(tmp_path / "all.jsonl", [*rows, *apart, *blank])
    sizes = set()
    for seed in range(12):
        out = tmp_path / f"out{seed}"
        splitted(source, out, test=0.3, seed=seed)
        test = lines(out / "test.jsonl")
        grouped = [row for row in test if row in rows]
        assert len(test) == 3 and len(grouped) in (0, 3)
        sizes.add((len(grouped), sum(row in apart for row in test), sum(row in blank for row in test)))
    assert len(sizes) > 2  # blank images and their rows do not stick together


def test_tables_with_images_keep_their_schema_and_csv_its_columns(tmp_path: Path) -> None:
    rows = table(tmp_path, 10)
    with (tmp_path / "all.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    splitted(tmp_path / "all.csv", tmp_path / "csv", test=0.3)
    with (tmp_path / "csv/test.csv").open(newline="") as file:
        test = list(csv.DictReader(file))
    assert len(test) == 9 and test == [row for row in rows if row in test]
    cells = [{**row, "image": {"bytes": (tmp_path / str(row["image"])).read_bytes(), "path": None}} for row in rows]
    whole = pa.Table.from_pylist(cells).replace_schema_metadata({"huggingface": "{}"})
    pq.write_table(whole, tmp_path / "all.parquet", row_group_size=7)
    splitted(tmp_path / "all.parquet", tmp_path / "parquet", test=0.3)
    parts = [pq.read_table(tmp_path / "parquet" / f"{part}.parquet") for part in ("train", "test")]
    assert [part.num_rows for part in parts] == [21, 9]
    assert all(part.schema.equals(whole.schema, check_metadata=True) for part in parts)
    assert sum(part["note"].to_pylist().count("n0") for part in parts) == 10


def test_columns_formats_and_the_section_of_a_recipe_are_read_as_there(tmp_path: Path) -> None:
    rows = table(tmp_path, 10, columns=("file", "ask"))
    jsonl(tmp_path / "all.jsonl", rows)
    (tmp_path / "mine.toml").write_text(
        '[data.charts]\nsource = "all.jsonl"\n[data.charts.columns]\nimage = "file"\nquestion = "ask"\n'
    )
    arguments = [
        ["split", str(tmp_path / "mine.toml"), "--data", "charts", "--out", str(tmp_path / "a")],
        ["split", str(tmp_path / "all.jsonl"), "--column", "image=file", "--column", "question=ask"],
    ]
    arguments[1] += ["--images-root", str(tmp_path), "--out", str(tmp_path / "b")]
    for each in arguments:
        done = CliRunner().invoke(cli.app, each)
        assert done.exit_code == 0, done.output
    assert lines(tmp_path / "a/test.jsonl") == lines(tmp_path / "b/test.jsonl")
    assert f'images_root = "{tmp_path}"' in done.stdout
    # The printed sections read the files as they are.
    (tmp_path / "mine.toml").write_text(done.stdout[done.stdout.index("[data.questions]") :])
    found = [item for item in reader.read(load(tmp_path / "mine.toml"), "questions") if isinstance(item, Sample)]
    assert len(found) == 27


def test_rows_that_cannot_be_used_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = table(tmp_path)
    rows.insert(5, {"image": "images/none.png", "question": "What is missing?", "answer": "x", "note": ""})
    recipe, name = source_of(str(jsonl(tmp_path / "all.jsonl", rows)), name=None, settings={}, columns=[])
    found = split_source(recipe, tmp_path / "out", name=name)
    assert found.left_out == {"missing_image": 1} and sum(found.rows.values()) == 60
    assert "left out: 1 row that cannot be used (missing_image: 1)" in str(found)


def test_one_image_for_all_rows_a_wrong_share_and_files_that_are_there_are_refused(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "all.jsonl", table(tmp_path, 1))
    with pytest.raises(DataError, match=r"its rows \(3\) show the same image"):
        splitted(source, tmp_path / "out", test=0.5)
    with pytest.raises(DataError, match="between 0 and 1"):
        splitted(source, tmp_path / "out", test=10)
    source = jsonl(tmp_path / "all.jsonl", table(tmp_path, 10))
    splitted(source, tmp_path / "out")
    with pytest.raises(DataError, match="it already exists"):
        splitted(source, tmp_path / "out")


def test_the_share_that_a_refused_split_names_is_one_that_works(tmp_path: Path) -> None:
    names = [Path(make_image(tmp_path, number, 40).path).name for number in range(7)]
    rows = [{"image": names[at % 7], "question": f"Question {at}?", "answer": "1"} for at in range(50)]
    source = jsonl(tmp_path / "all.jsonl", rows)  # 7 or 8 rows an image: 7 of 50 would be 0.14, 8 are 0.16
    with pytest.raises(DataError, match=r"7 at least\. Give --test") as refused:
        splitted(source, tmp_path / "out", test=0.01)
    share = float(str(refused.value).partition("--test ")[2].partition("Give --test ")[2].split()[0])
    splitted(source, tmp_path / "out", test=share)
    assert len(lines(tmp_path / "out" / "test.jsonl")) >= 7
    rows = [{"image": names[at % 3], "question": f"Question {at}?", "answer": "1"} for at in range(29)]
    source = jsonl(tmp_path / "more.jsonl", rows)  # 9 of 29 are 0.3103: 0.31 of 29 is 8.99
    with pytest.raises(DataError, match=r"Give --test 0\.32 or more"):
        splitted(source, tmp_path / "other", test=0.01)


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl holds no rows"):
        splitted(jsonl(tmp_path / "none.jsonl", []), tmp_path / "out")


def test_rows_that_a_chain_of_shared_images_connects_are_not_said_to_show_one(tmp_path: Path) -> None:
    names = [Path(make_image(tmp_path, number, 40).path).name for number in range(4)]
    rows = [{"image": [names[at], names[at + 1]], "question": f"Question {at}?"} for at in range(3)]
    with pytest.raises(DataError, match=r"its rows \(3\) are connected by images that they share \(4\)"):
        splitted(jsonl(tmp_path / "all.jsonl", rows), tmp_path / "out", test=0.5)


def test_pages_with_little_on_them_stay_together_and_plain_images_in_both_files_are_named(tmp_path: Path) -> None:
    for number in range(8):
        page = Image.new("RGB", (700, 1000), "white")
        ImageDraw.Draw(page).text((300, 400), f"Total {37 * number}", fill="black")
        page.save(tmp_path / f"page{number}.png")
    Image.new("RGB", (30, 30), "grey").save(tmp_path / "blank.png")
    pages = [{"image": f"page{at % 8}.png", "question": f"Total {at}?"} for at in range(32)]
    blank = [{"image": "blank.png", "question": f"Blank {at}?"} for at in range(32)]
    recipe, name = source_of(str(jsonl(tmp_path / "all.jsonl", pages + blank)), name=None, settings={}, columns=[])
    found = split_source(recipe, tmp_path / "out", name=name, test=0.4)
    train, test = (lines(tmp_path / "out" / f"{part}.jsonl") for part in ("train", "test"))
    assert {row["image"] for row in train} & {row["image"] for row in test} == {"blank.png"}
    assert "no image is in both, except 1 of one colour, which show nothing;" in str(found)


def test_relative_paths_hold_beside_the_new_files(tmp_path: Path) -> None:
    splitted(jsonl(tmp_path / "all.jsonl", table(tmp_path)), tmp_path / "far/away")
    for part in ("train", "test"):
        recipe, name = source_of(str(tmp_path / f"far/away/{part}.jsonl"), name=None, settings={}, columns=[])
        assert all(isinstance(item, Sample) for item in reader.read(recipe, name))


def test_lists_of_images_with_bytes_are_split(tmp_path: Path) -> None:
    data = [Path(make_image(tmp_path, number, 40).path).read_bytes() for number in range(24)]
    cells = [[{"bytes": each, "path": None} for each in data[2 * row : 2 * row + 2]] for row in range(12)]
    rows = {"image": cells, "question": [f"What is in picture {number}?" for number in range(12)]}
    pq.write_table(pa.table(rows), tmp_path / "all.parquet")
    splitted(tmp_path / "all.parquet", tmp_path / "parts", test=0.25)
    tables = [pq.read_table(tmp_path / "parts" / f"{part}.parquet").to_pylist() for part in ("train", "test")]
    assert sorted(row["image"][1]["bytes"] for rows in tables for row in rows) == sorted(data[1::2])


def test_a_shipped_recipe_is_split_by_its_name(tmp_path: Path) -> None:
    recipe, name = source_of("tiny", name=None, settings={}, columns=[])
    assert name == "questions" and recipe.data[name].source.endswith("questions.parquet")


def test_images_that_are_in_the_folder_already_are_not_taken_for_those_of_the_rows(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "all.jsonl", table(tmp_path))
    out = tmp_path / "out"
    expected = [item.id for item in samples_of(source)]
    (out / "images").mkdir(parents=True)
    for path in (tmp_path / "images").iterdir():
        make_image(out / "images", int(path.stem) + 100, 40)
        (out / "images" / f"{int(path.stem) + 100:05d}.png").rename(out / "images" / path.name)
    recipe, name = source_of(str(source), name=None, settings={}, columns=[])
    found = split_source(recipe, out, name=name)
    assert found.root == str(tmp_path)
    read = [
        item.id for part in ("train", "test") for item in samples_of(out / f"{part}.jsonl", images_root=found.root)
    ]
    assert sorted(read) == sorted(expected)


def test_rows_that_name_links_find_their_images_beside_the_new_files(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "all.jsonl", table(tmp_path))
    (tmp_path / "images").rename(tmp_path / "stored")
    (tmp_path / "images").symlink_to("stored")
    recipe, name = source_of(str(source), name=None, settings={}, columns=[])
    root = split_source(recipe, tmp_path / "out", name=name).root
    for part in ("train", "test"):
        assert samples_of(tmp_path / f"out/{part}.jsonl", images_root=root)


def samples_of(source: Path, **settings: str) -> list[Sample]:
    recipe, name = source_of(str(source), name=None, settings=settings, columns=[])
    items = list(reader.read(recipe, name))
    assert all(isinstance(item, Sample) for item in items)
    return [item for item in items if isinstance(item, Sample)]


def test_tables_whose_columns_differ_are_split_into_one_with_all_columns(tmp_path: Path) -> None:
    data = [Path(make_image(tmp_path, number, 40).path).read_bytes() for number in range(12)]
    for part in range(2):
        rows = {
            "question": [f"What is in {number}?" for number in range(6)],
            "image": data[6 * part : 6 * part + 6],
            "answer": ["a"] * 6,
            **({"note": ["n"] * 6} if part else {}),
        }
        columns = list(rows) if part else list(rows)[::-1]
        pq.write_table(pa.table({column: rows[column] for column in columns}), tmp_path / f"{part}.parquet")
    splitted(tmp_path / "?.parquet", tmp_path / "out", test=0.25)
    found = [row for part in ("train", "test") for row in pq.read_table(tmp_path / f"out/{part}.parquet").to_pylist()]
    assert sorted(row["image"] for row in found) == sorted(data)
    assert [row["note"] for row in found].count("n") == 6 and {row["answer"] for row in found} == {"a"}


def csv_parts(folder: Path, *headers: str) -> None:
    for number, header in enumerate(headers):
        names = header.split(",")
        rows = table(folder, 8, ("image", "question"))[number::2]
        with (folder / f"p{number}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names, extrasaction="ignore", restval="kept")
            writer.writeheader()
            writer.writerows(rows)


@pytest.mark.parametrize(
    "headers", [("image,question", "image,question,more"), ("image,question,more", "image,question")]
)
def test_csv_files_of_different_columns_are_split_with_all_of_them(tmp_path: Path, headers: tuple[str, str]) -> None:
    csv_parts(tmp_path, *headers)
    splitted(tmp_path / "p*.csv", tmp_path / "out", test=0.25)
    rows = [row for part in ("train", "test") for row in csv.DictReader((tmp_path / "out" / f"{part}.csv").open())]
    assert len(rows) == 24 and {row["more"] for row in rows} == {"kept", ""}


def test_the_printed_section_keeps_what_the_recipe_says_of_rows_and_can_be_read_from_any_folder(
    tmp_path: Path,
) -> None:
    folder = tmp_path / 'a "b" \\c'
    folder.mkdir()
    jsonl(folder / "all.jsonl", table(folder))
    (folder / "recipe.toml").write_text(
        '[data.questions]\nsource = "all.jsonl"\ndomain = "charts"\nanswer_type = "number"\nmax_pixels = 2000\n'
        'limit = 6\ncolumns = { answer = "note" }\n'
    )
    recipe, name = source_of(str(folder / "recipe.toml"), name=None, settings={}, columns=[])
    told = str(split_source(recipe, folder / "out", name=name, test=0.2))
    assert "all rows of the source are split: limit of the recipe is not used" in told
    (tmp_path / "new.toml").write_text(told[told.index("[data.questions]") :])
    for source in load(tmp_path / "new.toml").data.values():
        assert (source.domain, source.answer_type, source.max_pixels) == ("charts", "number", 2000)
        assert source.columns.answer == "note" and source.limit is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["recipe.toml", "--format", "llava"], "--format: .*recipe.toml is a recipe"),
        (["recipe.toml", "--column", "image=a", "--images-root", "."], "--images-root, --column: "),
        (["all.jsonl", "--data", "test"], "--data test: .*all.jsonl is a table"),
        (["all.jsonl", "--column", "answer=a", "--column", "answer=b"], "--column answer: it is given twice"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(tmp_path: Path, arguments: list[str], problem: str) -> None:
    jsonl(tmp_path / "all.jsonl", table(tmp_path))
    (tmp_path / "recipe.toml").write_text('[data.questions]\nsource = "all.jsonl"\n')
    command = ["split", str(tmp_path / arguments[0]), *arguments[1:], "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 2 and re.search(problem, done.stderr), done.stderr
    assert not (tmp_path / "out").exists()
