"""Transcription: how many cells of the picture a rationale lists as they are."""

import re
from collections.abc import Mapping
from typing import Any

from distill.types import Sample
from student.evaluation.user_metrics import UserMetric

_ROW = re.compile(r"Row (\d): ([^\n]*?)\.(?=\s|$)")


def share_read(sample: Sample, prediction: Mapping[str, Any]) -> float | None:
    """The share of the picture's cells that the rationale lists in their place; None where it lists no row."""
    rows = {int(number): text.split(", ") for number, text in _ROW.findall(prediction["reasoning"])}
    if not rows:
        return None
    cells = sample.meta["cells"]
    listed = [name.partition(":")[0] for row in range(1, 5) for name in [*rows.get(row, []), *[""] * 4][:4]]
    return sum(name == cell for name, cell in zip(listed, cells, strict=True)) / len(cells)


own_cells_read = UserMetric(
    name="own_cells_read",
    label="cells read rightly",
    kind="mean",
    value=share_read,
    shown="headline",
    note="Of the 16 cells, the share that a rationale lists rightly; over replies that list a row.",
)
