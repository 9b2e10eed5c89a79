"""What the summary of a run says of its stages."""

from pathlib import Path

import pytest

from distill.artifacts.manifest import Manifest
from distill.commands.status import training


@pytest.mark.parametrize(("too_long", "warned"), [(3, False), (4, True)])
def test_a_stage_that_left_out_more_than_a_tenth_of_its_rows_says_so_with_the_limit(
    tmp_path: Path, too_long: int, warned: bool
) -> None:
    counts = {"rows": 30, "held_out": 6, "dropped_too_long": too_long, "dropped_no_answer": 1}
    fields = {"stage.max_length": 1024}
    Manifest(stage="train align", fingerprint="f", fields=fields, counts=counts).write(tmp_path / "train" / "align")
    sentence = (
        "warning: train align uses 36 of 41 rows; left out: no answer 1, too long 4 (max_length = 1,024 tokens)"
    )
    assert (sentence in training(tmp_path).splitlines()) == warned
    assert ("warning" in training(tmp_path)) == warned
