"""A column gives the same golds in every kind of file, whatever its type; and files of other splits are not read."""

import datetime
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds.source_rows import folder_of_images, make_image, read_one, recipe_for

from distill.answers.answer_types import infer_type
from distill.answers.verdicts import judge
from distill.data import reader
from distill.data.arrow import leave_pandas_out
from distill.data.images import image_files
from distill.data.tables.exact_json import parse_json, parse_rows
from distill.errors import DataError
from distill.types import BadRow, Sample


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_images(tmp_path)


def gold_of(folder: Path, answers: pa.Array) -> tuple[str, ...]:
    table = pa.table({"image": ["0.png"], "question": ["What is it?"], "answer": answers})
    pq.write_table(table, folder / "q.parquet")
    (sample,) = reader.samples(recipe_for(folder, "q.parquet", images_root="images"))
    return sample.answers


def test_numbers_of_a_column_of_32_bits_are_those_that_were_written(folder: Path) -> None:
    assert gold_of(folder, pa.array([14.7], pa.float32())) == ("14.7",)
    assert gold_of(folder, pa.array([[0.1, 1.3]], pa.list_(pa.float32()))) == ("0.1", "1.3")
    people = pa.array(
        [[{"answer": 0.1, "who": "a"}]], pa.list_(pa.struct([("answer", pa.float32()), ("who", "str")]))
    )
    assert gold_of(folder, people) == ("0.1",)
    assert judge("0.1", gold_of(folder, pa.array([0.1], pa.float32()))).verdict == "correct"
    assert gold_of(folder, pa.array([0.1], pa.float64())) == ("0.1",)


def test_a_column_of_times_is_read_without_pandas_and_a_day_is_a_day(folder: Path) -> None:
    leave_pandas_out()
    nanoseconds = pa.array([1388534400123456789], pa.timestamp("ns"))
    assert gold_of(folder, nanoseconds) == ("2014-01-01 00:00:00.123456",)
    for unit in ("s", "us", "ns"):
        (gold,) = gold_of(folder, pa.array([datetime.datetime(2014, 1, 1)], pa.timestamp(unit)))
        assert gold == "2014-01-01"
        assert judge("January 1, 2014", gold).verdict == "correct"


def test_the_position_of_a_choice_may_be_a_float_as_beside_empty_cells(folder: Path) -> None:
    row = {"image": "0.png", "question": "Which?", "choices": ["a", "b", "c"], "answer": 2.0}
    sample = read_one(folder, row, format="scienceqa")
    assert isinstance(sample, Sample) and sample.answers == ("C",)


def test_images_in_an_arrow_file_with_an_ending_in_capitals_are_found_again(folder: Path) -> None:
    table = pa.table({"image": [make_image(1)], "question": ["What is it?"]})
    with pa.OSFile(str(folder / "Q.ARROW"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (sample,) = reader.samples(recipe_for(folder, "Q.ARROW"))
    assert image_files.read_bytes(sample.images[0]) == make_image(1)


def test_columns_of_one_name_are_refused_and_none_hides_the_other(folder: Path) -> None:
    names, golds = ["image", "question", "answer"], [pa.array([text]) for text in ("0.png", "What?", "1")]
    doubled = pa.Table.from_arrays([*golds, pa.array(["2"])], names=[*names, "answer"])
    inner = pa.StructArray.from_arrays([pa.array(["1"]), pa.array(["2"])], names=["answer", "answer"])
    nested = pa.Table.from_arrays([*golds[:2], inner], names=names)
    pq.write_table(doubled, folder / "q.parquet")
    pq.write_table(nested, folder / "nested.parquet")
    with pa.OSFile(str(folder / "q.arrow"), "wb") as file, pa.ipc.new_file(file, doubled.schema) as writer:
        writer.write_table(doubled)
    (folder / "q.csv").write_text("image,question,answer,answer\n0.png,What?,1,2\n")
    for file in ("q.parquet", "nested.parquet", "q.arrow", "q.csv"):
        with pytest.raises(DataError, match=f"{file}: more than one column has the name 'answer'; rename them"):
            list(reader.samples(recipe_for(folder, file, images_root="images")))


def test_a_year_in_a_column_of_floats_is_a_year(folder: Path) -> None:
    gold = gold_of(folder, pa.array([2014.0], pa.float64()))
    assert judge("In 2014.", gold).verdict == "correct"
    assert judge("2015", gold, relative_tolerance=0.05).verdict == "wrong"  # a number would be near enough
    assert infer_type("2014.0") == infer_type("2014") == "year" and infer_type("2014.5") == "number"


@pytest.mark.parametrize("name", ["{}", "charts-{}", "charts_{}_human", "{}-00000-of-00001", "{}/part", "{}/a/part"])
def test_files_of_another_split_are_not_read(folder: Path, name: str) -> None:
    for split in ("train", "test", "validation"):
        path = folder / f"tables/{name.format(split)}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"image": ["0.png"], "question": [f"What is in {split}?"]}), path)
    for split in ("train", "test"):
        samples = list(reader.samples(recipe_for(folder, "tables", images_root="images", split=split)))
        assert [sample.question for sample in samples] == [f"What is in {split}?"]


def labelled(folder: Path, answers: pa.Array, feature: object) -> list[tuple[str, ...]]:
    rows = len(answers)
    table = pa.table(
        {"image": ["0.png"] * rows, "question": [f"What is {row}?" for row in range(rows)], "answer": answers}
    )
    described = orjson.dumps({"info": {"features": {"answer": feature}}})
    pq.write_table(table.replace_schema_metadata({b"huggingface": described}), folder / "q.parquet")
    return [sample.answers for sample in reader.samples(recipe_for(folder, "q.parquet", images_root="images"))]


def test_a_label_of_minus_one_is_no_answer_and_labels_in_lists_and_objects_have_their_names(folder: Path) -> None:
    label = {"_type": "ClassLabel", "names": ["cat", "dog"]}
    assert labelled(folder, pa.array([1, -1, 7]), label) == [("dog",), (), ("7",)]
    for several in ({"_type": "Sequence", "feature": label}, {"_type": "List", "feature": label}, [label]):
        assert labelled(folder, pa.array([[1], [0, 1]]), several) == [("dog",), ("cat", "dog")]
    kind = pa.list_(pa.struct([("answer", pa.int64()), ("who", pa.string())]))
    people = pa.array([[{"answer": 1, "who": "a"}]], kind)
    assert labelled(folder, people, [{"answer": label, "who": {"_type": "Value"}}]) == [("dog",)]


@pytest.mark.parametrize("feature", [3, [1], {"_type": "ClassLabel", "names": 3}, {"_type": "ClassLabel"}])
def test_a_damaged_description_of_labels_leaves_the_numbers(folder: Path, feature: object) -> None:
    assert labelled(folder, pa.array([1, 0]), feature) == [("1",), ("0",)]


@pytest.mark.parametrize("kind", [pa.large_list(pa.float32()), pa.list_(pa.float32(), 1)])
def test_numbers_of_32_bits_in_every_kind_of_list_are_those_that_were_written(
    folder: Path, kind: pa.DataType
) -> None:
    assert gold_of(folder, pa.array([[0.1]], kind)) == ("0.1",)


def test_a_column_of_clock_times_is_an_answer_as_in_a_table_of_text(folder: Path) -> None:
    assert gold_of(folder, pa.array([datetime.time(10, 30)], pa.time64("us"))) == ("10:30:00",)


@pytest.mark.parametrize("answers", [pa.array([2**62, 0], pa.timestamp("us")), pa.array([2**30, 0], pa.date32())])
def test_a_date_out_of_range_costs_its_row_alone(folder: Path, answers: pa.Array) -> None:
    table = pa.table({"image": ["0.png", "1.png"], "question": ["What?"] * 2, "answer": answers})
    pq.write_table(table, folder / "q.parquet")
    bad, good = reader.read(recipe_for(folder, "q.parquet", images_root="images"))
    assert isinstance(bad, BadRow) and bad.reason == "malformed_row" and "column 'answer'" in bad.detail
    assert isinstance(good, Sample) and good.answers == ("1970-01-01",)


@pytest.mark.parametrize("parse", [parse_json, parse_rows])
def test_a_long_number_below_a_thousand_levels_is_no_json(parse: Callable[[bytes], object]) -> None:
    with pytest.raises(orjson.JSONDecodeError, match="a thousand levels"):
        parse(b"[" * 1020 + b"1234567890123456789012" + b"]" * 1020)
