"""A source that only has more rows at its end is told from one that changed."""

from pathlib import Path

import pytest

from distill.data import sources
from distill.data.grown_sources import source_files, unchanged_start
from distill.data.sources import SourceStart
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe

ROWS = b'{"question": "a", "image": ""}\n{"question": "b", "image": ""}\n'


def recipe_of(folder: Path, source: str) -> Recipe:
    (folder / "recipe.toml").write_text(
        f'[data.questions]\nsource = "{source}"\ncolumns = {{image = ""}}\n[[teachers]]\nname = "t"\nmodel = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\n'
    )
    return load(folder / "recipe.toml")


def start_of(recipe: Recipe, before: list[tuple[str, int, str]]) -> SourceStart | None:
    return unchanged_start(sources.locate(recipe, "questions"), 2, before)


def test_lines_at_the_end_of_a_file_leave_its_start_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(ROWS)
    recipe = recipe_of(tmp_path, "rows.jsonl")
    before = source_files(recipe)
    assert start_of(recipe, before) == SourceStart(rows=2, files=1)
    file.write_bytes(ROWS + b'{"question": "c", "image": ""}\n')
    start = start_of(recipe, before)
    assert start == SourceStart(rows=2, files=0, bytes=len(ROWS))
    rows = list(sources.rows(sources.locate(recipe, "questions"), start))
    assert [(row.number, row.values["question"]) for row in rows if isinstance(row, sources.SourceRow)] == [(3, "c")]


@pytest.mark.parametrize("changed", [ROWS.replace(b'"b"', b'"x"'), ROWS[:-40], b"", ROWS[::-1] + b"\n"])
def test_a_file_whose_start_changed_is_read_from_its_start(tmp_path: Path, changed: bytes) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(ROWS)
    recipe = recipe_of(tmp_path, "rows.jsonl")
    before = source_files(recipe)
    file.write_bytes(changed)
    assert start_of(recipe, before) is None


def test_a_last_line_without_its_end_may_become_another_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(ROWS[:-1])
    recipe = recipe_of(tmp_path, "rows.jsonl")
    before = source_files(recipe)
    file.write_bytes(ROWS[:-1] + b" \n")
    assert start_of(recipe, before) is None


def test_only_json_lines_may_grow_and_any_source_may_get_more_files(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "rows.csv").write_text("question,image\na,\nb,\n")
    table = recipe_of(tmp_path, "rows.csv")
    before = source_files(table)
    (tmp_path / "rows.csv").write_text("question,image\na,\nb,\nc,\n")
    assert start_of(table, before) is None
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, texts in (("00.parquet", ["a"]), ("01.parquet", ["b"])):
        pq.write_table(pa.table({"question": texts}), folder / name)
    shards = recipe_of(tmp_path, "shards")
    before = source_files(shards)
    pq.write_table(pa.table({"question": ["c"]}), folder / "02.parquet")
    start = start_of(shards, before)
    assert start == SourceStart(rows=2, files=2)
    (row,) = sources.rows(sources.locate(shards, "questions"), start)
    assert isinstance(row, sources.SourceRow) and (row.number, row.values) == (3, {"question": "c"})
    pq.write_table(pa.table({"question": ["z"]}), folder / "00.parquet")
    assert start_of(shards, before) is None
