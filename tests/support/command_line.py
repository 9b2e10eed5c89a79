"""The command line as a user starts it, and a recipe that it can read."""

import subprocess
import sys
from pathlib import Path

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
