"""The benchmark of `distill init` on public data sets makes them, and counts what is read right."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from layouts.package import Made, PublicLayout, Row
from public_layouts import LAYOUTS, score_layout, table_lines

READ, REFUSED = LAYOUTS["realworldqa_original"], LAYOUTS["flickr30k_csv"]


def expecting(change: Callable[[Sequence[Row]], list[Row]]) -> PublicLayout:
    """A layout that is read right, with other expected rows."""

    def write(folder: Path, rng: random.Random) -> Made:
        path, rows = READ.write(folder, rng)
        return path, change(rows)

    return replace(READ, write=write)


def test_a_layout_passes_if_its_rows_are_read_or_if_it_is_refused_as_expected(tmp_path: Path) -> None:
    lines = list(table_lines(tmp_path, [READ, REFUSED], False))
    assert [line.split()[:6] for line in lines] == [
        ["yes", "dev", READ.name, "9", "of", "9"],
        ["yes", "dev", REFUSED.name, "0", "of", "0"],
        ["dev:", "2", "of", "2", "layouts,", "9"],
    ]


@pytest.mark.parametrize("field", ["question", "answer", "images", "choices"])
def test_a_row_with_another_value_is_not_read_right(tmp_path: Path, field: str) -> None:
    other = {"question": "Why?", "answer": "ten", "images": [("0", (1, 1))], "choices": ["no such choice"]}[field]
    score = score_layout(expecting(lambda rows: [replace(rows[0], **{field: other}, accept=[]), *rows[1:]]), tmp_path)
    assert not score.passed and (score.right, score.rows) == (8, 9) and len(score.reasons) == 1


def test_one_whole_split_is_enough_and_a_row_without_an_image_may_be_left_out(tmp_path: Path) -> None:
    missing = Row("Why?", "ten", [("0", (1, 1))], [], [], "test")
    score = score_layout(expecting(lambda rows: [*rows, missing, replace(missing, images=[])]), tmp_path)
    assert score.passed and (score.right, score.rows) == (10, 11)


def test_reasons_of_the_held_out_group_are_shown_on_request_only(tmp_path: Path) -> None:
    empty = PublicLayout("empty", "heldout", False, lambda folder, rng: ("", []))
    assert len(list(table_lines(tmp_path, [empty], False))) == 2
    (told, reason, _) = table_lines(tmp_path, [empty], True)
    assert told.startswith("NO") and reason.startswith("  ") and "empty" in reason
