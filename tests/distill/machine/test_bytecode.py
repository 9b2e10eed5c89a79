"""A command goes on after a full disk cut compiled modules short, and its help is whole without docstrings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def distill(cache: Path, *arguments: str, optimize: str = "0") -> "subprocess.CompletedProcess[str]":
    """A command whose compiled modules lie in a folder of their own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache)}
    environment["PYTHONOPTIMIZE"] = optimize
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "distill", *arguments]
    return subprocess.run(command, env=environment, cwd=cache.parent, capture_output=True, text=True)


def cut(cache: Path, *names: str) -> None:
    for name in names:
        (path,) = cache.rglob(f"{name}.cpython-*.pyc")
        path.write_bytes(path.read_bytes()[:1024])


def test_a_command_starts_although_its_compiled_modules_are_cut_short(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = distill(cache, "recipes", "list")
    assert first.returncode == 0
    cut(cache, "distill/cli", "distill/redact", "command_line/recipes")
    again = distill(cache, "recipes", "list")
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, "")


def test_a_module_that_a_verb_loads_is_named_and_the_next_command_works(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = distill(cache, "recipes", "schema")
    cut(cache, "distill/recipe/loading")
    said = distill(cache, "recipes", "schema")
    assert (said.returncode, said.stdout) == (1, "")
    assert "loading.cpython-" in said.stderr and "cut this compiled module short; it is removed" in said.stderr
    assert distill(cache, "recipes", "schema").stdout == first.stdout


@pytest.mark.parametrize(
    "arguments", [("--help",), ("filter", "--help"), ("recipes", "copy", "-h"), ("recipes", "reference")]
)
def test_help_is_whole_where_python_leaves_docstrings_out(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """PYTHONOPTIMIZE=2 and `python -OO` do."""
    said = [distill(tmp_path / "cache", *arguments, optimize=level) for level in ("0", "2")]
    assert said[0].returncode == said[1].returncode == 0
    assert said[0].stdout == said[1].stdout
