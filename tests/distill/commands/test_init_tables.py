"""`distill init` with a table of any shape: which file is read, what its columns hold, where its images are."""

import shutil
import tarfile
from pathlib import Path
from typing import Any

import datasets
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from worlds.init_data import close_folder, distill, photos, read, write_csv
from worlds.run_fixtures import make_image

from distill import cli
from distill.artifacts.journal import read_jsonl
from distill.commands import init, init_sources
from distill.data.images import image_files
from distill.recipe.loading import load


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
    assert "left out: 1 row that cannot be used (missing_image: 1)" in done.stdout
    recipe = tmp_path / "all-distill" / "recipe.toml"
    assert orjson.loads((recipe.parent / "left_out.jsonl").read_bytes())["reason"] == "missing_image"
    train, test = read(recipe), read(recipe, "test")
    assert (len(train), len(test)) == (28, 12) and {sample.answer for sample in train} == {"3,5"}
    assert not {sample.images for sample in train} & {sample.images for sample in test}
    assert load(recipe).eval.arms["distilled"] == "reason"


@pytest.mark.parametrize("source", ["shards", "shards/part/0.tar"])
def test_tar_shards_become_rows_that_name_their_ranges(tmp_path: Path, source: str) -> None:
    (tmp_path / "shards/part").mkdir(parents=True)
    with tarfile.open(tmp_path / "shards/part/0.tar", "w") as shard:
        for number in range(12):
            shard.add(make_image(tmp_path / "files", number, 40).path, f"{number}.png")
            (tmp_path / "row.json").write_bytes(
                orjson.dumps({"question": f"How many? {number}", "answer": f"{number}"})
            )
            shard.add(tmp_path / "row.json", f"{number}.json")
    done = distill(source, "--gpu", "L4", "--out", "new")
    assert done.exit_code == 0, done.output
    assert "not read" not in done.output, "the column png has the image of the column image"
    samples = read(tmp_path / "new/recipe.toml") + read(tmp_path / "new/recipe.toml", "test")
    data = [[image_files.read_bytes(ref) for ref in sample.images] for sample in samples]
    names = [int(sample.answers[0]) for sample in samples]
    assert sorted(names) == list(range(12))
    assert data == [[Path(make_image(tmp_path / "files", number, 40).path).read_bytes()] for number in names]
    assert sorted(path.suffix for path in (tmp_path / "new").rglob("*")) == [".json", ".jsonl", ".jsonl", ".toml"]


def test_a_data_set_of_the_hub_becomes_rows_with_their_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "image": [make_image(tmp_path / "files", number, 40).path for number in range(12)],
        "question": [f"How many? {number}" for number in range(12)],
    }
    saved = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
    saved.save_to_disk(tmp_path / "saved")
    loaded = datasets.load_from_disk(tmp_path / "saved")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, subset, *, split: loaded)
    done = distill("hub:someone/some-data", "--gpu", "L4", "--out", "new")
    assert done.exit_code == 0, done.output
    assert len(read(tmp_path / "new/recipe.toml")) == 11


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_tables_of_other_splits_are_named(tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    rows = [{"image": name, "question": f"How many, {n}?", "answer": "3"} for n, name in enumerate(photos(data))]
    for split in ("train", "test"):
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), data / f"{split}-00000-of-00001.parquet")
        else:
            write_csv(data / f"{split}.csv", [list(rows[0]), *(list(row.values()) for row in rows)], ",", "")
    done = distill("data", "--out", "out")
    assert done.exit_code == 0, done.output
    name = "test.csv" if kind == "csv" else "test-00000-of-00001.parquet"
    assert f"not used: 1 of the tables, of other splits ({name}). The test rows come from" in done.stdout
    assert len(read(tmp_path / "out/recipe.toml")) + len(read(tmp_path / "out/recipe.toml", "test")) == len(rows)


def test_an_image_is_no_table_and_its_folder_is_named(tmp_path: Path) -> None:
    (name, *_) = photos(tmp_path / "data")
    done = distill(f"data/{name}")
    assert (
        done.exit_code == 2
        and f"it is an image: give its folder, {(tmp_path / 'data' / name).parent}; " in done.stderr
    )


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


def test_a_column_that_cannot_be_guessed_is_asked_for_on_a_terminal(tmp_path: Path) -> None:
    names = photos(tmp_path / "images")
    write_csv(tmp_path / "all.csv", [["image", "words"], *([name, f"say {name}"] for name in names)])
    settings = init_sources.FirstSettings(
        columns={}, questions=(), most_images=None, test=0.1, seed=0, teacher=None, student=None, gpu="L4",
        memory_gib=None, force=False, ask=lambda role, columns: columns[1],
    )  # fmt: skip
    init.init_recipe("all.csv", tmp_path / "out", settings)
    assert load(tmp_path / "out" / "recipe.toml").data["questions"].columns.question == "words"


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
    assert len((tmp_path / "new" / "train.csv").read_text().splitlines()) == 1 + {"init": 13, "split": 18}[command]


def test_a_table_in_utf_16_as_spreadsheets_write_it_is_read(tmp_path: Path) -> None:
    rows = "".join(f"photos/{name}\tWie groß ist {name}?\t3\r\n" for name in photos(tmp_path / "photos"))
    (tmp_path / "all.csv").write_text(f"Bild\tFrage\tAntwort\r\n{rows}", encoding="utf-16", newline="")
    assert distill("all.csv").exit_code == 0
    assert "groß" in read(tmp_path / "all-distill" / "recipe.toml")[0].question


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
        make_image(tmp_path, number, 40)
    rows = [first, ["1.png", "Count the squares", "2"], ["2.png", "How many?", "3"], ["3.png", "How many?", "2"]]
    write_csv(tmp_path / "rows.csv", rows)
    done = distill("rows.csv", "--out", "out")
    assert done.exit_code == 2 and f"not like column names: {cells}. It would be lost" in done.output, done.output
    assert not (tmp_path / "out").exists()


def test_names_that_a_row_repeats_are_still_names(tmp_path: Path) -> None:
    names = [Path(make_image(tmp_path, number, 40).path).name for number in range(12)]
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
    assert "if 'zahl' holds them, give --column answer=NAME" in distill("photos", "--out", "a").output
    write_csv(tmp_path / "photos" / "rows.csv", [["image", "question", "answer"], *rows])
    assert distill("photos", "--out", "b", "--column", "answer=").exit_code == 0
    assert not any(sample.answers for sample in read(tmp_path / "b" / "recipe.toml"))


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
    done = distill("more", "--out", "other")  # the user's own table, all of it
    assert done.exit_code == 0 and f"rows.parquet, {len(names)} rows" in done.output


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


@pytest.mark.parametrize("empty", ["image", "images"])
def test_of_two_usual_columns_for_images_the_one_that_holds_them_is_taken(tmp_path: Path, empty: str) -> None:
    filled = {"image": "images", "images": "image"}[empty]
    rows = [[name, "" if at else name, f"How many? {at}", "4"] for at, name in enumerate(photos(tmp_path / "data"))]
    write_csv(tmp_path / "data" / "rows.csv", [[filled, empty, "question", "answer"], *rows])
    done = distill("data", "--out", "new")
    assert f"image = '{filled}'" in done.output and "left out" not in done.output and "not read" not in done.output


def two_columns(folder: Path, first: str, second: str) -> None:
    names = photos(folder)
    pairs = zip(names, reversed(names), strict=True)
    rows = [[name, other, f"Which is larger? {at}", "4"] for at, (name, other) in enumerate(pairs)]
    write_csv(folder / "rows.csv", [[first, second, "question", "answer"], *rows])


def test_columns_of_images_that_differ_by_their_number_are_all_shown(tmp_path: Path) -> None:
    two_columns(tmp_path / "data", "image_1", "image_2")
    assert "image = ['image_1', 'image_2']" in distill("data", "--out", "new", "--test", "0.5").output
    assert {len(sample.images) for sample in read(tmp_path / "new" / "recipe.toml")} == {2}


def test_other_columns_with_images_are_named_and_can_be_given(tmp_path: Path) -> None:
    two_columns(tmp_path / "data", "image", "photo")
    assert "not read: other images, in 'photo'" in distill("data", "--out", "new").output
    both = ("--column", "image=image", "--column", "image=photo")
    done = distill("data", "--out", "both", "--test", "0.5", *both)
    assert "not read" not in done.output, done.output
    assert {len(sample.images) for sample in read(tmp_path / "both" / "recipe.toml")} == {2}


@pytest.mark.parametrize("columns", ["A B C", "option_a option_b option_c", "choice1 choice2 choice3"])
def test_a_column_for_each_choice_is_seen_and_the_question_shows_the_choices(tmp_path: Path, columns: str) -> None:
    letters = "123" if columns.endswith("3") else "ABC"
    rows = [
        [name, f"How many? {at}", "3", "4", "5" if at % 2 else "", letters[at % 2]]
        for at, name in enumerate(photos(tmp_path / "data"))
    ]
    write_csv(tmp_path / "data" / "rows.csv", [["image", "question", *columns.split(), "answer"], *rows])
    assert "guessed: format scienceqa" in distill("data", "--out", "new").output
    found = [*read(tmp_path / "new/recipe.toml"), *read(tmp_path / "new/recipe.toml", "test")]
    shown = {sample.question.partition("?")[2].partition("\n")[2]: sample.answer for sample in found}
    assert shown == {"A. 3\nB. 4": "A", "A. 3\nB. 4\nC. 5": "B"}


def test_columns_that_are_only_called_like_choices_make_no_choices(tmp_path: Path) -> None:
    rows = [[name, f"How many? {at}", "3", "4", "seven"] for at, name in enumerate(photos(tmp_path / "data"))]
    write_csv(tmp_path / "data" / "rows.csv", [["image", "question", "a", "b", "answer"], *rows])
    assert "guessed: format plain" in distill("data", "--out", "new").output


def test_paths_of_windows_lead_to_the_images_of_a_folder_here(tmp_path: Path) -> None:
    rows = [[name.replace("/", "\\"), f"How many? {name}", "4"] for name in photos(tmp_path / "data" / "shots")]
    rows = [[f"shots\\{name}", *rest] for name, *rest in rows]
    write_csv(tmp_path / "data" / "rows.csv", [["Datei", "Frage", "Antwort"], *rows], ";")
    done = distill("data", "--out", "new")
    assert "image = 'Datei'" in done.output and "left out" not in done.output
    assert len(read(tmp_path / "new/recipe.toml")) + len(read(tmp_path / "new/recipe.toml", "test")) == 20


@pytest.mark.parametrize("several", [True, False])
def test_questions_of_one_conversation_are_said_to_be_asked_alone(tmp_path: Path, several: bool) -> None:
    turns = [
        {"from": "human", "value": "<image>\nHow many bars?"},
        {"from": "gpt", "value": "4"},
        {"from": "human", "value": "And lines?"},
        {"from": "gpt", "value": "2"},
    ]
    rows = [{"image": name, "conversations": turns if several else turns[:2]} for name in photos(tmp_path / "data")]
    (tmp_path / "data" / "rows.jsonl").write_bytes(b"".join(map(orjson.dumps, rows)).replace(b"}{", b"}\n{"))
    output = distill("data", "--out", "new").output
    assert ("turns: 20 of the first 20 rows ask several questions; each is asked alone" in output) is several


@pytest.mark.parametrize(("kind", "first"), [(int, 1), (str, 1), (int, 0)])
def test_places_of_choices_that_count_from_one_are_refused(tmp_path: Path, kind: type, first: int) -> None:
    lines = [
        {"image": name, "question": f"Which? {name}", "options": ["red", "blue"], "answer": kind(first + at % 2)}
        for at, name in enumerate(photos(tmp_path / "images"))
    ]
    (tmp_path / "all.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    done = distill("all.jsonl")
    assert (done.exit_code, "seem to count from 1" in done.output) == (2 * first, bool(first))
