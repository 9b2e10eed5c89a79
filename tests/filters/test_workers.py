"""The processes that share the work of the filter stage."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from filters.tables.workers import Workers
if __name__ == "__main__":
    with Workers(2) as workers:
        print(list(workers.map(abs, range(-5, 5))))
"""


def test_processes_give_results_in_order_and_run_no_file_of_the_working_folder(tmp_path):
    script, folder = tmp_path / "scripts/script.py", tmp_path / "working"
    script.parent.mkdir()
    folder.mkdir()
    script.write_text(SCRIPT)
    (folder / "pandas.py").write_text("open('was_run', 'w').close()\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[5, 4, 3, 2, 1, 0, 1, 2, 3, 4]\n"
    assert [path.name for path in folder.iterdir()] == ["pandas.py"]
