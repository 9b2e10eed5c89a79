"""The notebooks of docs/ run from top to bottom, one after the other, and hold no output."""

import asyncio
import json
from pathlib import Path
from types import CodeType

import pytest
import torch

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = ("first-student", "read-a-run")


def code(name: str) -> list[str]:
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") for cell in cells)
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)


async def _run_as_cell(cell: CodeType, names: dict[str, object]) -> None:
    """Run a cell as Jupyter does: below a running event loop."""
    exec(cell, names)


@pytest.mark.slow
def test_the_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A worker is a fork: two threads that make torch's pool of threads at the same time end in an assertion.
    torch.set_num_threads(torch.get_num_threads())
    for name in NAMES:
        names: dict[str, object] = {}
        for number, text in enumerate(code(name)):
            asyncio.run(_run_as_cell(compile(text, f"{name}.ipynb, cell {number}", "exec"), names))
    assert names["by_teacher"]["traces"].sum() == len(names["traces"]) > 0
