"""Rows of a stage in a file: they come back as they were written, and no process has to hold them."""

from pathlib import Path

import numpy as np
import pytest

from distill.errors import StorageError
from distill.types import ImageRef
from student.data.encode import Examples
from student.data.encoded_rows import Example, MappedRows, columns_of, write_rows
from student.data.image_tokens import distinct_images
from student.data.rows import TrainingRow, smaller


def example(number: int) -> Example:
    image = ImageRef(sha256=f"{number:064}", path="pictures.parquet", column="image", row=number, index=1)
    row = TrainingRow(
        id=f"row {number}",
        images=(image, smaller(image, 2))[: number % 3],
        question=f"What is {number}? \u4f60",
        response="<think>a</think>b",
        rationale=(7, 8),
        answer=(16, 17),
        sample_id=f"sample {number // 2}",
        source="traces" if number % 2 else "captions",
        teacher="a teacher" if number % 2 else "",
        weight=number / 7,
        difficulty=number / 3000,
    )
    rng = np.random.default_rng(number)
    ids = rng.integers(0, 1 << 20, 5 + number % 11).astype(np.int32)
    return Example(row=row, ids=ids, begin=2, kinds=rng.integers(0, 3, len(ids) - 2).astype(np.uint8))


def equal(ours: Example, theirs: Example) -> bool:
    return (
        (ours.row, ours.begin) == (theirs.row, theirs.begin)
        and np.array_equal(ours.ids, theirs.ids)
        and np.array_equal(ours.kinds, theirs.kinds)
        and (ours.ids.dtype, ours.kinds.dtype) == (theirs.ids.dtype, theirs.kinds.dtype)
    )


def test_rows_come_back_as_they_were_written(tmp_path: Path):
    rows = [example(number) for number in range(1300)]
    mapped = write_rows(tmp_path / "rows", iter(rows))
    assert len(mapped) == 1300
    assert all(map(equal, mapped, rows))
    assert all(equal(mapped[number], rows[number]) for number in (0, 511, 512, 1299, -1))
    assert [each.row.id for each in mapped[510:514]] == [f"row {number}" for number in range(510, 514)]
    with pytest.raises(IndexError):
        mapped[1300]


def test_columns_are_those_of_rows_in_memory(tmp_path: Path):
    rows = [example(number) for number in range(700)]
    mapped = write_rows(tmp_path / "rows", rows)
    chosen = [3, 600, 4]
    for ours, theirs in (
        (columns_of(mapped), columns_of(rows)),
        (columns_of(mapped.take(chosen)), columns_of([rows[number] for number in chosen])),
        (columns_of(mapped.take(chosen).take([2, 0])), columns_of([rows[4], rows[3]])),
    ):
        for name in ("lengths", "responses", "images", "difficulty"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name))
        for name in ("sources", "teachers"):
            assert list(getattr(ours, name)) == getattr(theirs, name)


def test_some_of_the_rows_are_the_same_in_memory_and_mapped(tmp_path: Path):
    rows = [example(number) for number in range(20)]
    mapped = Examples(write_rows(tmp_path / "rows", rows)).take([19, 2, 7])
    assert all(map(equal, mapped.rows, Examples(rows).take([19, 2, 7]).rows))
    assert mapped.image_share(int(rows[2].ids[0])) == Examples([rows[19], rows[2], rows[7]]).image_share(
        int(rows[2].ids[0])
    )


def test_images_and_questions_of_some_rows_are_read_from_the_file_as_from_memory(tmp_path: Path):
    rows = [example(number) for number in range(1300)]
    chosen = [1299, 600, 601, 602, 600]
    mapped, held = (Examples(each).take(chosen) for each in (write_rows(tmp_path / "rows", rows), rows))
    assert distinct_images(mapped) == distinct_images(held) and len(distinct_images(held)) == 3
    assert mapped.sample_ids == held.sample_ids == [f"sample {number // 2}" for number in chosen]


def test_no_rows_are_a_file_too_and_a_missing_file_is_a_message(tmp_path: Path):
    empty = write_rows(tmp_path / "rows", [])
    assert len(empty) == 0 and list(empty) == [] and len(columns_of(empty).lengths) == 0
    with pytest.raises(StorageError, match="need a shared file system"):
        MappedRows(tmp_path / "gone")
