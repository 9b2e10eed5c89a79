"""What the tests of the filter stage share."""

from pathlib import Path
from typing import Any

import pytest

from filters.report import page


@pytest.fixture
def short_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the place of the report, which takes a third of the time of a small filter run.

    For tests that look at other files; `tests/filters/report` and `tests/filters/test_apply.py` write whole reports.
    """

    def write(*arguments: Any) -> None:
        next(argument for argument in arguments if isinstance(argument, Path)).write_text("a report\n")

    monkeypatch.setattr(page, "write", write)
