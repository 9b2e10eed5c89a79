"""The command line as a user starts it, and a recipe that it can read."""

import re
import subprocess
import sys
from pathlib import Path

_CHECK_PAGE = Path(__file__).resolve().parents[3] / "docs" / "check.md"

RECIPE = """
[data.questions]
source = "questions.jsonl"
[data.questions.columns]
image = ""

[[teachers]]
name = "only"
model = "nobody/nothing"
backend = "embedded"
"""


def distill(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "distill", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def documented_keys(command: str) -> set[str]:
    """The keys that docs/check.md names for the JSON of a command."""
    lines = _CHECK_PAGE.read_text(encoding="utf-8").splitlines()
    return {*re.findall(r"`(\w+)`", next(line for line in lines if line.startswith(f"| `{command}` |")))}
