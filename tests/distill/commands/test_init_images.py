"""`distill init` on tables whose images lie in archives, in a folder of another name, or in folders of a column."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from worlds.init_data import distill, read

from distill.data.images.image_files import sha256
from distill.recipe.loading import load


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_image(number: int) -> bytes:
    data = io.BytesIO()
    Image.linear_gradient("L").rotate(17 * number, fillcolor=9 * number).save(data, "BMP")
    return data.getvalue()


def write(files: Mapping[str, int]) -> None:
    """Pictures of these numbers under these paths below `data`."""
    for name, number in files.items():
        path = Path("data", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(number))


def pack(archive: str, files: Mapping[str, int], *, method: int = zipfile.ZIP_DEFLATED) -> None:
    Path("data").mkdir(exist_ok=True)
    path = Path("data", archive)
    if archive.endswith(".zip"):
        with zipfile.ZipFile(path, "w", method) as packed:
            for name, number in files.items():
                packed.writestr(name, make_image(number))
        return
    with tarfile.open(path, "w") as shard:
        for name, number in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(make_image(number))
            shard.addfile(member, io.BytesIO(make_image(number)))


def init(cells: list[str], **columns: Sequence[object]) -> tuple[str, dict[int, int | None]]:
    """What `init` prints for rows with these images, and the number of the image that each row got."""
    rows = [
        {"image": cell, "question": f"What is {at}?", "answer": "a", **{key: columns[key][at] for key in columns}}
        for at, cell in enumerate(cells)
    ]
    Path("data").mkdir(exist_ok=True)
    Path("data/rows.json").write_text(json.dumps(rows))
    return read_init()


def read_init() -> tuple[str, dict[int, int | None]]:
    done = distill("data", "--out", "new")
    if done.exit_code:
        return done.output, {}
    recipe = Path("new/recipe.toml")
    numbers = {sha256(make_image(number)): number for number in range(40)}
    samples = [sample for name in load(recipe).data for sample in read(recipe, name)]
    return done.output, {
        int(sample.question.split()[-1].rstrip("?")): numbers[sample.images[0].sha256] for sample in samples
    }


EACH = {at: at for at in range(8)}
CELLS = [f"set/n{at}.bmp" for at in range(8)]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize(
    ("archive", "folder"),
    [("images.zip", ""), ("images.zip", "images/"), ("images.tar", ""), ("set.zip", None), ("more/images.zip", "")],
)
def test_images_are_read_from_an_archive_beside_the_table(archive: str, folder: str | None, method: int) -> None:
    Path("data/more").mkdir(parents=True)
    names = [cell.removeprefix("set/") if folder is None else folder + cell for cell in CELLS]
    pack(archive, {name: at for at, name in enumerate(names)}, method=method)
    printed, got = init(CELLS)
    assert got == EACH and "images: found as " in printed


def test_an_archive_without_one_of_the_images_or_with_two_of_a_name_is_not_read() -> None:
    pack("a.zip", {cell: at for at, cell in enumerate(CELLS[:-1])})
    assert "missing_image: 8" in (told := init(CELLS)[0]) and "a.zip may hold the images: unpack it" in told
    pack("b.zip", {cell: at + 9 for at, cell in enumerate(CELLS)})
    assert "missing_image: 8" in init(CELLS)[0]


def test_a_damaged_or_locked_archive_is_named() -> None:
    pack("images.zip", {cell: at for at, cell in enumerate(CELLS)})
    path = Path("data/images.zip")
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    assert "images.zip may hold the images: unpack it" in init(CELLS)[0]
    locked = bytearray(data)
    for at in range(len(locked) - 4):
        if locked[at : at + 4] == b"PK\x01\x02":
            locked[at + 8] |= 1
    path.write_bytes(locked)
    assert "images.zip may hold the images: unpack it" in init(CELLS)[0]


def test_a_folder_of_another_name_is_taken_where_it_has_all_images() -> None:
    write({f"renamed/n{at}.bmp": at for at in range(8)})
    printed, got = init(CELLS)
    assert got == EACH and "images: renamed/ has those of set/" in printed


@pytest.mark.parametrize("case", ["one is missing", "two folders", "some are there", "numbers", "two folders named"])
def test_a_folder_of_another_name_is_not_taken_where_that_may_be_wrong(case: str) -> None:
    files = {f"renamed/n{at}.bmp": at for at in range(8)}
    cells = list(CELLS)
    match case:
        case "one is missing":
            del files["renamed/n7.bmp"]
        case "two folders":
            files |= {f"small/n{at}.bmp": at + 9 for at in range(8)}
        case "some are there":
            files |= {"deep/set/n0.bmp": 9}
        case "numbers":
            files = {f"renamed/{at}.bmp": at for at in range(8)}
            cells = [f"set/{at}.bmp" for at in range(8)]
        case _:
            cells[0] = "other/n0.bmp"
    write(files)
    printed, got = init(cells)
    assert "missing_image: 8" in printed or set(got.items()) <= {(0, 9)}, printed


def test_an_image_in_a_folder_that_a_column_names_is_found() -> None:
    write({f"images/{'train' if at % 2 else 'val'}/{at + 20}/image.bmp": at for at in range(8)})
    printed, got = init(["image.bmp"] * 8, id=[at + 20 for at in range(8)], key=[f"k{at}" for at in range(8)])
    assert got == EACH and "in folders that 'id' names" in printed


@pytest.mark.parametrize("case", ["one is missing", "one is there twice", "two columns"])
def test_an_image_in_a_folder_that_a_column_may_name_is_refused(case: str) -> None:
    files = {f"images/{at + 20}/image.bmp": at for at in range(8)}
    ids = [at + 20 for at in range(8)]
    match case:
        case "one is missing":
            ids[-1] = 99
        case "one is there twice":
            files["other/20/image.bmp"] = 9
        case _:
            pass
    write(files)
    others = ids[::-1] if case == "two columns" else list("abcdefgh")
    assert "several folders have images of the same names" in init(["image.bmp"] * 8, id=ids, other=others)[0]


@pytest.mark.parametrize(
    "case", ["clear", "another split", "an id twice", "an id is missing", "a plain id", "two columns"]
)
def test_images_of_another_parquet_table_are_joined_by_an_id_that_leads_to_one(case: str) -> None:
    images = [{"id": f"n{at % 8}", "image": {"bytes": make_image(at), "path": None}} for at in range(8)]
    rows = [{"imageId": f"n{at}", "question": f"What is {at}?", "answer": "a"} for at in range(8)]
    match case:
        case "an id twice":
            images.append({"id": "n7", "image": {"bytes": make_image(9), "path": None}})
        case "an id is missing":
            images.pop()
        case "a plain id":
            rows = [{"id": row.pop("imageId"), **row} for row in rows]
        case "two columns":
            rows = [{**row, "image2": f"n{7 - at}"} for at, row in enumerate(rows)]
        case _:
            pass
    split = "val" if case == "another split" else "train"
    for name, table in (("x_instructions/train-0", rows), (f"x_images/{split}-0", images)):
        path = Path("data", f"{name}.parquet")
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), path)
    printed, got = read_init()
    if case == "clear":
        assert got == EACH and "images: of the column 'image' in x_images, by the column 'imageId'" in printed
    else:
        assert not got and "image" in printed, printed


@pytest.mark.parametrize("name", ["quiz.gift", "notes.apkg", "page.htm", "course.mbz"])
def test_images_beside_questions_in_a_file_that_is_not_read_get_no_made_up_questions(name: str) -> None:
    write({f"{number}.bmp": number for number in range(4)})
    Path("data", name).write_text("::Q1:: What? {=x ~y}")
    done = distill("data", "--out", "own")
    assert done.exit_code == 2 and f"1 file such as {name} may be about the images" in done.output
