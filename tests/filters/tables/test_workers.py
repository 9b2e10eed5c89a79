"""The processes that share the work of the filter stage."""

import os
import subprocess
import sys
from pathlib import Path

from worlds.run_fixtures import generate_folder, recipe, small_world

ROOT = Path(__file__).resolve().parents[3]
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


def output_of(code: str, tmp_path: Path, folder: Path, *arguments: str) -> str:
    """What a script prints that is run in this working folder."""
    script = tmp_path / "scripts/script.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_processes_give_results_in_order_and_run_no_file_of_the_working_folder(tmp_path):
    folder = tmp_path / "working"
    folder.mkdir()
    (folder / "numpy.py").write_text("open('was_run', 'w').close()\n")
    assert output_of(SCRIPT, tmp_path, folder) == "[5, 4, 3, 2, 1, 0, 1, 2, 3, 4]\n"
    assert [path.name for path in folder.iterdir()] == ["numpy.py"]


def test_work_beside_the_caller_shares_the_processes_and_ends_with_them(tmp_path):
    assert output_of(BESIDE, tmp_path, tmp_path) == "9\n[2, 1, 0, 1] 9\nno end True\n"


DYING = """
import os
from distill.errors import DistillError
from filters.tables.workers import Workers
if __name__ == "__main__":
    try:
        with Workers(2) as workers:
            list(workers.map(os._exit, range(1, 4)))
    except DistillError as error:
        print(error)
"""


def test_a_worker_that_dies_names_what_may_have_ended_it(tmp_path):
    message = output_of(DYING, tmp_path, tmp_path)
    assert "ended with exit code 1 (possible causes: out of memory, or " in message
    assert "scripts/script.py calls" in message
    command = tmp_path / "distill.py"
    command.write_text("import runpy, sys\nrunpy.run_path(sys.argv[1], run_name='__main__')\n")


KILLED = """
import os, signal
from pathlib import Path
from filters.tables.workers import Workers
def double(number):
    if number == 3 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number
if __name__ == "__main__":
    with Workers(2) as workers:
        print(list(workers.map(double, range(6))))
"""


def test_a_killed_worker_costs_no_result(tmp_path):
    assert output_of(KILLED, tmp_path, tmp_path) == "[0, 2, 4, 6, 8, 10]\n"
    assert (tmp_path / "killed").exists()


def test_a_script_without_a_main_guard_gets_a_message(tmp_path):
    unguarded = DYING.replace('if __name__ == "__main__":', "if True:").replace("os._exit", "abs")
    assert 'outside of `if __name__ == "__main__":`' in output_of(unguarded, tmp_path, tmp_path)


LOADED = """
import sys
from importlib import import_module
import filters.apply, filters.report.page
from filters.tables.fork_server import _PRELOADED
print([name for name in sys.modules if name.startswith(("distill.answers.", "distill.grounding."))])
for name in _PRELOADED:
    import_module(name)
"""


def test_only_workers_load_what_traces_are_measured_with(tmp_path):
    assert output_of(LOADED, tmp_path, tmp_path) == "[]\n"


FILTERED = """
import sys
from pathlib import Path
import pyarrow as pa
import distill
from distill.recipe.loading import load
from filters.tables import fork_server
fork_server.start = lambda: print("started", "filters.apply" in sys.modules)
if __name__ == "__main__":
    distill.filter(load(sys.argv[1]), Path(sys.argv[1]).parent / "run")
    print("pandas" in sys.modules, pa.table({"a": [1]}).to_pandas()["a"].tolist())
"""
"""Filters a run, and says what was loaded when."""


def filter_in_process(folder: Path, workers: int) -> list[str]:
    """The lines that `FILTERED` prints for a run of this folder."""
    made = recipe(folder, f"[filter]\nworkers = {workers}\n")
    return output_of(FILTERED, folder, folder, str(made.path)).splitlines()


def test_the_process_that_loads_modules_starts_before_this_one_loads_them(tmp_path):
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures"))
    assert filter_in_process(tmp_path, 2)[0] == "started False"


def test_a_finished_stage_starts_no_process_and_pandas_is_left_out(tmp_path):
    generate_folder(tmp_path / "run", *small_world(tmp_path / "pictures"))
    assert filter_in_process(tmp_path, 1) == ["False [1]"]
    assert filter_in_process(tmp_path, 2) == ["False [1]"]


def test_what_code_prints_in_a_worker_goes_to_stderr(tmp_path):
    """stdout has the result of the command alone."""
    script = SCRIPT.replace("print(list(workers.map(abs, range(-5, 5))))", "list(workers.map(print, range(5)))")
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    # Two workers may print at once: "01" and then two ends of lines.
    assert done.stdout == "" and sorted("".join(done.stderr.split())) == ["0", "1", "2", "3", "4"]
