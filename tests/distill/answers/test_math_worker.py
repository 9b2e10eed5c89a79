"""The process that compares mathematical answers starts anywhere, and is no verdict where it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distill.answers import math_worker
from distill.errors import DistillError

ROOT = Path(__file__).resolve().parents[3]
VOTE = "from distill.answers import math_worker as m; print(m.vote_on_expressions('\\\\sqrt{4}', '2').verdict)"
LIMITED = (
    "import resource; from distill.answers import math_worker as m; limit = 1_500_000_000;"
    "resource.setrlimit(resource.RLIMIT_AS, (limit, limit)); m._limits();"
    "print(resource.getrlimit(resource.RLIMIT_AS) == (limit, limit), m.vote_on_expressions('1/2', '3').verdict)"
)


def said(program: str, folder: Path) -> str:
    """What a program prints that is run in this folder and does not look for modules there."""
    command = [sys.executable, "-P", "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_symbolic_worker_runs_no_file_of_the_working_folder(tmp_path: Path) -> None:
    for name in ("types", "random", "sympy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this file is of no concern to the worker')\n")
    assert said(VOTE, tmp_path) == "correct\n"


def test_the_symbolic_worker_does_not_raise_a_limit_of_memory_that_the_user_set(tmp_path: Path) -> None:
    assert said(LIMITED, tmp_path) == "True wrong\n"


@pytest.mark.parametrize(("does", "why"), [("echo 'no memory' >&2; exit 1", "no memory"), ("exit 3", "exit code 3")])
def test_a_symbolic_worker_that_cannot_start_is_an_error_and_no_verdict(
    does: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    math_worker._worker.stop()
    with pytest.raises(DistillError, match=rf"{python} does not start .* \({why}\); .* run the same command again"):
        math_worker.vote_on_expressions("2", "2")
    monkeypatch.undo()
    vote = math_worker.vote_on_expressions("2", "2")
    assert vote is not None and vote.verdict == "correct"
