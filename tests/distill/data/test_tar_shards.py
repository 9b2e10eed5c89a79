"""Tar shards as WebDataset lays them out are read as the same rows and images in a folder are: same ids."""

import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import store_servers
from servers.store_servers import BUCKET, StoreFaults
from worlds.source_rows import make_image, note_read_images, recipe_for, write_jsonl

from distill.data import reader
from distill.data.images import image_files, stored_images
from distill.data.images.image_cells import BYTE_RANGE
from distill.data.source_images import require_same_images
from distill.errors import DataError, ImageError, StaleError
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import BadRow, Sample

ROWS = [{"question": f"How many? {number}", "answer": str(number)} for number in range(6)]


def write_tar(path: Path, members: dict[str, bytes], kind: int = tarfile.USTAR_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as shard:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    return path


def members_of(number: int) -> dict[str, bytes]:
    return {f"{number:03d}.json": orjson.dumps(ROWS[number]), f"{number:03d}.png": make_image(number)}


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Six questions in two shards, and in rows.jsonl with images beside it."""
    for shard in range(2):
        numbers = range(3 * shard, 3 * shard + 3)
        members = {name: data for number in numbers for name, data in members_of(number).items()}
        write_tar(tmp_path / f"shards/{shard:05d}.tar", members)
    for number in range(6):
        (tmp_path / f"{number}.png").write_bytes(make_image(number))
    write_jsonl(tmp_path / "rows.jsonl", [{**row, "image": f"{number}.png"} for number, row in enumerate(ROWS)])
    return tmp_path


def read(recipe: Recipe) -> tuple[list[Sample], list[BadRow]]:
    items = list(reader.read(recipe))
    return [item for item in items if isinstance(item, Sample)], [item for item in items if isinstance(item, BadRow)]


def read_one(folder: Path, members: dict[str, bytes], columns: str = "") -> Sample | BadRow:
    write_tar(folder / "one.tar", members)
    (item,) = reader.read(recipe_for(folder, "one.tar", columns))
    return item


def reason(item: Sample | BadRow) -> tuple[str, str]:
    assert isinstance(item, BadRow)
    return item.reason, item.detail


@pytest.mark.parametrize("source", ["shards", "shards/*.tar", "shards/0000?.tar", "*/*.tar"])
def test_a_folder_or_pattern_of_shards_holds_the_samples_of_the_same_rows_in_a_folder(
    shards: Path, source: str
) -> None:
    expected, _ = read(recipe_for(shards, "rows.jsonl"))
    samples, bad = read(recipe_for(shards, source))
    assert not bad and len(samples) == 6
    assert [(item.id, item.question, item.answers) for item in samples] == [
        (item.id, item.question, item.answers) for item in expected
    ]
    refs = [item.images[0] for item in samples]
    assert {ref.column for ref in refs} == {BYTE_RANGE}
    assert [image_files.read_bytes(ref) for ref in refs] == [make_image(number) for number in range(6)]


def test_an_image_that_changed_in_its_shard_is_an_error_of_its_question(shards: Path) -> None:
    samples, _ = read(recipe_for(shards, "shards"))
    first = write_tar(shards / "shards/00000.tar", members_of(5))
    with pytest.raises(ImageError, match="changed"):
        image_files.read_bytes(samples[0].images[0])
    first.write_bytes(b"")
    with pytest.raises(ImageError, match="changed"):
        image_files.read_bytes(samples[2].images[0])
    first.unlink()
    with pytest.raises(ImageError, match="no such file"):
        image_files.read_bytes(samples[2].images[0])


def test_members_of_a_row_need_not_stand_side_by_side_and_may_be_texts(tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for number in range(3):
        members[f"./part.a/{number}.PNG"] = make_image(number)
    for number in range(3):
        members |= {f"./part.a/{number}.txt": b"How many?\n", f"./part.a/{number}.cls": b"%d" % number}
    members |= {"README": b"no row", "./.DS_Store": b"x", "./part.a/._0.PNG": b"x", "__index__": b"x"}
    write_tar(tmp_path / "q.tar", members)
    columns = 'question = "txt"\nanswer = "cls"'
    samples, bad = read(recipe_for(tmp_path, "q.tar", columns))
    assert [sample.answers for sample in samples] == [("0",), ("1",), ("2",)] and not bad
    assert {sample.question for sample in samples} == {"How many?"}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_several_images_are_read_in_the_order_of_the_shard(tmp_path: Path, kind: int) -> None:
    key = "/".join(["long" * 10] * 4) + "/ключ" if kind != tarfile.USTAR_FORMAT else "a/b"
    members = {f"{key}.{number}.png": make_image(number) for number in (2, 0, 1)}
    members |= {f"{key}.question.txt": b"Which?", f"{key}.answer.json": b'["one", "1"]', f"{key}.npy": b"\x93NUMPY"}
    path = write_tar(tmp_path / "one.tar", members, kind)
    (sample,) = reader.read(recipe_for(tmp_path, path.name))
    assert isinstance(sample, Sample) and sample.answers == ("one", "1")
    assert [image_files.read_bytes(ref) for ref in sample.images] == [make_image(number) for number in (2, 0, 1)]


def test_a_column_of_one_ending_leaves_other_images_out(tmp_path: Path) -> None:
    members = {"0.png": make_image(1), "0.mask.png": make_image(2), "0.txt": b"Which?"}
    sample = read_one(tmp_path, members, 'question = "txt"\nimage = "png"')
    assert isinstance(sample, Sample)
    assert [image_files.read_bytes(ref) for ref in sample.images] == [make_image(1)]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"0.json": b"{"}, ("malformed_row", "0.json: not valid JSON")),
        ({"0.json": b'{"a": 1, "a": 2}'}, ("malformed_row", "0.json: not valid JSON: the key 'a' is named twice")),
        ({"0.json": b"[1]"}, ("malformed_row", "a JSON object is needed")),
        ({"0.json": b'{"question": "a"}'}, ("empty_image_cell", "")),
        ({"0.png": make_image(0), "0.json": b"{}"}, ("empty_question", "")),
        (
            {"0.png": make_image(0), "0.PNG": make_image(1), "0.json": b"{}"},
            ("malformed_row", "two members are 'png'"),
        ),
        ({"0.json": b"{}", "0.JSON": b'{"question": "a"}'}, ("malformed_row", "two members are 'json'")),
        ({"0.json": b'{"question": "a"}', "0.question.txt": b"b"}, ("malformed_row", "'question' is a member and")),
        ({"0.png": make_image(0), "0.question.txt": b"\xff"}, ("malformed_row", "not valid UTF-8")),
        ({"0.png": make_image(0)[:40], "0.question.txt": b"Which?"}, ("unreadable_image", "")),
        ({"0.png": b"", "0.question.txt": b"Which?"}, ("empty_image", "")),
        ({"0.heic": b"no image that is read", "0.question.txt": b"Which?"}, ("unreadable_image", "")),
    ],
)
def test_a_bad_member_is_the_reason_of_its_row_alone(
    tmp_path: Path, members: dict[str, bytes], expected: tuple[str, str]
) -> None:
    good = {"9.png": make_image(3), "9.question.txt": b"Which?"}
    write_tar(tmp_path / "q.tar", members | good)
    samples, bad = read(recipe_for(tmp_path, "q.tar"))
    assert len(samples) == 1 and len(bad) == 1
    assert bad[0].reason == expected[0] and expected[1] in bad[0].detail


def test_a_link_in_a_shard_is_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "q.tar", "w") as shard:
        link = tarfile.TarInfo("0.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        shard.addfile(link)
    (item,) = reader.read(recipe_for(tmp_path, "q.tar"))
    assert reason(item) == ("malformed_row", "0.png is a link or a sparse file")


@pytest.mark.parametrize("damage", ["cut", "head", "packed", "nothing"])
def test_a_damaged_shard_is_an_error_and_not_a_shorter_source(tmp_path: Path, damage: str) -> None:
    path = write_tar(tmp_path / "q.tar", members_of(0) | members_of(1))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[data.index(make_image(1)) + 20 :]
    elif damage == "head":
        data[data.index(b"001.json") + 200] ^= 0xFF
    elif damage == "packed":
        data[:2] = b"\x1f\x8b"
    else:
        data.clear()
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"q\.tar"):
        list(reader.read(recipe_for(tmp_path, "q.tar")))


def test_impossible_values_are_refused(shards: Path) -> None:
    for source, settings, message in (
        ("shards/*.tgz", {}, "matches no file"),
        ("**/*", {}, "cannot read a .png file|several kinds"),
        ("shards", {"images_root": "."}, "leave images_root out"),
    ):
        with pytest.raises(DataError, match=message):
            list(reader.read(recipe_for(shards, source, **settings)))


def test_rows_may_name_ranges_of_files(shards: Path) -> None:
    data = (shards / "shards/00000.tar").read_bytes()
    cell: dict[str, Any] = {
        "path": "shards/00000.tar",
        "offset": data.index(make_image(1)),
        "length": len(make_image(1)),
    }
    rows = [{"image": cell, "question": "a"}]
    rows += [
        {"image": {**cell, **other}, "question": "a"}
        for other in ({"offset": -1}, {"length": "5"}, {"length": 0}, {"offset": 10**9})
    ]
    rows += [{"image": {**cell, "path": "../outside.tar"}, "question": "a"}]
    write_jsonl(shards / "ranges.jsonl", rows)
    samples, bad = read(recipe_for(shards, "ranges.jsonl"))
    assert [image_files.read_bytes(sample.images[0]) for sample in samples] == [make_image(1)]
    assert [row.reason for row in bad] == [
        *["unsupported_image_cell"] * 2, *["empty_image"] * 2, "path_outside_root"
    ]  # fmt: skip


def test_what_the_webdataset_library_writes_is_read(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(str(tmp_path / "%05d.tar"), maxcount=2, verbose=0) as writer:
        for number, row in enumerate(ROWS):
            writer.write({"__key__": f"{number:03d}", "json": row, "png": make_image(number)})
    samples, bad = read(recipe_for(tmp_path, "*.tar"))
    assert [sample.question for sample in samples] == [row["question"] for row in ROWS] and not bad


@pytest.fixture
def faults() -> StoreFaults:
    return StoreFaults()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, faults: StoreFaults) -> Iterator[tuple[ObjectStore, str]]:
    store_servers.set_keys(monkeypatch)
    monkeypatch.delenv("DISTILL_STORED_FILES", raising=False)
    with store_servers.s3_server() as server, store_servers.faulty_proxy(server, faults) as proxy:
        yield open_store(f"s3://{BUCKET}", config=store_servers.config(proxy)), proxy


def stored_recipe(folder: Path, endpoint: str, source: str, **settings: str) -> Recipe:
    lines = [f'[engine]\nscratch = "{folder}/scratch"', store_servers.recipe_section(endpoint), "[data.questions]"]
    lines += [f'{key} = "{value}"' for key, value in {"source": source, **settings}.items()]
    (folder / "stored.toml").write_text("\n".join(lines))
    return load(folder / "stored.toml")


@pytest.mark.parametrize("source", ["data/shards", "data/shards/*.tar"])
def test_shards_in_a_store_are_fetched_once_and_their_images_by_range(
    shards: Path, bucket: tuple[ObjectStore, str], faults: StoreFaults, source: str
) -> None:
    store, endpoint = bucket
    for path in (shards / "shards").iterdir():
        store.put(f"data/shards/{path.name}", path)
    store.put("data/shards-old/00009.tar", shards / "shards/00000.tar")
    expected, _ = read(recipe_for(shards, "shards"))
    recipe = stored_recipe(shards, endpoint, f"s3://{BUCKET}/{source}")
    faults.requests.clear()
    samples, bad = read(recipe)
    assert [item.id for item in samples] == [item.id for item in expected] and not bad
    gets = [request for request in faults.requests if request.startswith("GET") and ".tar" in request]
    assert len(gets) == 2, gets
    ref = samples[4].images[0]
    assert ref.path == f"s3://{BUCKET}/data/shards/00001.tar"
    stored_images.forget([ref.sha256])
    assert image_files.read_bytes(ref) == make_image(4)
    stored_images.forget([ref.sha256])
    store.put("data/shards/00001.tar", b"short")
    with pytest.raises(ImageError, match="changed"):
        image_files.read_bytes(ref)


def test_rows_in_a_folder_may_name_ranges_of_objects(shards: Path, bucket: tuple[ObjectStore, str]) -> None:
    store, endpoint = bucket
    store.put("data/0.tar", shards / "shards/00000.tar")
    data = (shards / "shards/00000.tar").read_bytes()
    cell: dict[str, Any] = {"path": "0.tar", "offset": data.index(make_image(1)), "length": len(make_image(1))}
    beyond = {**cell, "offset": 10**6}
    write_jsonl(shards / "q.jsonl", [{"image": cell, "question": "a"}, {"image": beyond, "question": "a"}])
    recipe = stored_recipe(shards, endpoint, "q.jsonl", images_root=f"s3://{BUCKET}/data")
    samples, bad = read(recipe)
    assert [image_files.read_bytes(sample.images[0]) for sample in samples] == [make_image(1)]
    assert [row.reason for row in bad] == ["empty_image"]


def test_an_object_that_is_replaced_is_noticed_by_a_finished_stage(
    shards: Path, bucket: tuple[ObjectStore, str], faults: StoreFaults
) -> None:
    store, endpoint = bucket
    store.put("data/0.tar", shards / "shards/00000.tar")
    data = (shards / "shards/00000.tar").read_bytes()
    place = data.index(make_image(1))
    cell = {"path": "0.tar", "offset": place, "length": len(make_image(1))}
    write_jsonl(shards / "q.jsonl", [{"image": cell, "question": "a"}])
    recipe = stored_recipe(shards, endpoint, "q.jsonl", images_root=f"s3://{BUCKET}/data")
    stage = note_read_images(shards / "align", recipe)
    faults.requests.clear()
    require_same_images(recipe, stage)
    assert not [request for request in faults.requests if request.startswith("GET") and ".tar" in request]
    store.put("data/0.tar", data + b"more")  # another ETag, the same image
    require_same_images(recipe, stage)
    store.put("data/0.tar", data[: place + 30] + b"!" + data[place + 31 :])
    with pytest.raises(StaleError, match=r"1 of the 1 .* such as s3://.*0.tar"):
        require_same_images(recipe, stage)


def test_the_mark_that_windows_editors_write_is_no_part_of_a_member(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    plain = {"0.json": b'{"answer": "1"}', "0.question.txt": b"How many?", "0.png": make_image(0)}
    marked = {name: mark + data if name != "0.png" else data for name, data in plain.items()}
    found = []
    for folder, members in (("plain", plain), ("marked", marked)):
        write_tar(tmp_path / folder / "0.tar", members)
        found += reader.samples(recipe_for(tmp_path, folder))
    assert [(sample.question, sample.answers) for sample in found] == [("How many?", ("1",))] * 2
    assert found[0].id == found[1].id


def test_a_packed_range_is_unpacked_and_a_damaged_or_unknown_one_costs_its_row(tmp_path: Path) -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(make_image(0)) + packer.flush()
    (tmp_path / "images.zip").write_bytes(b"head" + packed)
    cell = {"path": "images.zip", "offset": 4, "length": len(packed), "packed": "deflate"}
    cells = [cell, {**cell, "packed": "lzma"}, {**cell, "offset": 3}]
    write_jsonl(tmp_path / "rows.jsonl", [{"image": each, "question": f"{at}?"} for at, each in enumerate(cells)])
    samples, bad = read(recipe_for(tmp_path, "rows.jsonl"))
    assert [image_files.read_bytes(sample.images[0]) for sample in samples] == [make_image(0)]
    assert [row.reason for row in bad] == ["unsupported_image_cell", "unreadable_image"]


def test_a_cell_of_another_table_is_an_image_and_a_wrong_one_costs_its_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"picture": [make_image(0), make_image(1)]}), tmp_path / "images.parquet")
    cell = {"path": "images.parquet", "column": "picture", "row": 1}
    cells = [cell, {**cell, "row": -1}, {**cell, "row": 2}, {**cell, "path": "../images.parquet"}]
    write_jsonl(tmp_path / "rows.jsonl", [{"image": each, "question": f"{at}?"} for at, each in enumerate(cells)])
    samples, bad = read(recipe_for(tmp_path, "rows.jsonl"))
    assert [image_files.read_bytes(sample.images[0]) for sample in samples] == [make_image(1)]
    assert [row.reason for row in bad] == ["unsupported_image_cell", "unreadable_image", "path_outside_root"]
