"""Data sources: every kind of source, every format, every reason a row is left out, ids, limits, fingerprints."""

import csv
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from distill.data import images, reader
from distill.errors import DataError, MissingExtra, RecipeError
from distill.recipe import loading
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample

Rows = Sequence[dict[str, Any]]


def picture(number: int, size: int = 6) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), (number % 256, number // 256, 0)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for number in range(8):
        (tmp_path / "images" / f"{number}.png").write_bytes(picture(number))
    return tmp_path


def plain(count: int = 4) -> list[dict[str, Any]]:
    return [
        {"image": f"{number}.png", "question": f"What is {number}?", "answer": str(number)} for number in range(count)
    ]


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made(folder: Path, source: str = "q.jsonl", columns: str = "", **settings: Any) -> Recipe:
    """A recipe in `folder` whose questions come from `source`."""
    values = {"source": source, **settings}
    lines = ["[data.questions]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "r.toml").write_text("\n".join([*lines, "[data.questions.columns]", columns]))
    return loading.load(folder / "r.toml")


def read(folder: Path, rows: Rows, **settings: Any) -> list[Sample | BadRow]:
    write_jsonl(folder / "q.jsonl", rows)
    return list(reader.read(made(folder, **{"images_root": "images", **settings})))


def only(folder: Path, row: dict[str, Any], **settings: Any) -> Sample | BadRow:
    (found,) = read(folder, [row], **settings)
    return found


# --- kinds of sources -------------------------------------------------------------------------------------------


def write_table(folder: Path, kind: str, rows: list[dict[str, Any]]) -> str:
    path = folder / f"q.{kind}"
    if kind == "jsonl":
        write_jsonl(path, rows)
    elif kind == "json":
        path.write_text(json.dumps(rows))
    elif kind in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path.name


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_every_kind_of_file_gives_the_same_samples(folder: Path, kind: str) -> None:
    found = list(reader.samples(made(folder, write_table(folder, kind, plain()), images_root="images")))
    expected = [sample for sample in read(folder, plain()) if isinstance(sample, Sample)]
    assert found == expected
    assert [sample.question for sample in found] == [row["question"] for row in plain()]
    assert [sample.answer for sample in found] == ["0", "1", "2", "3"]
    assert images.read_bytes(found[2].images[0]) == picture(2)


def test_a_json_file_may_hold_an_object_around_its_rows_or_json_lines(folder: Path) -> None:
    (folder / "q.json").write_text(json.dumps({"info": {"version": 1}, "questions": plain()}))
    assert len(list(reader.samples(made(folder, "q.json", images_root="images")))) == 4
    write_jsonl(folder / "q.json", plain())
    assert len(list(reader.samples(made(folder, "q.json", images_root="images")))) == 4
    (folder / "q.json").write_text(json.dumps({"train": plain(), "test": plain()}))
    with pytest.raises(DataError, match="several lists"):
        list(reader.samples(made(folder, "q.json", images_root="images")))


def embedded(count: int = 4) -> datasets.Dataset:
    rows = {
        "image": [{"bytes": picture(number), "path": None} for number in range(count)],
        "question": [f"What is {number}?" for number in range(count)],
        "answer": [number % 2 for number in range(count)],
    }
    features = {
        "image": datasets.Image(),
        "question": datasets.Value("string"),
        "answer": datasets.ClassLabel(names=["no", "yes"]),
    }
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def test_images_embedded_in_parquet_and_in_a_saved_dataset_are_referred_to_in_place(folder: Path) -> None:
    embedded().save_to_disk(str(folder / "saved"))
    datasets.DatasetDict(train=embedded(), test=embedded(1)).save_to_disk(str(folder / "splits"))
    embedded().to_parquet(str(folder / "q.parquet"))
    (folder / "shards" / "data").mkdir(parents=True)
    for shard in range(2):
        file = folder / "shards" / "data" / f"train-0000{shard}-of-00002.parquet"
        embedded().select(range(2 * shard, 2 * shard + 2)).to_parquet(str(file))
    embedded(1).to_parquet(str(folder / "shards" / "data" / "test-00000-of-00001.parquet"))
    expected = None
    for source in ("saved", "splits", "q.parquet", "shards"):
        found = list(reader.samples(made(folder, source)))
        assert [images.read_bytes(sample.images[0]) for sample in found] == [picture(number) for number in range(4)]
        assert [sample.answer for sample in found] == ["no", "yes", "no", "yes"]
        expected = expected or [sample.id for sample in found]
        assert [sample.id for sample in found] == expected
    for source in ("splits", "shards"):
        assert len(list(reader.samples(made(folder, source, split="test")))) == 1


def test_a_saved_dataset_needs_no_datasets_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded().save_to_disk(str(folder / "saved"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert len(list(reader.samples(made(folder, "saved")))) == 4


def test_an_image_folder_with_a_table_is_a_source(folder: Path) -> None:
    rows = [{"file_name": f"{number}.png", "question": "What?", "answer": "x"} for number in range(3)]
    write_jsonl(folder / "images" / "metadata.jsonl", rows)
    found = list(reader.samples(made(folder, "images")))
    assert [images.read_bytes(sample.images[0]) for sample in found] == [picture(number) for number in range(3)]
    (folder / "images" / "metadata.jsonl").rename(folder / "images" / "labels.jsonl")
    assert list(reader.samples(made(folder, "images"))) == found


def test_a_hub_name_goes_through_the_datasets_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded().to_parquet(str(folder / "hub.parquet"))
    load = datasets.load_dataset
    asked: list[tuple[str, str | None, str]] = []

    def offline(name: str, subset: str | None, *, split: str) -> datasets.Dataset:
        asked.append((name, subset, split))
        return load("parquet", data_files=str(folder / "hub.parquet"), split=split, cache_dir=str(folder / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", offline)
    settings = made(folder, "somebody/charts", subset="bars", split="train")
    found = list(reader.samples(settings))
    assert asked == [("somebody/charts", "bars", "train")]
    assert [images.read_bytes(sample.images[0]) for sample in found] == [picture(number) for number in range(4)]
    fields = reader.source_fields(settings)
    assert (fields["source"], fields["subset"], fields["split"]) == ("somebody/charts", "bars", "train")


def test_a_hub_name_without_the_datasets_library_names_the_pip_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'cot-distill\[train\]'"):
        list(reader.samples(made(folder, "somebody/charts")))


def test_a_hub_name_that_cannot_be_loaded_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> datasets.Dataset:
        raise FileNotFoundError("Dataset 'somebody/charts' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", missing)
    with pytest.raises(DataError, match="doesn't exist on the Hub"):
        list(reader.samples(made(folder, "somebody/charts")))


# --- formats ----------------------------------------------------------------------------------------------------


def test_plain_columns_are_mapped_and_extra_facts_kept(folder: Path) -> None:
    row = {
        "picture": ["0.png", "1.png"],
        "ask": " <image><image>\nWhich? ",
        "gold": ["A cat", "cat", "A cat"],
        "kind": "text",
        "field": "animals",
        "meta": {"source": 7},
    }
    columns = 'image = "picture"\nquestion = "ask"\nanswer = "gold"\nanswer_type = "kind"\ndomain = "field"'
    sample = only(folder, row, columns=columns)
    assert isinstance(sample, Sample)
    assert (sample.question, sample.answers, sample.answer_type) == ("Which?", ("A cat", "cat"), "text")
    assert (sample.domain, sample.meta) == ("animals", {"source": 7})
    assert [images.read_bytes(ref) for ref in sample.images] == [picture(0), picture(1)]


def test_further_facts_may_be_an_object_or_its_json_text(folder: Path) -> None:
    for meta in ({"options": ["a", "b"]}, '{"options": ["a", "b"]}'):
        sample = only(folder, {**plain()[0], "meta": meta})
        assert isinstance(sample, Sample) and sample.meta == {"options": ["a", "b"]}
    for meta in (None, "words", "{torn", [1]):
        sample = only(folder, {**plain()[0], "meta": meta})
        assert isinstance(sample, Sample) and sample.meta == {}


def test_a_source_may_give_the_domain_and_answer_type_of_all_its_rows(folder: Path) -> None:
    rows = [plain()[0], {**plain()[1], "domain": "own", "answer_type": "number"}]
    found = read(folder, rows, domain="charts", answer_type="text")
    assert [(sample.domain, sample.answer_type) for sample in found if isinstance(sample, Sample)] == [
        ("charts", "text"),
        ("own", "number"),
    ]


def test_questions_without_images_are_read_when_asked_for(folder: Path) -> None:
    sample = only(folder, {"question": "Why?", "answer": "So."}, columns='image = ""')
    assert isinstance(sample, Sample) and sample.images == ()


@pytest.mark.parametrize("answer", [None, "", " ", []])
def test_a_gold_answer_is_optional(folder: Path, answer: Any) -> None:
    sample = only(folder, {**plain()[0], "answer": answer})
    assert isinstance(sample, Sample) and sample.answers == () and sample.answer is None


@pytest.mark.parametrize(
    ("answer", "gold"),
    [(Decimal("12.50"), ("12.50",)), (date(2024, 2, 29), ("2024-02-29",)), (float("nan"), ()), (float("inf"), ())],
)
def test_a_column_of_numbers_or_dates_holds_gold_answers_and_nan_is_none(
    folder: Path, answer: Any, gold: tuple[str, ...]
) -> None:
    rows = [{**row, "answer": answer} for row in plain()]
    found = list(reader.read(made(folder, write_table(folder, "parquet", rows), images_root="images")))
    assert [sample.answers for sample in found if isinstance(sample, Sample)] == [gold] * 4


def test_finevision_gives_a_sample_a_turn(folder: Path) -> None:
    row = {
        "images": ["0.png"],
        "texts": [{"user": "What?", "assistant": "A cat."}, {"user": "Where?", "assistant": "Here."}],
        "source": "x",
    }
    found = read(folder, [row], format="finevision")
    assert [(sample.question, sample.answer) for sample in found if isinstance(sample, Sample)] == [
        ("What?", "A cat."),
        ("Where?", "Here."),
    ]
    stored_as_lists = {"images": ["0.png"], "texts": {"user": ["What?", "Where?"], "assistant": ["A cat.", "Here."]}}
    assert read(folder, [stored_as_lists], format="finevision") == found


def test_llava_and_sharegpt_spellings_give_the_same_samples(folder: Path) -> None:
    pairs = [("<image>\nWhat?", "A cat."), ("Where?", "Here.")]
    spoken = [turn for ask, say in pairs for turn in ({"from": "human", "value": ask}, {"from": "gpt", "value": say})]
    roles = [
        turn
        for ask, say in pairs
        for turn in ({"role": "user", "content": ask}, {"role": "assistant", "content": say})
    ]
    parts = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        *roles[2:],
    ]
    llava = read(folder, [{"image": "0.png", "conversations": spoken}], format="llava")
    assert [(sample.question, sample.answer) for sample in llava if isinstance(sample, Sample)] == [
        ("What?", "A cat."),
        ("Where?", "Here."),
    ]
    assert read(folder, [{"images": ["0.png"], "messages": roles}], format="llava") == llava
    assert read(folder, [{"images": ["0.png"], "messages": parts}], format="llava") == llava
    text_only = read(folder, [{"conversations": [{"from": "human", "value": "Why?"}]}], format="llava")
    assert [sample.images for sample in text_only if isinstance(sample, Sample)] == [()]


def test_chartqa_is_read_from_the_hub_layout_and_from_the_original_files(folder: Path) -> None:
    (folder / "images" / "png").mkdir()
    (folder / "images" / "png" / "c.png").write_bytes(picture(1))
    hub = only(folder, {"image": "1.png", "query": "How many?", "label": ["14", "fourteen"]}, format="chartqa")
    original = only(folder, {"imgname": "c.png", "query": "How many?", "label": "14"}, format="chartqa")
    assert isinstance(hub, Sample) and isinstance(original, Sample)
    assert hub.id == original.id
    assert (hub.answers, original.answers) == (("14", "fourteen"), ("14",))


def test_cocoqa_is_read_from_tables_and_from_the_published_text_files(folder: Path) -> None:
    name = "COCO_train2014_000000000042.jpg"
    (folder / "images" / "train2014").mkdir()
    (folder / "images" / "train2014" / name).write_bytes(picture(3))
    by_number = only(folder, {"image_id": 42, "question": "what is it", "answer": "cat", "type": 0}, format="cocoqa")
    assert isinstance(by_number, Sample) and by_number.meta == {"type": 0}
    assert images.read_bytes(by_number.images[0]) == picture(3)
    (folder / "coco" / "train").mkdir(parents=True)
    for file, line in (("questions", "what is it"), ("answers", "cat"), ("img_ids", "42"), ("types", "0")):
        (folder / "coco" / "train" / f"{file}.txt").write_text(line + "\n")
    (from_text,) = reader.samples(made(folder, "coco", format="cocoqa", images_root="images"))
    assert (from_text.id, from_text.answer) == (by_number.id, "cat")
    turns = only(
        folder, {"images": ["3.png"], "texts": [{"user": "what is it", "assistant": "cat"}]}, format="cocoqa"
    )
    assert isinstance(turns, Sample) and turns.id == by_number.id


def test_scienceqa_becomes_a_lettered_choice(folder: Path) -> None:
    row = {"image": "0.png", "question": "Which?", "choices": ["red", "blue"], "answer": 1, "hint": "Look."}
    sample = only(folder, row, format="scienceqa")
    assert isinstance(sample, Sample)
    assert sample.question == "Look.\n\nWhich?\nA. red\nB. blue"
    assert (sample.answers, sample.answer_type, sample.meta) == (("B",), "choice", {"options": ["red", "blue"]})
    without = only(folder, {**row, "image": None, "hint": ""}, format="scienceqa")
    assert isinstance(without, Sample) and without.images == ()


# --- bad rows ---------------------------------------------------------------------------------------------------


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such image": ({"image": "99.png"}, "missing_image"),
    "no image": ({"image": None}, "empty_image_cell"),
    "empty image": ({"image": ""}, "empty_image_cell"),
    "no image in the list": ({"image": []}, "empty_image_cell"),
    "one of two images missing": ({"image": ["0.png", None]}, "empty_image_cell"),
    "outside the root": ({"image": "../q.jsonl"}, "path_outside_root"),
    "absolute path outside": ({"image": "/etc/hostname"}, "path_outside_root"),
    "not a picture": ({"image": "notes.png"}, "unreadable_image"),
    "cut off": ({"image": "cut.png"}, "truncated_image"),
    "zero bytes": ({"image": "zero.png"}, "empty_image"),
    "too large": ({"image": "large.png"}, "too_many_pixels"),
    "a folder": ({"image": "."}, "unreadable_image"),
    "on the network": ({"image": "https://example.org/a.png"}, "unsupported_image_cell"),
    "inside the text": ({"image": "data:image/png;base64,AAAA"}, "unsupported_image_cell"),
    "a number for an image": ({"image": 7}, "unsupported_image_cell"),
    "empty question": ({"question": " <image> "}, "empty_question"),
    "no question": ({"question": None}, "empty_question"),
    "question is a list": ({"question": ["a"]}, "malformed_row"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_counted_with_its_reason_and_the_others_survive(folder: Path, name: str) -> None:
    (folder / "images" / "notes.png").write_text("no picture")
    (folder / "images" / "cut.png").write_bytes(picture(1)[:-30])
    (folder / "images" / "zero.png").write_bytes(b"")
    (folder / "images" / "large.png").write_bytes(picture(1, size=40))
    change, reason = BAD[name]
    found = read(folder, [plain()[0], {**plain()[1], **change}, plain()[2]], max_pixels=1000)
    assert [type(item) for item in found] == [Sample, BadRow, Sample]
    bad = found[1]
    assert isinstance(bad, BadRow)
    assert (bad.reason, bad.row) == (reason, 2)
    assert bad.source.endswith("q.jsonl") and bad.detail


FORMAT_BAD = [
    ("llava", {"image": "0.png", "conversations": "hello"}, "malformed_row"),
    ("llava", {"image": "0.png", "conversations": [{"from": "nobody", "value": "x"}]}, "malformed_row"),
    (
        "llava",
        {"image": "0.png", "conversations": [{"from": "human", "value": "<image><image>x"}]},
        "image_count_mismatch",
    ),
    ("llava", {"image": "0.png", "conversations": [{"from": "human", "value": "<image>"}]}, "empty_question"),
    ("finevision", {"images": ["0.png"], "texts": []}, "malformed_row"),
    ("finevision", {"images": ["0.png"], "texts": [{"user": None, "assistant": "x"}]}, "empty_question"),
    ("scienceqa", {"image": "0.png", "question": "x", "choices": [], "answer": 0}, "bad_choices"),
    ("scienceqa", {"image": "0.png", "question": "x", "choices": ["a"], "answer": 3}, "bad_answer"),
    ("scienceqa", {"image": "0.png", "question": "x", "choices": ["a", None], "answer": 0}, "bad_choices"),
    ("chartqa", {"image": "", "query": "x", "label": "1"}, "empty_image_cell"),
    ("chartqa", {"image": "0.png", "query": "x", "label": {"value": 1}}, "bad_answer"),
]


@pytest.mark.parametrize(("kind", "row", "reason"), FORMAT_BAD)
def test_a_row_that_breaks_its_format_has_a_reason(folder: Path, kind: str, row: dict[str, Any], reason: str) -> None:
    found = only(folder, row, format=kind)
    assert isinstance(found, BadRow) and found.reason == reason


@pytest.mark.parametrize("columns", ["", 'answer_type = "answer_type"'])
def test_an_unknown_answer_type_is_a_reason_and_names_the_nearest(folder: Path, columns: str) -> None:
    for kind in ("nubmer", "currency", 7):
        found = only(folder, {**plain()[0], "answer_type": kind}, columns=columns)
        assert isinstance(found, BadRow) and found.reason == "unknown_answer_type"
        assert repr(kind) in found.detail and 'columns.answer_type = ""' in found.detail
    assert "did you mean 'number'?" in only(folder, {**plain()[0], "answer_type": "nubmer"}).detail


def test_empty_cells_and_the_kinds_of_known_data_sets_are_answer_types(folder: Path) -> None:
    kinds = {"": None, "Money ": "money", "other": None, "yes/no": None, "integer": "number"}
    for kind, expected in kinds.items():
        found = only(folder, {**plain()[0], "answer_type": kind})
        assert isinstance(found, Sample) and found.answer_type == expected
    ignored = only(folder, {**plain()[0], "answer_type": "currency"}, columns='answer_type = ""')
    assert isinstance(ignored, Sample) and ignored.answer_type is None


def test_a_source_of_unknown_answer_types_is_refused_wherever_it_is_read(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", [{**row, "answer_type": "currency"} for row in plain(3)])
    with pytest.raises(DataError, match="unknown_answer_type: 3"):
        list(reader.samples(made(folder, images_root="images")))


def test_lines_that_are_no_rows_are_counted_and_skipped(folder: Path) -> None:
    lines = [json.dumps(row).encode() for row in plain(2)]
    lines[1:1] = [b"{torn", b"[1, 2]", b"\xff\xfe", b'{"image": "\\ud800"}', b""]
    (folder / "q.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    found = list(reader.read(made(folder, images_root="images")))
    reasons = [item.reason if isinstance(item, BadRow) else "good" for item in found]
    assert reasons == ["good", "malformed_row", "malformed_row", "malformed_row", "malformed_row", "good"]


def test_csv_rows_of_the_wrong_width_or_encoding_are_counted(folder: Path) -> None:
    lines = [b"image,question,answer", b"0.png,a,b", b"1.png,a", b"2.png,a,b,c", b"3.png,\xff,b", b'4.png,"a,\n1",b']
    (folder / "q.csv").write_bytes(b"\n".join(lines))
    found = list(reader.read(made(folder, "q.csv", images_root="images")))
    assert [item.reason if isinstance(item, BadRow) else item.question for item in found] == [
        "a",
        "malformed_row",
        "malformed_row",
        "malformed_row",
        "a,\n1",
    ]


def test_repeated_rows_are_left_out_and_conflicting_ones_named(folder: Path) -> None:
    rows = [plain()[0], plain()[0], {**plain()[0], "answer": "9"}, {**plain()[0], "image": "./0.png"}]
    found = read(folder, rows)
    assert isinstance(found[0], Sample)
    assert [item.reason for item in found[1:] if isinstance(item, BadRow)] == [
        "duplicate_row",
        "conflicting_answer",
        "duplicate_row",
    ]


# --- ids, limits, shares ----------------------------------------------------------------------------------------


def test_ids_follow_content_and_not_position_or_place(folder: Path) -> None:
    rows = plain(8)
    ids = {sample.question: sample.id for sample in read(folder, rows) if isinstance(sample, Sample)}
    random.Random(0).shuffle(rows)
    (folder / "images").rename(folder / "moved")
    again = {
        sample.question: sample.id
        for sample in read(folder, [*rows, {"image": "0.png", "question": "new"}], images_root="moved")
        if isinstance(sample, Sample)
    }
    assert {question: again[question] for question in ids} == ids
    assert len(set(again.values())) == 9
    assert all(len(name) == 20 and int(name, 16) >= 0 for name in ids.values())
    (folder / "moved" / "0.png").write_bytes(picture(200))
    changed = {
        sample.question: sample.id for sample in read(folder, rows, images_root="moved") if isinstance(sample, Sample)
    }
    assert {question for question in ids if changed[question] != ids[question]} == {"What is 0?"}


def test_the_id_of_a_known_sample_never_changes() -> None:
    assert reader.sample_id("What is it?", ["ab" * 32, "cd" * 32]) == "e7c200942172e5c569f2"
    assert reader.sample_id("ab", ["c"]) != reader.sample_id("a", ["bc"])


def test_a_limit_counts_samples_and_reads_no_further(folder: Path) -> None:
    rows: list[dict[str, Any]] = [{"image": "99.png", "question": "x"}, *plain(6)]
    found = read(folder, rows, limit=3, max_bad_share=1.0)
    assert [type(item) for item in found] == [BadRow, Sample, Sample, Sample]


def test_too_many_bad_rows_stop_the_run_with_counts_and_examples(folder: Path) -> None:
    write_jsonl(
        folder / "q.jsonl", [*plain(6), *({"image": f"{number}.gif", "question": "x"} for number in range(4))]
    )
    told: list[BadRow] = []
    found: list[Sample] = []
    with pytest.raises(DataError) as caught:
        for sample in reader.samples(made(folder, images_root="images", max_bad_share=0.3), on_bad=told.append):
            found.append(sample)
    message = str(caught.value)
    assert (len(found), len(told)) == (6, 4)
    assert "4 of 10 rows" in message and "missing_image: 4" in message and "max_bad_share = 0.3" in message
    assert message.count(".gif: no such file") == 3
    assert len(list(reader.samples(made(folder, images_root="images", max_bad_share=0.4)))) == 6


def test_repeated_rows_do_not_count_as_bad(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", [plain()[0]] * 10)
    assert len(list(reader.samples(made(folder, images_root="images", max_bad_share=0.0)))) == 1


# --- sources that cannot be used --------------------------------------------------------------------------------


def refused(folder: Path, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(reader.samples(made(folder, **settings)))
    return str(caught.value)


def test_a_source_that_cannot_be_used_says_what_where_and_the_nearest_name(folder: Path) -> None:
    write_jsonl(folder / "questions.jsonl", plain())
    (folder / "empty.jsonl").touch()
    (folder / "q.xml").touch()
    (folder / "nothing").mkdir()
    (folder / "broken.parquet").write_bytes(b"no table")
    (folder / "broken.json").write_text("{")
    assert "did you mean 'questions.jsonl'?" in refused(folder, source="question.jsonl")
    assert "holds no rows" in refused(folder, source="empty.jsonl")
    assert "known: .jsonl" in refused(folder, source="q.xml")
    assert "holds no table" in refused(folder, source="nothing")
    assert "broken.parquet" in refused(folder, source="broken.parquet")
    assert "broken.json: not valid JSON" in refused(folder, source="broken.json")
    assert "did you mean 'images'?" in refused(folder, source="questions.jsonl", images_root="image")
    assert "no usable row" in refused(folder, source="questions.jsonl", images_root="nothing", max_bad_share=1.0)


def test_a_missing_column_is_named_with_the_nearest_one(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", [{"image": "0.png", "qestion": "x", "gold": "y"}])
    message = refused(folder, images_root="images")
    assert "'question'" in message and "did you mean 'qestion'?" in message and "gold, image, qestion" in message
    message = refused(folder, images_root="images", columns='question = "qestion"\nanswer = "gld"')
    assert "'gld' for the answer" in message and "did you mean 'gold'?" in message
    write_jsonl(folder / "q.jsonl", [{"img": "0.png", "question": "x"}])
    assert 'columns.image = ""' in refused(folder, images_root="images")


def test_an_unknown_split_or_data_source_is_named_with_the_known_ones(folder: Path) -> None:
    datasets.DatasetDict(train=embedded(1)).save_to_disk(str(folder / "splits"))
    assert "no split 'test' (splits: train)" in refused(folder, source="splits", split="test")
    with pytest.raises(DataError, match=r"no data source \[data.question\]; did you mean 'questions'\?"):
        list(reader.samples(made(folder), "question"))


# --- fingerprints and samples on disk ---------------------------------------------------------------------------


def test_a_fingerprint_follows_content_and_settings_and_not_the_place(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", plain())
    fields = reader.source_fields(made(folder, images_root="images"))
    (folder / "q.jsonl").rename(folder / "renamed.jsonl")
    (folder / "images").rename(folder / "moved")
    assert reader.source_fields(made(folder, "renamed.jsonl", images_root="moved")) == fields
    assert reader.source_fields(made(folder, "renamed.jsonl", images_root="moved", limit=3)) != fields
    write_jsonl(folder / "renamed.jsonl", plain(5))
    changed = reader.source_fields(made(folder, "renamed.jsonl", images_root="moved"))
    assert {key for key in fields if changed[key] != fields[key]} == {"content"}


def test_the_fingerprint_of_a_directory_covers_every_file(folder: Path) -> None:
    for shard, part in (("a", 0), ("b", 2)):
        (folder / "d" / shard).mkdir(parents=True)
        embedded().select(range(part, part + 2)).to_parquet(str(folder / "d" / shard / "x.parquet"))
    fields = reader.source_fields(made(folder, "d"))
    embedded().select(range(1, 2)).to_parquet(str(folder / "d" / "a" / "x.parquet"))
    assert reader.source_fields(made(folder, "d")) != fields


def test_samples_survive_a_trip_to_disk(folder: Path) -> None:
    rows = [{**row, "meta": {"options": ["a", "ü"], "level": 3}, "answer_type": "text"} for row in plain(6)]
    found = read(folder, [*rows, {"image": ["0.png", "1.png"], "question": "both"}])
    samples = [item for item in found if isinstance(item, Sample)]
    path = folder / "run" / "samples.parquet"
    assert reader.write_samples(path, iter(samples)) == 7
    assert list(reader.read_samples(path)) == samples
    assert reader.write_samples(folder / "empty.parquet", []) == 0
    assert list(reader.read_samples(folder / "empty.parquet")) == []
    with pytest.raises(DataError, match="run the generate stage again"):
        list(reader.read_samples(folder / "r.toml"))


def test_a_failed_write_of_samples_leaves_the_last_file(folder: Path) -> None:
    samples = [item for item in read(folder, plain()) if isinstance(item, Sample)]
    path = folder / "samples.parquet"
    reader.write_samples(path, samples)

    def failing() -> Any:
        yield samples[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reader.write_samples(path, failing())
    assert list(reader.read_samples(path)) == samples
    assert [file.name for file in folder.glob(".*")] == []


def test_reading_stops_without_reading_the_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"image": "0.png", "question": f"{number}", "answer": "x"} for number in range(2000)]
    write_jsonl(folder / "q.jsonl", rows)
    decoded: Counter[str] = Counter()
    decode = images.decode

    def counted(content: bytes, *, max_pixels: int) -> Image.Image:
        decoded["images"] += 1
        return decode(content, max_pixels=max_pixels)

    monkeypatch.setattr(images, "decode", counted)
    stream = reader.samples(made(folder, images_root="images"))
    assert next(stream).question == "0"
    stream.close()
    assert decoded["images"] < 20
    decoded.clear()
    assert len(list(reader.samples(made(folder, images_root="images")))) == 2000
    assert decoded["images"] < 20, "one picture asked about 2000 times is decoded a few times, not 2000"


INVOICES = """
from distill.data.formats import ImageCell, ParsedRow, RowError, RowQuestion

def invoices(values, source):
    if "fields" not in values:
        raise RowError("no_fields", "the row holds no fields")
    asked = [RowQuestion(text=f"What is the {name}?", answers=(value,)) for name, value in values["fields"].items()]
    return ParsedRow(images=(ImageCell(column="scan", index=0, value=values["scan"]),), questions=tuple(asked))
"""


def test_a_format_from_a_file_beside_the_recipe_reads_rows_of_any_shape(folder: Path) -> None:
    (folder / "mine.py").write_text(INVOICES)
    rows = [{"scan": "0.png", "fields": {"sum": "7", "year": "1999"}}, {"scan": "1.png"}, {"fields": {"sum": "8"}}]
    found = read(folder, rows, format="mine.py:invoices", max_bad_share=1.0)
    assert [(item.question, item.answer) for item in found if isinstance(item, Sample)] == [
        ("What is the sum?", "7"),
        ("What is the year?", "1999"),
    ]
    reasons = [(item.reason, item.detail) for item in found if isinstance(item, BadRow)]
    assert reasons[0] == ("no_fields", "the row holds no fields")
    assert reasons[1][0] == "format_failed" and "KeyError" in reasons[1][1]


def test_the_code_of_a_format_is_part_of_what_a_source_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = []
    for text in (INVOICES, INVOICES.replace("What is", "Read")):
        place = tmp_path_factory.mktemp("formats")
        (place / "mine.py").write_text(text)
        write_jsonl(place / "q.jsonl", plain())
        found.append(reader.source_fields(made(place, format="mine.py:invoices"))["format"])
    assert found[0] != found[1] and all(value.startswith("sha256:") for value in found)


def test_a_format_that_is_not_there_is_refused(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", plain())
    with pytest.raises(RecipeError, match="did you mean 'finevision'"):
        made(folder, format="finevison")
    with pytest.raises(RecipeError, match=r"nowhere\.py cannot be read"):
        list(reader.read(made(folder, images_root="images", format="nowhere.py:rows")))
