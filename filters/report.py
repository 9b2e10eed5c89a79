"""The report page of the filter stage."""

from pathlib import Path
from typing import Any

from distill.artifacts import write_text


def write(recipe: Any, database: Any, traces: Any, found: Any, path: Path) -> None:
    write_text(path, "<!doctype html><title>filter</title>")
