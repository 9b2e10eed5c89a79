"""Data sources: every kind of source, ids, limits, fingerprints, sources that cannot be read."""

import gzip
import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
from huggingface_hub import constants
from PIL import Image
from worlds.source_rows import (
    folder_of_images,
    make_image,
    plain_rows,
    read_rows,
    recipe_for,
    write_jsonl,
    write_table,
)

from distill.data import reader, sample_files
from distill.data.images import image_files
from distill.data.sources import locate
from distill.errors import DataError, MissingExtra
from distill.recipe.loading import load
from distill.types import BadRow, Sample


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_images(tmp_path)


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "tsv", "parquet"])
def test_every_kind_of_file_gives_the_same_samples(folder: Path, kind: str) -> None:
    found = list(reader.samples(recipe_for(folder, write_table(folder, kind, plain_rows()), images_root="images")))
    expected = [sample for sample in read_rows(folder, plain_rows()) if isinstance(sample, Sample)]
    assert found == expected
    assert [sample.question for sample in found] == [row["question"] for row in plain_rows()]
    assert [sample.answer for sample in found] == ["0", "1", "2", "3"]
    assert image_files.read_bytes(found[2].images[0]) == make_image(2)


def test_a_compressed_table_in_a_folder_is_one_of_its_split_and_a_cut_one_is_refused(folder: Path) -> None:
    table = folder / "tables" / "train.jsonl.gz"
    table.parent.mkdir()
    lines = [json.dumps(row).encode() + b"\n" for row in plain_rows()]
    # Two parts, as `cat a.gz b.gz` leaves them.
    table.write_bytes(gzip.compress(b"".join(lines[:2])) + gzip.compress(b"".join(lines[2:])))
    (table.parent / "test.jsonl.gz").write_bytes(b"not read")
    recipe = recipe_for(folder, "tables", images_root="images")
    assert [sample.answer for sample in reader.samples(recipe)] == ["0", "1", "2", "3"]
    table.write_bytes(table.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"train\.jsonl\.gz: cannot be read after row \d"):
        list(reader.samples(recipe))


@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_whole_numbers_beyond_64_bits_keep_their_digits(folder: Path, kind: str) -> None:
    long = [2**64 - 1, -(2**63), 2**64, -(2**63) - 1, 10**30 + 7, int("9" * 300)]
    rows = [
        {"image": "0.png", "question": f"Which number is at {at}?", "answer": value} for at, value in enumerate(long)
    ]
    text = [f'{{"image":"0.png","question":"{row["question"]}","answer":{row["answer"]}}}' for row in rows]
    (folder / f"q.{kind}").write_text(f"[{','.join(text)}]" if kind == "json" else "\n".join(text))
    found = list(reader.samples(recipe_for(folder, f"q.{kind}", images_root="images")))
    assert [sample.answer for sample in found] == [str(value) for value in long]


def test_a_cell_of_json_keeps_the_digits_of_its_numbers(folder: Path) -> None:
    rows = [{**plain_rows()[0], "meta": json.dumps({"serial": 10**25 + 1, "count": 3})}]
    sample = next(reader.samples(recipe_for(folder, write_table(folder, "csv", rows), images_root="images")))
    assert (sample.meta["serial"], sample.meta["count"]) == (str(10**25 + 1), 3)


def test_a_json_file_may_hold_an_object_around_its_rows_or_json_lines(folder: Path) -> None:
    (folder / "q.json").write_text(json.dumps({"info": {"version": 1}, "questions": plain_rows()}))
    assert len(list(reader.samples(recipe_for(folder, "q.json", images_root="images")))) == 4
    write_jsonl(folder / "q.json", plain_rows())
    assert len(list(reader.samples(recipe_for(folder, "q.json", images_root="images")))) == 4
    (folder / "q.json").write_text(json.dumps({"train": plain_rows(), "test": plain_rows()}))
    with pytest.raises(DataError, match="several lists"):
        list(reader.samples(recipe_for(folder, "q.json", images_root="images")))


def embedded(count: int = 4) -> datasets.Dataset:
    rows = {
        "image": [{"bytes": make_image(number), "path": None} for number in range(count)],
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
        found = list(reader.samples(recipe_for(folder, source)))
        assert [image_files.read_bytes(sample.images[0]) for sample in found] == [
            make_image(number) for number in range(4)
        ]
        assert [sample.answer for sample in found] == ["no", "yes", "no", "yes"]
        expected = expected or [sample.id for sample in found]
        assert [sample.id for sample in found] == expected
    for source in ("splits", "shards"):
        assert len(list(reader.samples(recipe_for(folder, source, split="test")))) == 1


def test_a_saved_dataset_needs_no_datasets_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded().save_to_disk(str(folder / "saved"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert len(list(reader.samples(recipe_for(folder, "saved")))) == 4


def test_an_image_folder_with_a_table_is_a_source(folder: Path) -> None:
    rows = [{"file_name": f"{number}.png", "question": "What?", "answer": "x"} for number in range(3)]
    write_jsonl(folder / "images" / "metadata.jsonl", rows)
    found = list(reader.samples(recipe_for(folder, "images")))
    assert [image_files.read_bytes(sample.images[0]) for sample in found] == [
        make_image(number) for number in range(3)
    ]
    (folder / "images" / "metadata.jsonl").rename(folder / "images" / "labels.jsonl")
    assert list(reader.samples(recipe_for(folder, "images"))) == found


def test_a_hub_name_goes_through_the_datasets_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded().to_parquet(str(folder / "hub.parquet"))
    load = datasets.load_dataset
    asked: list[tuple[str, str | None, str]] = []

    def offline(name: str, subset: str | None, *, split: str) -> datasets.Dataset:
        asked.append((name, subset, split))
        return load("parquet", data_files=str(folder / "hub.parquet"), split=split, cache_dir=str(folder / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", offline)
    settings = recipe_for(folder, "somebody/charts", subset="bars", split="train")
    found = list(reader.samples(settings))
    assert asked == [("somebody/charts", "bars", "train")]
    assert [image_files.read_bytes(sample.images[0]) for sample in found] == [
        make_image(number) for number in range(4)
    ]
    fields = reader.source_fields(settings)
    assert (fields["source"], fields["subset"], fields["split"]) == ("somebody/charts", "bars", "train")


def test_a_hub_name_without_the_datasets_library_names_the_pip_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install 'cot-distill\[train\]'"):
        list(reader.samples(recipe_for(folder, "somebody/charts")))


def test_a_hub_name_that_cannot_be_loaded_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> datasets.Dataset:
        raise FileNotFoundError("Dataset 'somebody/charts' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", missing)
    with pytest.raises(DataError, match="doesn't exist on the Hub"):
        list(reader.samples(recipe_for(folder, "somebody/charts")))


def test_a_hub_that_does_not_answer_is_asked_once_and_then_only_its_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def no_network(self: Any, name: str, *, repo_type: str, timeout: float) -> None:
        assert repo_type == "dataset"
        asked.append(timeout)
        raise ConnectionError("Name or service not known")

    def cached(*_: Any, **__: Any) -> datasets.Dataset:
        assert constants.HF_HUB_OFFLINE
        raise ConnectionError("Couldn't reach 'somebody/charts' on the Hub")

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", no_network)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", cached)
    with pytest.raises(DataError, match=r"cannot be reached \(no answer, ConnectionError; HF_HUB_OFFLINE=1"):
        list(reader.samples(recipe_for(folder, "somebody/charts")))
    assert asked == [4.0] and not constants.HF_HUB_OFFLINE


# --- ids, limits, shares ----------------------------------------------------------------------------------------


def test_ids_follow_content_and_not_position_or_place(folder: Path) -> None:
    rows = plain_rows(8)
    ids = {sample.question: sample.id for sample in read_rows(folder, rows) if isinstance(sample, Sample)}
    random.Random(0).shuffle(rows)
    (folder / "images").rename(folder / "moved")
    again = {
        sample.question: sample.id
        for sample in read_rows(folder, [*rows, {"image": "0.png", "question": "new"}], images_root="moved")
        if isinstance(sample, Sample)
    }
    assert {question: again[question] for question in ids} == ids
    assert len(set(again.values())) == 9
    assert all(len(name) == 20 and int(name, 16) >= 0 for name in ids.values())
    (folder / "moved" / "0.png").write_bytes(make_image(200))
    changed = {
        sample.question: sample.id
        for sample in read_rows(folder, rows, images_root="moved")
        if isinstance(sample, Sample)
    }
    assert {question for question in ids if changed[question] != ids[question]} == {"What is 0?"}


def test_the_id_of_a_known_sample_never_changes() -> None:
    assert reader.sample_id("What is it?", ["ab" * 32, "cd" * 32]) == "e7c200942172e5c569f2"
    assert reader.sample_id("ab", ["c"]) != reader.sample_id("a", ["bc"])


def test_a_limit_counts_samples_and_reads_no_further(folder: Path) -> None:
    rows: list[dict[str, Any]] = [{"image": "99.png", "question": "x"}, *plain_rows(6)]
    found = read_rows(folder, rows, limit=3, max_bad_share=1.0)
    assert [type(item) for item in found] == [BadRow, Sample, Sample, Sample]


def test_too_many_bad_rows_stop_the_run_with_counts_and_examples(folder: Path) -> None:
    write_jsonl(
        folder / "q.jsonl", [*plain_rows(6), *({"image": f"{number}.gif", "question": "x"} for number in range(4))]
    )
    told: list[BadRow] = []
    found: list[Sample] = []
    with pytest.raises(DataError) as caught:
        for sample in reader.samples(recipe_for(folder, images_root="images", max_bad_share=0.3), on_bad=told.append):
            found.append(sample)
    message = str(caught.value)
    assert (len(found), len(told)) == (6, 4)
    assert "4 of 10 rows" in message and "missing_image: 4" in message and "max_bad_share = 0.3" in message
    assert message.count(".gif: no such file") == 3
    assert len(list(reader.samples(recipe_for(folder, images_root="images", max_bad_share=0.4)))) == 6


def test_repeated_rows_do_not_count_as_bad(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", [plain_rows()[0]] * 10)
    assert len(list(reader.samples(recipe_for(folder, images_root="images", max_bad_share=0.0)))) == 1


# --- sources that cannot be used --------------------------------------------------------------------------------


def refused(folder: Path, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(reader.samples(recipe_for(folder, **settings)))
    return str(caught.value)


def test_a_source_that_cannot_be_used_says_what_where_and_the_nearest_name(folder: Path) -> None:
    write_jsonl(folder / "questions.jsonl", plain_rows())
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
        list(reader.samples(recipe_for(folder), "question"))


# --- fingerprints and samples on disk ---------------------------------------------------------------------------


def test_a_fingerprint_follows_content_and_settings_and_not_the_place(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", plain_rows())
    fields = reader.source_fields(recipe_for(folder, images_root="images"))
    (folder / "q.jsonl").rename(folder / "renamed.jsonl")
    (folder / "images").rename(folder / "moved")
    assert reader.source_fields(recipe_for(folder, "renamed.jsonl", images_root="moved")) == fields
    assert reader.source_fields(recipe_for(folder, "renamed.jsonl", images_root="moved", limit=3)) != fields
    write_jsonl(folder / "renamed.jsonl", plain_rows(5))
    changed = reader.source_fields(recipe_for(folder, "renamed.jsonl", images_root="moved"))
    assert {key for key in fields if changed[key] != fields[key]} == {"content"}


def test_the_fingerprint_of_a_directory_covers_every_file(folder: Path) -> None:
    for shard, part in (("a", 0), ("b", 2)):
        (folder / "d" / shard).mkdir(parents=True)
        embedded().select(range(part, part + 2)).to_parquet(str(folder / "d" / shard / "x.parquet"))
    fields = reader.source_fields(recipe_for(folder, "d"))
    embedded().select(range(1, 2)).to_parquet(str(folder / "d" / "a" / "x.parquet"))
    assert reader.source_fields(recipe_for(folder, "d")) != fields


def test_samples_survive_a_trip_to_disk(folder: Path) -> None:
    rows = [{**row, "meta": {"options": ["a", "ü"], "level": 3}, "answer_type": "text"} for row in plain_rows(6)]
    found = read_rows(folder, [*rows, {"image": ["0.png", "1.png"], "question": "both"}])
    samples = [item for item in found if isinstance(item, Sample)]
    path = folder / "run" / "samples.parquet"
    assert sample_files.write_samples(path, iter(samples)) == 7
    assert list(sample_files.read_samples(path)) == samples
    assert sample_files.write_samples(folder / "empty.parquet", []) == 0
    assert list(sample_files.read_samples(folder / "empty.parquet")) == []
    with pytest.raises(DataError, match="run the generate stage again"):
        list(sample_files.read_samples(folder / "r.toml"))


def test_the_content_of_a_file_of_samples_is_the_same_wherever_their_images_lie(folder: Path) -> None:
    samples = [item for item in read_rows(folder, plain_rows(6)) if isinstance(item, Sample)]

    def content(written: list[Sample], before: Path | None = None) -> str:
        sample_files.write_samples(folder / "samples.parquet", written, before=before)
        return sample_files.samples_content(folder / "samples.parquet")

    whole = content(samples)
    moved = [
        replace(each, images=tuple(replace(ref, path=f"/elsewhere/{ref.path}") for ref in each.images))
        for each in samples
    ]
    assert content(moved) == whole and len(whole) == 32
    assert content([*samples[:5], replace(samples[5], answers=("another",))]) != whole
    assert content([*samples[:5], replace(samples[5], id="0" * 20)]) != whole
    sample_files.write_samples(folder / "first.parquet", samples[:4])
    assert content(samples[4:], before=folder / "first.parquet") == whole


def test_a_failed_write_of_samples_leaves_the_last_file(folder: Path) -> None:
    samples = [item for item in read_rows(folder, plain_rows()) if isinstance(item, Sample)]
    path = folder / "samples.parquet"
    sample_files.write_samples(path, samples)

    def failing() -> Any:
        yield samples[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_files.write_samples(path, failing())
    assert list(sample_files.read_samples(path)) == samples
    assert [file.name for file in folder.glob(".*")] == []


def test_reading_stops_without_reading_the_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"image": "0.png", "question": f"{number}", "answer": "x"} for number in range(2000)]
    write_jsonl(folder / "q.jsonl", rows)
    decoded: Counter[str] = Counter()
    decode = image_files.decode

    def counted(content: bytes, *, max_pixels: int) -> Image.Image:
        decoded["images"] += 1
        return decode(content, max_pixels=max_pixels)

    monkeypatch.setattr(image_files, "decode", counted)
    stream = reader.samples(recipe_for(folder, images_root="images"))
    assert next(stream).question == "0"
    stream.close()
    assert decoded["images"] < 20
    decoded.clear()
    assert len(list(reader.samples(recipe_for(folder, images_root="images")))) == 2000
    assert decoded["images"] < 20, "one picture asked about 2000 times is decoded a few times, not 2000"


def test_a_folder_of_images_that_is_a_link_to_itself_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "images").symlink_to("images")
    (tmp_path / "rows.jsonl").write_text('{"image": "a.png", "question": "What is it?"}\n')
    (tmp_path / "recipe.toml").write_text('[data.questions]\nsource = "rows.jsonl"\nimages_root = "images"\n')
    with pytest.raises(DataError, match="images is not a directory"):
        list(reader.read(load(tmp_path / "recipe.toml")))


def test_an_archive_in_the_place_of_a_folder_of_images_is_not_offered_again(tmp_path: Path) -> None:
    (tmp_path / "images.zip").write_bytes(b"PK")
    (tmp_path / "rows.jsonl").write_text('{"image": "a.png", "question": "What is it?"}\n')
    (tmp_path / "recipe.toml").write_text('[data.questions]\nsource = "rows.jsonl"\nimages_root = "images.zip"\n')
    with pytest.raises(DataError, match=r"images\.zip is not a directory; paths are"):
        list(reader.read(load(tmp_path / "recipe.toml")))


def test_a_run_below_the_folder_of_a_source_is_none_of_its_data(tmp_path: Path) -> None:
    data, dataset = tmp_path / "data", tmp_path / "data" / "run" / "filter" / "dataset"
    dataset.mkdir(parents=True)
    (data / "run" / "generate").mkdir()
    (data / "run" / "recipe.toml").touch()
    (dataset / "part-00000.parquet").write_bytes(b"of the run")
    (data / "rows.jsonl").write_text('{"image": "a.png", "question": "What is it?"}\n')
    (tmp_path / "recipe.toml").write_text('[data.questions]\nsource = "data"\n')
    assert locate(load(tmp_path / "recipe.toml"), "questions").files == (data / "rows.jsonl",)


def parts_of(folder: Path, rows: list[dict[str, Any]], cut: float) -> list[list[Sample]]:
    """The samples of the two parts of a source."""
    found = [read_rows(folder, rows, part=part) for part in ([0.0, cut], [cut, 1.0])]
    return [[item for item in items if isinstance(item, Sample)] for items in found]


def test_parts_share_no_image_also_where_rows_have_several(folder: Path) -> None:
    several = [("0", "1"), ("2", "1"), ("3",), ("2",), ("4", "5"), ("6",), ("5",), ("7", "7")]
    rows = [
        {"image": [f"{name}.png" for name in names], "question": f"Question {at}?"}
        for at, names in enumerate(several)
    ]
    whole = [item for item in read_rows(folder, rows) if isinstance(item, Sample)]
    sizes = set()
    for cut in (0.2, 0.4, 0.5, 0.6, 0.8):
        low, high = parts_of(folder, rows, cut)
        images = [{ref.sha256 for sample in part for ref in sample.images} for part in (low, high)]
        assert not images[0] & images[1]
        assert sorted(sample.id for sample in (*low, *high)) == sorted(sample.id for sample in whole)
        sizes.add(len(low))
    assert len(sizes) > 2  # images that no row joins fall where they fall


def test_the_part_of_an_image_alone_is_decided_by_its_bytes(folder: Path) -> None:
    low, high = parts_of(folder, plain_rows(8), 0.5)
    assert all(int(sample.images[0].sha256[0], 16) < 8 for sample in low)
    assert all(int(sample.images[0].sha256[0], 16) >= 8 for sample in high)
    assert low and high
