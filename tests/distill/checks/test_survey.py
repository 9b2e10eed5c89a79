"""What a check says of a source that it read in part, and of the size of its images."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds.source_rows import make_image, recipe_for

from distill.checks.survey import Survey, survey


@pytest.mark.parametrize("limit", [2, 50])
def test_the_size_of_an_image_in_a_table_is_that_of_its_cell_however_few_rows_are_read(
    tmp_path: Path, limit: int
) -> None:
    images = [[make_image(2 * row), make_image(2 * row + 1)] for row in range(50)]
    table = pa.table({"image": images, "question": ["What is it?"] * 50, "other": [b"x" * 10_000] * 50})
    pq.write_table(table, tmp_path / "q.parquet", compression="none")
    found = survey(recipe_for(tmp_path, "q.parquet", limit=limit), "questions", seconds=60)
    sizes = [len(image) for pair in images[:limit] for image in pair]
    assert found.samples == limit and found.image_bytes == pytest.approx(sum(sizes) / len(sizes))


def test_a_count_of_rows_says_when_the_others_were_not_read() -> None:
    assert Survey(name="q").of_rows(20) == "of 20 rows"
    assert Survey(name="q", whole=False).of_rows(1000) == "of the first 1,000 rows"


def test_rows_that_are_the_same_as_another_are_counted_beside_the_questions(tmp_path: Path) -> None:
    rows = [{"image": [make_image(row)], "question": "What is it?"} for row in (0, 1, 1, 1)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "q.parquet")
    found = survey(recipe_for(tmp_path, "q.parquet"), "questions", seconds=60)
    assert found.describe().startswith("2 questions, ") and found.bad == 0
    assert found.describe().endswith(", 2 further rows the same as another")
