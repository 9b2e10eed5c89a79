"""benchmarks/project/mutants.py: a change counts as found only when a test fails because of it."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "project"
RUN = """
import sys
from pathlib import Path
from mutants import MutantGroup, run

group = MutantGroup(modules=("grade.py",), tests=("test_grade.py",))
run(Path(sys.argv[1]), "grades", group, count=20, seed=0)
"""
MODULE = """
LEAST = 3

def passes(points):
    return points >= LEAST

def next_grade(grade):
    return grade + 1
"""
TESTS = """
from grade import next_grade, passes

def test_the_limit_passes():
    assert passes(3) and not passes(2)

def test_a_grade_has_a_next_one():
    next_grade(1)
"""


def test_changes_that_a_test_finds_are_killed_and_others_are_listed(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n  timing:\n  vllm:\n")
    (root / "grade.py").write_text(MODULE)
    (root / "test_grade.py").write_text(TESTS)
    # As in this project: what is collected is frozen, and searches for objects do not find it.
    (root / "conftest.py").write_text("import gc\n\n\ndef pytest_collection_finish():\n    gc.freeze()\n")
    command = [sys.executable, "-B", "-c", RUN, str(root)]
    done = subprocess.run(command, cwd=SCRIPTS, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    # The limit, its comparison and its result are found; no test looks at the next grade.
    assert "grades: 3 of 6 killed (50.0%), drawn from 6" in done.stdout
    assert "1 loaded again" in done.stdout
    assert done.stdout.count("  alive  grade.py:8  ") == 3
    assert (root / "grade.py").read_text() == MODULE
