"""Images that a process has found sound are not decoded again; damaged ones are refused each time."""

from pathlib import Path

import pytest
from worlds.source_rows import folder_of_images, plain_rows, recipe_for, write_table

from distill.data import reader
from distill.data.images import image_files
from distill.data.images.image_references import checked_digest
from distill.errors import ImageError
from distill.types import BadRow, Sample


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The images that are decoded, in their order; nothing is known of any at first."""
    from distill.data.images import image_references

    seen: list[bytes] = []
    check = image_files.check

    def counted(data: bytes, *, max_pixels: int) -> None:
        seen.append(data)
        check(data, max_pixels=max_pixels)

    monkeypatch.setattr(image_files, "check", counted)
    monkeypatch.setattr(image_references, "_sound", {})
    return seen


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_source_that_is_read_twice_has_its_images_decoded_once(
    tmp_path: Path, decoded: list[bytes], kind: str
) -> None:
    folder = folder_of_images(tmp_path)
    recipe = recipe_for(folder, write_table(folder, kind, plain_rows()), images_root="images")
    first = list(reader.samples(recipe))
    assert len(decoded) == len(set(decoded)) == len({ref.sha256 for sample in first for ref in sample.images})
    assert list(reader.samples(recipe)) == first
    assert len(decoded) == len(set(decoded))


def test_a_damaged_image_is_refused_each_time_and_another_limit_is_looked_at_again(
    tmp_path: Path, decoded: list[bytes]
) -> None:
    folder = folder_of_images(tmp_path)
    good = next((folder / "images").iterdir()).read_bytes()
    for _ in range(2):
        with pytest.raises(ImageError):
            checked_digest(good[:-30], max_pixels=10**6)
    assert checked_digest(good, max_pixels=10**6) == image_files.sha256(good)
    with pytest.raises(ImageError, match="max_pixels = 1"):
        checked_digest(good, max_pixels=1)
    assert decoded == [good[:-30], good[:-30], good, good]


def test_a_file_that_is_damaged_between_two_reads_is_a_bad_row(tmp_path: Path, decoded: list[bytes]) -> None:
    folder = folder_of_images(tmp_path)
    recipe = recipe_for(folder, write_table(folder, "jsonl", plain_rows()), images_root="images")
    image = Path(next(reader.samples(recipe)).images[0].path)
    image.write_bytes(image.read_bytes()[:-30])
    first, *others = reader.read(recipe)
    assert isinstance(first, BadRow)
    assert first.reason in ("truncated_image", "unreadable_image")
    assert all(isinstance(other, Sample) for other in others)
