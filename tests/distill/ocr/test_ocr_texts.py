"""The text of images in a run directory: read once an image, kept through kills, or with a reason."""

import io
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from distill.data.images.image_files import sha256
from distill.ocr import reader, texts
from distill.ocr.texts import UnreadImage, find_lines, read_image, read_missing, texts_file
from distill.types import ImageRef

pytest.importorskip("rapidocr")
LIMIT = 10_000_000


def save(folder: Path, name: str, data: bytes) -> ImageRef:
    (folder / name).write_bytes(data)
    return ImageRef(sha256=sha256(data), path=str(folder / name))


def drawn(*lines: str) -> bytes:
    image = Image.new("RGB", (240, 60 + 40 * len(lines)), "white")
    for at, line in enumerate(lines):
        ImageDraw.Draw(image).text((16, 30 + 40 * at), line, fill="black", font=ImageFont.load_default(20))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


class Counting:
    """`map`, and which images it was asked to read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, work, tasks, lost):  # type: ignore[no-untyped-def]
        for task in tasks:
            self.read.append(task.ref.sha256)
            yield work(task)


@pytest.fixture
def refs(tmp_path: Path) -> dict[str, ImageRef]:
    found = [
        save(tmp_path, "one.png", drawn("Corner Shop", "Tea 12", "Rice 7")),
        save(tmp_path, "plain.png", drawn()),
        save(tmp_path, "broken.png", b"no picture"),
    ]
    return {ref.sha256: ref for ref in found}


def test_text_is_read_once_and_found_by_the_digest(tmp_path: Path, refs: dict[str, ImageRef]) -> None:
    path, first, again = texts_file(tmp_path, max_pixels=LIMIT), Counting(), Counting()
    told: list[tuple[int, int]] = []
    read_missing(refs, path, max_pixels=LIMIT, run_tasks=first, on_done=lambda *counts: told.append(counts))
    one, plain, broken = refs
    lines = find_lines(path, one)
    assert [line.text for line in lines] == ["Corner Shop", "Tea 12", "Rice 7"]
    assert all(line.score > 0.9 and 0 <= line.left < line.right <= 1 and 0 <= line.top < 1 for line in lines)
    assert find_lines(path, plain) == ()
    with pytest.raises(UnreadImage, match="unreadable_image"):
        find_lines(path, broken)
    with pytest.raises(UnreadImage, match="was not read"):
        find_lines(path, "0" * 64)
    assert sorted(first.read) == sorted(refs) and told[-1] == (3, 3)
    # What could not be decoded may be there now, and nothing else is read again.
    read_missing(refs, path, max_pixels=LIMIT, run_tasks=again)
    assert again.read == [broken]


def test_a_image_that_can_be_decoded_later_is_read_then(tmp_path: Path) -> None:
    data = drawn("Tea 12")
    missing = ImageRef(sha256=sha256(data), path=str(tmp_path / "late.png"))
    path = texts_file(tmp_path, max_pixels=LIMIT)
    read_missing({missing.sha256: missing}, path, max_pixels=LIMIT, run_tasks=Counting())
    save(tmp_path, "late.png", data)
    read_missing({missing.sha256: missing}, path, max_pixels=LIMIT, run_tasks=Counting())
    assert [line.text for line in find_lines(path, missing.sha256)] == ["Tea 12"]


def test_a_damaged_line_costs_its_own_image(tmp_path: Path, refs: dict[str, ImageRef]) -> None:
    path, again = texts_file(tmp_path, max_pixels=LIMIT), Counting()
    read_missing(refs, path, max_pixels=LIMIT, run_tasks=Counting())
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Corner", b"Corn\x00r"))
    read_missing(refs, path, max_pixels=LIMIT, run_tasks=again)
    one, _, broken = refs
    assert sorted(again.read) == sorted([one, broken])
    assert len(find_lines(path, one)) == 3


def test_another_version_of_the_reader_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = texts_file(tmp_path, max_pixels=LIMIT)
    monkeypatch.setattr(reader, "VERSION", "next")
    assert texts_file(tmp_path, max_pixels=LIMIT) != before
    assert "rapidocr-" in reader.identity() and "onnxruntime-" in reader.identity()


def test_a_image_that_takes_too_long_or_breaks_the_reader_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refs: dict[str, ImageRef]
) -> None:
    task = texts.ImageTask(ref=next(iter(refs.values())), max_pixels=LIMIT)

    def endless(_: Image.Image) -> None:
        while True:
            pass

    monkeypatch.setattr(texts, "MOST_SECONDS", 0.05)
    monkeypatch.setattr(reader, "read_lines", endless)
    assert read_image(task)["reason"] == "timed_out"
    monkeypatch.setattr(reader, "read_lines", lambda _: 1 // 0)
    assert read_image(task)["reason"].startswith("ZeroDivisionError")
    path = texts_file(tmp_path, max_pixels=LIMIT)
    read_missing({task.ref.sha256: task.ref}, path, max_pixels=LIMIT, run_tasks=Counting())
    with pytest.raises(UnreadImage, match="ZeroDivisionError"):
        find_lines(path, task.ref.sha256)


def test_a_image_that_crashes_the_reader_has_a_reason_and_is_not_tried_again(
    tmp_path: Path, refs: dict[str, ImageRef]
) -> None:
    path, again = texts_file(tmp_path, max_pixels=LIMIT), Counting()
    one, plain, broken = refs
    read_missing(
        refs, path, max_pixels=LIMIT,
        run_tasks=lambda work, tasks, lost: (lost(task) if task.ref.sha256 == one else work(task) for task in tasks),
    )  # fmt: skip
    with pytest.raises(UnreadImage, match="reader_crashed"):
        find_lines(path, one)
    assert find_lines(path, plain) == ()
    read_missing(refs, path, max_pixels=LIMIT, run_tasks=again)
    assert again.read == [broken]
