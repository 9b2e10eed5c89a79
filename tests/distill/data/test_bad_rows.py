"""Rows that cannot be used: each is counted with its reason, and the others are read."""

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from worlds.source_rows import folder_of_images, make_image, plain_rows, read_one, read_rows, recipe_for, write_jsonl

from distill.data import reader
from distill.data.tables import table_rows
from distill.errors import DataError
from distill.types import BadRow, Sample

Rows = Sequence[dict[str, Any]]

Rows = Sequence[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of_images(tmp_path)


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
    "base64 of no image": ({"image": "iVBORw0KGgo" * 900}, "unreadable_image"),
    "a number of no image": ({"image": 70}, "missing_image"),
    "empty question": ({"question": " <image> "}, "empty_question"),
    "no question": ({"question": None}, "empty_question"),
    "question is a list": ({"question": ["a"]}, "malformed_row"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_counted_with_its_reason_and_the_others_survive(folder: Path, name: str) -> None:
    (folder / "images" / "notes.png").write_text("no picture")
    (folder / "images" / "cut.png").write_bytes(make_image(1)[:-30])
    (folder / "images" / "zero.png").write_bytes(b"")
    (folder / "images" / "large.png").write_bytes(make_image(1, size=40))
    change, reason = BAD[name]
    found = read_rows(folder, [plain_rows()[0], {**plain_rows()[1], **change}, plain_rows()[2]], max_pixels=1000)
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
    ("scienceqa", {"image": "0.png", "question": "x", "choices": [], "answer": "B"}, "bad_choices"),
    ("scienceqa", {"image": "0.png", "question": "x", "choices": ["a"], "answer": 3}, "bad_answer"),
    ("scienceqa", {"image": "0.png", "question": "x", "choices": ["a", None], "answer": 0}, "bad_choices"),
    ("chartqa", {"image": "", "query": "x", "label": "1"}, "empty_image_cell"),
    ("chartqa", {"image": "0.png", "query": "x", "label": {"value": 1}}, "bad_answer"),
]


@pytest.mark.parametrize(("kind", "row", "reason"), FORMAT_BAD)
def test_a_row_that_breaks_its_format_has_a_reason(folder: Path, kind: str, row: dict[str, Any], reason: str) -> None:
    found = read_one(folder, row, format=kind)
    assert isinstance(found, BadRow) and found.reason == reason


@pytest.mark.parametrize("columns", ["", 'answer_type = "answer_type"'])
def test_an_unknown_answer_type_is_a_reason_and_names_the_nearest(folder: Path, columns: str) -> None:
    for kind in ("nubmer", "currency", 7):
        found = read_one(folder, {**plain_rows()[0], "answer_type": kind}, columns=columns)
        assert isinstance(found, BadRow) and found.reason == "unknown_answer_type"
        assert repr(kind) in found.detail and 'columns.answer_type = ""' in found.detail
    assert "did you mean 'number'?" in read_one(folder, {**plain_rows()[0], "answer_type": "nubmer"}).detail


def test_empty_cells_and_the_kinds_of_known_data_sets_are_answer_types(folder: Path) -> None:
    kinds = {"": None, "Money ": "money", "other": None, "yes/no": None, "integer": "number"}
    for kind, expected in kinds.items():
        found = read_one(folder, {**plain_rows()[0], "answer_type": kind})
        assert isinstance(found, Sample) and found.answer_type == expected
    ignored = read_one(folder, {**plain_rows()[0], "answer_type": "currency"}, columns='answer_type = ""')
    assert isinstance(ignored, Sample) and ignored.answer_type is None


def test_a_source_of_unknown_answer_types_is_refused_wherever_it_is_read(folder: Path) -> None:
    write_jsonl(folder / "q.jsonl", [{**row, "answer_type": "currency"} for row in plain_rows(3)])
    with pytest.raises(DataError, match="unknown_answer_type: 3"):
        list(reader.samples(recipe_for(folder, images_root="images")))


def test_lines_that_are_no_rows_are_counted_and_skipped(folder: Path) -> None:
    lines = [json.dumps(row).encode() for row in plain_rows(2)]
    lines[1:1] = [b"{torn", b"[1, 2]", b"\xff\xfe", b'{"image": "\\ud800"}', b""]
    (folder / "q.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    found = list(reader.read(recipe_for(folder, images_root="images")))
    reasons = [item.reason if isinstance(item, BadRow) else "good" for item in found]
    assert reasons == ["good", "malformed_row", "malformed_row", "malformed_row", "malformed_row", "good"]


TWICE = [
    '{"image": "0.png", "question": "a", "question": "b", "answer": "1"}',
    '{"image": "0.png", "question": "a", "answer": "1", "meta": {"x": 1, "y": {"z": 2, "z": 3}}}',
    '{"image": "0.png", "question": "a", "answer": "1", "answ\\u0065r": "2"}',
    '{"image": "0.png", "question": "a", "answer": "1", "meta": "{\\"x\\": 1, \\"x\\": 2}"}',
]
ONCE = '{"image": "1.png", "question": "which \\"key\\": a or \\"key\\": b?", "answer": "1", "meta": {"x": {"x": 1}}}'


def test_a_row_that_names_a_key_twice_is_counted_and_says_which(folder: Path) -> None:
    """A JSON reader would take the last value in silence."""
    (folder / "q.jsonl").write_text("\n".join([*TWICE, ONCE]))
    (folder / "q.json").write_text(f"[{','.join([*TWICE, ONCE])}]")
    for name in ("q.jsonl", "q.json"):
        *bad, good = reader.read(recipe_for(folder, name, images_root="images"))
        assert isinstance(good, Sample) and good.meta == {"x": {"x": 1}}
        details = [item.detail for item in bad if isinstance(item, BadRow) and item.reason == "malformed_row"]
        for detail, key in zip(details, ("question", "z", "answer", "x"), strict=True):
            assert f"the key '{key}' is named twice" in detail, (name, details)


def test_a_file_whose_object_of_rows_names_a_key_twice_is_refused(folder: Path) -> None:
    (folder / "q.json").write_text('{"rows": [], "rows": [{"image": "0.png"}]}')
    with pytest.raises(DataError, match=r"q\.json: the key 'rows' is named twice"):
        list(reader.read(recipe_for(folder, "q.json", images_root="images")))


def test_csv_rows_of_the_wrong_width_or_encoding_are_counted(folder: Path) -> None:
    lines = [b"image,question,answer", b"0.png,a,b", b"1.png,a", b"2.png,a,b,c", b"3.png,\xff,b", b'4.png,"a,\n1",b']
    (folder / "q.csv").write_bytes(b"\n".join(lines))
    found = list(reader.read(recipe_for(folder, "q.csv", images_root="images")))
    assert [item.reason if isinstance(item, BadRow) else item.question for item in found] == [
        "a",
        "malformed_row",
        "malformed_row",
        "malformed_row",
        "a,\n1",
    ]


def test_repeated_rows_are_left_out_and_conflicting_ones_named(folder: Path) -> None:
    rows = [
        plain_rows()[0],
        plain_rows()[0],
        {**plain_rows()[0], "answer": "9"},
        {**plain_rows()[0], "image": "./0.png"},
    ]
    found = read_rows(folder, rows)
    assert isinstance(found[0], Sample)
    assert [item.reason for item in found[1:] if isinstance(item, BadRow)] == [
        "duplicate_row",
        "conflicting_answer",
        "duplicate_row",
    ]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("0.png,what, then?,4", "the row has 4 cells, the header has 3; a cell that holds ',' needs quotation marks"),
        ("0.png,what?", "the row has 2 cells, the header has 3"),
    ],
)
def test_a_row_with_other_cells_than_the_header_says_how_many(tmp_path: Path, line: str, detail: str) -> None:
    (tmp_path / "q.csv").write_text(f"image,question,answer\n{line}\n")
    assert list(table_rows._csv(tmp_path / "q.csv")) == [detail]


@pytest.mark.parametrize("place", ["{}.png", "{}/0.png"])
@pytest.mark.parametrize(("there", "asked"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_name_whose_accents_are_written_in_another_way_is_named(
    folder: Path, place: str, there: Literal["NFC", "NFD"], asked: Literal["NFC", "NFD"]
) -> None:
    file = folder / "images" / place.format(unicodedata.normalize(there, "Café"))
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(make_image(1))
    name = place.format(unicodedata.normalize(asked, "Café"))
    found = read_one(folder, {"image": name, "question": "What?"})
    assert isinstance(found, BadRow) and found.reason == "missing_image"
    assert f"(Unicode {there}); rename the file or folder" in found.detail


@pytest.mark.parametrize("answer", ["--3", "9" * 5000, "-" * 40])
def test_an_answer_that_only_begins_like_a_number_is_no_choice(folder: Path, answer: str) -> None:
    row = {"image": "0.png", "question": "Which?", "choices": ["a", "b"], "answer": answer}
    found = read_one(folder, row, format="scienceqa")
    assert isinstance(found, BadRow) and found.reason == "bad_answer"


def test_a_coco_number_of_thousands_of_digits_is_a_missing_image(folder: Path) -> None:
    found = read_one(folder, {"image_id": "9" * 5000, "question": "What?", "answer": "x"}, format="cocoqa")
    assert isinstance(found, BadRow) and found.reason == "unsupported_image_cell"


def test_a_missing_image_whose_name_has_blanks_is_named(folder: Path) -> None:
    blanks = read_one(folder, {"image": " 0.png", "question": "What?"})
    assert isinstance(blanks, BadRow) and "'0.png' is there: remove the blanks around the name" in blanks.detail


def test_a_path_with_backslashes_is_that_file_or_else_a_path_of_windows(folder: Path) -> None:
    (folder / "images" / "a").mkdir()
    (folder / "images" / "a" / "b.png").write_bytes(make_image(1))
    (folder / "images" / "a\\c.png").write_bytes(make_image(2))
    (folder / "images" / "a" / "c.png").write_bytes(make_image(3))
    names = ("a\\b.png", "a\\c.png", "a\\d.png", "..\\b.png")
    windows, literal, missing, outside = read_rows(folder, [{"image": name, "question": "What?"} for name in names])
    assert isinstance(windows, Sample) and windows.images[0].path.endswith("a/b.png")
    assert isinstance(literal, Sample) and literal.images[0].path.endswith("a\\c.png")
    assert isinstance(missing, BadRow) and missing.reason == "missing_image" and "a\\d.png" in missing.detail
    assert isinstance(outside, BadRow) and outside.reason == "path_outside_root"


def csv_rows(folder: Path, content: str | bytes) -> list[Sample | BadRow]:
    (folder / "q.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(reader.read(recipe_for(folder, "q.csv", images_root="images")))


@pytest.mark.parametrize("before", ["\n\r\n", "sep=;\r\n", '\n"sep=;"\n'])
def test_blank_lines_and_the_line_of_the_separator_above_a_header_are_no_header(folder: Path, before: str) -> None:
    for mark in ("", "\ufeff"):
        found = csv_rows(folder, f'{mark}{before}image;question;answer\n0.png;What?;1,5\n1.png;"a"b;x\n')
        assert isinstance(found[0], Sample) and found[0].answers == ("1,5",)
        line = len(before.splitlines()) + 3
        assert isinstance(found[1], BadRow) and f"lines {line} to {line} are no CSV row" in found[1].detail


ROWS = "0.png,What?,x\n1.png,Which?,y\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("#separator:comma\n#html:true\n" + ROWS, "an export of Anki, which names no columns; remove the lines"),
        ("#tags column:4\n" + ROWS, "an export of Anki"),
        ("<html><body><table><tr><th>image</th></tr></table></body></html>\n", "holds HTML or XML"),
        ('<?xml version="1.0"?>\n<quiz></quiz>\n', "holds HTML or XML"),
        ("Our questions,,\n,,\nimage,question,answer\n" + ROWS, "line 1 leaves several columns without a name"),
        (
            "Picture,Text,\nimage,question,answer\n" + ROWS,
            "line 2 has the names of the columns",
        ),
        ("a,b,c\r\n\r\nImage,Question,Answer\r\n" + ROWS, "line 3 has the names of the columns"),
        ("Bild,L\xf6sung\n0.png,x\n".encode("cp1252"), "not valid UTF-8; convert the file.*iconv -f WINDOWS-1252"),
    ],
)
def test_a_table_that_begins_with_other_lines_than_its_columns_is_named(
    folder: Path, content: str | bytes, said: str
) -> None:
    with pytest.raises(DataError, match=rf"q\.csv: .*{said}"):
        csv_rows(folder, content)


def test_a_title_above_a_table_is_a_hint_and_a_second_header_below_the_first_is_a_row(folder: Path) -> None:
    titled = "Our questions\nimage,question,answer\n"
    (folder / "t.csv").write_text(titled + ROWS)
    first = next(table_rows.READERS["csv"](folder / "t.csv"))
    assert isinstance(first, str) and "such as a title, has to be removed" in first
    described, *good = csv_rows(folder, "image,question,answer\nimage,question,the answer\n" + ROWS)
    assert isinstance(described, BadRow) and len(good) == 2 and all(isinstance(row, Sample) for row in good)


def test_a_damaged_utf_16_table_is_no_traceback(folder: Path) -> None:
    begin = b"\xff\xfe" + "image,question,answer\n0.png,What".encode("utf-16-le")
    rest = "?,x\n1.png,What?,y\n".encode("utf-16-le")
    half, good = csv_rows(folder, begin + b"\x00\xd8" + rest)
    assert isinstance(half, BadRow) and "not valid UTF-16" in half.detail and isinstance(good, Sample)
    with pytest.raises(DataError, match=r"q\.csv: cannot be read after row 2: .*truncated data"):
        csv_rows(folder, begin + rest + b"a")


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"splits": 3, "_data_files": 3}', b"{}"])
@pytest.mark.parametrize("file", ["dataset_dict.json", "state.json"])
def test_a_damaged_description_of_a_saved_dataset_is_named(folder: Path, file: str, content: bytes) -> None:
    (folder / "saved").mkdir()
    (folder / "saved" / file).write_bytes(content)
    with pytest.raises(DataError, match=f"{file} does not describe a saved dataset"):
        list(reader.samples(recipe_for(folder, "saved")))


def test_a_pattern_that_means_nothing_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"source = 'a\*\*b.jsonl': Invalid pattern.*correct the pattern"):
        list(reader.samples(recipe_for(folder, "a**b.jsonl")))
