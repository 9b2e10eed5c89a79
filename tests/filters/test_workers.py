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
BESIDE = """
import threading
from filters.tables.workers import Workers
def sum_up(workers, went_on):
    assert went_on is None or went_on.wait(60)
    return sum(workers.map(abs, range(-3, 3)))
if __name__ == "__main__":
    with Workers(2) as workers:
        print(workers.beside(lambda: sum_up(workers, None)).result())
        went_on = threading.Event()
        beside = workers.beside(lambda: sum_up(workers, went_on))
        went_on.set()
        print(list(workers.map(abs, range(-2, 2))), beside.result())
    try:
        with Workers(2) as workers:
            list(workers.map(abs, range(2)))
            beside = workers.beside(lambda: sum(workers.map(abs, iter(int, 1))))
            raise ValueError("no end")
    except ValueError as error:
        print(error, beside.exception() is not None)
"""


def output_of(code: str, tmp_path: Path, folder: Path) -> str:
    """What a script prints that is run in this working folder."""
    script = tmp_path / "scripts/script.py"
    script.parent.mkdir()
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_processes_give_results_in_order_and_run_no_file_of_the_working_folder(tmp_path):
    folder = tmp_path / "working"
    folder.mkdir()
    (folder / "pandas.py").write_text("open('was_run', 'w').close()\n")
    assert output_of(SCRIPT, tmp_path, folder) == "[5, 4, 3, 2, 1, 0, 1, 2, 3, 4]\n"
    assert [path.name for path in folder.iterdir()] == ["pandas.py"]


def test_work_beside_the_caller_shares_the_processes_and_ends_with_them(tmp_path):
    assert output_of(BESIDE, tmp_path, tmp_path) == "9\n[2, 1, 0, 1] 9\nno end True\n"
