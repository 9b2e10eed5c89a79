"""`distill init` on data as public sets lay it out: splits, tables in their own folders, images named by numbers."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds.init_data import distill, photos, read, write_csv

from distill.data import table_search
from distill.errors import DataError
from distill.recipe.loading import load


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def images(folder: Path, names: list[str]) -> list[str]:
    """Different images under these names below `folder`; the names."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(17 * number, fillcolor=9 * number).save(path, "PNG")
    return names


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def made(*arguments: str) -> str:
    done = distill(*arguments, "--out", "new")
    assert done.exit_code == 0, done.output
    return done.output


def refused(*arguments: str) -> str:
    done = distill(*arguments, "--out", "new")
    assert done.exit_code == 2, done.output
    return done.output


def names_of_images() -> set[str]:
    recipe = Path("new/recipe.toml")
    samples = [sample for name in load(recipe).data for sample in read(recipe, name)]
    return {Path(ref.path).name for sample in samples for ref in sample.images}


def test_without_a_split_train_another_one_is_used_and_named(tmp_path: Path) -> None:
    names = photos(tmp_path / "data" / "images")
    for split, chosen in (("test", names[:5]), ("validation", names[5:])):
        rows = [{"image": f"images/{name}", "question": "How many?", "answer": "2"} for name in chosen]
        (tmp_path / "data" / "data").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "data" / f"{split}-00000.parquet")
    assert "split: validation; the data has no split train (splits: test, validation)" in made("data")
    assert len(names_of_images()) == 15
    assert load(Path("new/recipe.toml")).data["questions"].split == "train"  # of the file that was written


def test_a_table_in_a_folder_beside_that_of_the_images_is_found(tmp_path: Path) -> None:
    names = images(tmp_path / "data" / "train", [f"VizWiz_train_{number}.jpg" for number in range(8)])
    rows = [{"image": name, "question": "What is it?", "answers": [{"answer": "cup"}]} for name in names]
    write_json(tmp_path / "data" / "Annotations" / "train.json", rows)
    write_json(tmp_path / "data" / "Annotations" / "val.json", rows[:2])
    made("data")
    assert names_of_images() == set(names)


def test_rows_by_key_whose_images_are_named_by_number_are_read(tmp_path: Path) -> None:
    images(tmp_path / "data" / "images", [f"{number}.jpg" for number in range(100, 108)])
    rows = {str(at): {"question": f"What is {at}?", "answer": "red", "imageId": str(100 + at)} for at in range(8)}
    write_json(tmp_path / "data" / "questions1.2" / "train_balanced_questions.json", rows)
    assert "image = 'imageId'" in made("data")
    assert names_of_images() == {f"{number}.jpg" for number in range(100, 108)}


def test_an_image_number_of_coco_leads_to_its_file_and_an_index_of_choices_is_the_answer(tmp_path: Path) -> None:
    images(tmp_path / "data" / "train2017", [f"{number:012d}.jpg" for number in range(8)])
    rows = [
        {
            "image_id": at,
            "question": f"Which is {at}?",
            "choices": ["red", "blue"],
            "direct_answers": ["red"] * 10,
            "correct_choice_idx": at % 2,
        }
        for at in range(8)
    ]
    write_json(tmp_path / "data" / "aokvqa_train.json", rows)
    write_json(tmp_path / "data" / "aokvqa_val.json", rows[:1])
    assert "answer = 'correct_choice_idx'" in made("data")
    assert {sample.answers for sample in read(Path("new/recipe.toml"))} == {("A",), ("B",)}
    assert len(names_of_images()) == 8


def test_all_files_of_one_split_with_the_same_columns_are_one_table(tmp_path: Path) -> None:
    names = images(tmp_path / "data" / "train" / "png", [f"{number}.png" for number in range(12)])
    for kind, chosen in (("human", names[:5]), ("augmented", names[5:])):
        rows = [{"imgname": name, "query": "How many?", "label": "2"} for name in chosen]
        write_json(tmp_path / "data" / "train" / f"train_{kind}.json", rows)
    write_json(tmp_path / "data" / "val" / "val_human.json", [{"imgname": "0.png", "query": "How many?"}])
    for name in names:
        write_json(tmp_path / "data" / "train" / "annotations" / f"{name}.json", {"type": "bar"})
    made("data")
    assert names_of_images() == set(names)


def test_several_tables_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_json(tmp_path / "data" / folder / "rows.json", [{"question": "What?", "image": "1.png"}])
    with pytest.raises(DataError, match=r"several tables with questions \(a/rows.json, b/rows.json\); give one"):
        table_search.find(tmp_path / "data")


def test_of_two_columns_with_paths_the_one_whose_files_are_there_is_taken(tmp_path: Path) -> None:
    names = images(tmp_path / "data" / "imgs", [f"{folder}/img_{at}.jpg" for folder in ("a", "b") for at in range(5)])
    rows = [[Path(name).name, name, f"What is {at}?"] for at, name in enumerate(names)]
    write_csv(tmp_path / "data" / "rows.csv", [["file_name", "file_path", "question"], *rows])
    assert "image = 'file_path'" in made("data")
    assert {"a", "b"} == {Path(ref.path).parent.name for each in read(Path("new/recipe.toml")) for ref in each.images}


def test_a_number_names_no_image_of_another_table_beside(tmp_path: Path) -> None:
    images(tmp_path / "other", [f"{number}.jpg" for number in range(8)])
    (tmp_path / "data").mkdir()
    write_csv(tmp_path / "data" / "rows.csv", [["id", "question"], *([str(at), "What?"] for at in range(8))])
    assert "which column holds the image?" in refused("data")


def test_answer_types_of_another_kind_are_left_out(tmp_path: Path) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(6)])
    rows = [[name, f"What is {name}?", "red", "OPEN"] for name in names]
    write_csv(tmp_path / "data" / "rows.csv", [["image", "question", "answer", "answer_type"], *rows])
    assert "answer_type = ''" in made("data")
    assert len(names_of_images()) == 6


def test_choices_in_one_text_are_shown_as_choices(tmp_path: Path) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(6)])
    rows = [[name, f"How many in {name}?", "(a) 4 (b) 1", f"({'ab'[at % 2]})"] for at, name in enumerate(names)]
    write_csv(tmp_path / "data" / "rows.csv", [["image", "Question", "Options", "Correct Answer"], *rows])
    made("data")
    samples = read(Path("new/recipe.toml"))
    assert {sample.answers for sample in samples} == {("A",), ("B",)}
    assert all(sample.question.endswith("A. 4\nB. 1") for sample in samples)


def test_an_archive_beside_a_table_is_named_where_images_are_missing(tmp_path: Path) -> None:
    rows = [{"image": f"images/{at}.jpg", "question": "What?"} for at in range(6)]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "rows.parquet")
    (tmp_path / "data" / "images.zip").write_bytes(b"")
    assert "images.zip may hold the images: unpack it" in refused("data")


@pytest.mark.parametrize("file", ["splits/train.json", "images/0.txt"])
def test_images_with_files_that_may_be_about_them_get_no_questions_of_our_own(tmp_path: Path, file: str) -> None:
    names = images(tmp_path / "data" / "images", [f"{number}.jpg" for number in range(8)])
    rows = [{"image": name, "caption": "The cat is above the dog."} for name in names]
    write_json(tmp_path / "data" / file, rows)
    assert f"1 file such as {file} may be about the images" in refused("data")
    (tmp_path / "data" / file).rename(tmp_path / "data" / "images" / "README.txt")
    made("data")


@pytest.mark.parametrize("name", ["{}.jpg", "image.png"])
def test_images_of_the_same_names_in_several_folders_are_refused(tmp_path: Path, name: str) -> None:
    names = [name.format(number) for number in range(8)]
    images(tmp_path / "data", [f"{folder}/{name}" for name in names for folder in ("a", "b")])
    rows = [{"image": name, "question": f"What is {at}?", "answer": "red"} for at, name in enumerate(names)]
    write_json(tmp_path / "data" / "rows" / "train.json", rows)
    assert "several folders have images of the same names" in refused("data")


@pytest.mark.parametrize("within", ["", "rows.json"])
def test_a_name_leads_to_no_image_of_another_data_set_beside(tmp_path: Path, within: str) -> None:
    names = images(tmp_path / "other", [f"images/{number}.jpg" for number in range(7)])
    rows = [{"image": name, "question": "What?", "answer": "red"} for name in (*names, "images/7.jpg")]
    write_json(tmp_path / "data" / "rows.json", rows)
    assert "missing_image: 8" in refused(f"data/{within}")


def test_a_path_that_leads_nowhere_gives_way_to_a_column_with_the_images(tmp_path: Path) -> None:
    images(tmp_path / "other", [f"images/{number}.jpg" for number in range(8)])
    names = images(tmp_path / "pixels", [f"{number}.png" for number in range(8)])
    rows = [
        {
            "question": f"What is {at}?",
            "image": f"images/{at}.jpg",
            "decoded_image": {"bytes": (tmp_path / "pixels" / name).read_bytes(), "path": None},
        }
        for at, name in enumerate(names)
    ]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "rows.parquet")
    assert "image = 'decoded_image'" in made("data")


@pytest.mark.parametrize("empty", [[], "[]"])
def test_choices_stay_where_other_rows_have_an_empty_list_of_them(tmp_path: Path, empty: Any) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(8)])
    rows = [{"image": name, "question": f"How many in {name}?", "options": empty, "answer": "7"} for name in names]
    for row in rows[::2]:
        row |= {"options": ["4", "1"] if empty == [] else "['4', '1']", "answer": "B"}
    write_json(tmp_path / "data" / "rows.json", rows)
    assert "format scienceqa" in made("data")
    shown = {(sample.question.partition("\n")[2], sample.answer) for sample in read(Path("new/recipe.toml"))}
    assert shown == {("A. 4\nB. 1", "B"), ("", "7")}


def test_choices_that_cannot_be_read_cost_their_rows_and_are_not_left_out_of_the_question(tmp_path: Path) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(8)])
    rows = [{"image": name, "question": f"{name}?", "options": ["4", "1"], "answer": "B"} for name in names]
    rows[3]["options"] = [{"x": 4}]
    write_json(tmp_path / "data" / "rows.json", rows)
    assert "bad_choices: 1" in made("data")


def test_choices_without_the_right_one_are_refused_and_not_left_out_of_the_question(tmp_path: Path) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(8)])
    rows = [
        {"image": name, "question": f"{name}?", "multiple_choices": ["4", "1"], "answer": "two"} for name in names
    ]
    write_json(tmp_path / "data" / "rows.json", rows)
    assert "bad_answer: 8" in refused("data")
    write_json(tmp_path / "data" / "rows.json", [{**row, "answer": "4"} for row in rows])
    made("data")
    assert {sample.answer for sample in read(Path("new/recipe.toml"))} == {"A"}


def test_the_share_of_test_rows_grows_where_each_image_has_many(tmp_path: Path) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(4)])
    rows = [[name, f"What is {at}?", "4"] for name in names for at in range(3)]
    write_csv(tmp_path / "data" / "rows.csv", [["image", "question", "answer"], *rows])
    made("data")
    assert len(read(Path("new/recipe.toml"), "test")) == 3


def test_answers_of_another_file_are_joined_by_the_id_of_the_question(tmp_path: Path) -> None:
    images(tmp_path / "data" / "train2014", [f"COCO_train2014_{number:012d}.jpg" for number in range(8)])
    asked = [{"image_id": at // 2, "question": f"What is {at}?", "question_id": 10 * at} for at in range(8)]
    answered = [
        {"question_id": 10 * at, "image_id": at // 2, "answers": [{"answer": f"cup {at}"}]} for at in range(8)
    ]
    for split in ("train", "val"):
        write_json(tmp_path / "data" / f"v2_mscoco_{split}2014_questions.json", {"info": {}, "questions": asked})
        write_json(tmp_path / "data" / f"v2_mscoco_{split}2014_annotations.json", {"annotations": answered[::-1]})
    printed = made("data")
    assert "answers: of " in printed and "train2014_annotations.json, by the column 'question_id'" in printed
    for sample in read(Path("new/recipe.toml")):
        number = int(sample.question.split()[-1].rstrip("?"))
        assert sample.answers == (f"cup {number}",) and sample.images[0].path.endswith(f"{number // 2}.jpg")


def test_answers_are_not_joined_by_an_id_that_may_be_of_something_else(tmp_path: Path) -> None:
    names = images(tmp_path / "data" / "images", [f"{number}.jpg" for number in range(8)])
    asked = [{"id": at, "image": name, "question": f"What is {at}?"} for at, name in enumerate(names)]
    write_json(tmp_path / "data" / "questions_train.json", asked)
    write_json(tmp_path / "data" / "captions_train.json", [{"id": at, "label": "a dog"} for at in range(8)])
    assert "answers: of" not in made("data")
    assert {sample.answers for sample in read(Path("new/recipe.toml"))} == {()}


def test_a_damaged_line_in_a_table_below_costs_that_row_alone(tmp_path: Path) -> None:
    names = images(tmp_path / "data" / "images", [f"{number}.jpg" for number in range(8)])
    lines = [json.dumps({"image": name, "question": "What?", "answer": "cup"}) for name in names]
    (tmp_path / "data" / "annotations").mkdir()
    (tmp_path / "data" / "annotations" / "rows.jsonl").write_text("\n".join(["{", *lines]))
    assert "left out: 1 row that cannot be used" in made("data")
    assert names_of_images() == set(names)


def test_columns_query_and_label_are_read_with_an_image_column_of_any_name(tmp_path: Path) -> None:
    names = images(tmp_path / "data", [f"{number}.png" for number in range(12)])
    write_json(tmp_path / "data/rows.json", [{"img": name, "query": "How many?", "label": "2"} for name in names])
    assert "guessed: format chartqa; image = 'img' (" in made("data")
    assert names_of_images() == set(names)


def test_a_refusal_is_stated_once_and_one_row_is_no_rows(tmp_path: Path) -> None:
    names = images(tmp_path / "data", ["0.png", "1.png", "2.png"])
    rows = [{"image": name, "question": "Which?", "A": "red", "B": "blue", "right": "A"} for name in names]
    write_json(tmp_path / "data/rows.json", rows)
    assert refused("data").count("seem to hold choices") == 1
    write_json(tmp_path / "data/rows.json", [{"image": name, "question": "Which?", "answer": "2"} for name in names])
    assert "test.jsonl: 1 row, 1 image\n" in made("data")
