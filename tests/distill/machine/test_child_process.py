"""Processes that are started look for modules where their parent does, and not in the working folder."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import os
from concurrent.futures import ProcessPoolExecutor
from distill.machine.child_process import spawn_context
if __name__ == "__main__":
    context = spawn_context()
    context.SimpleQueue()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        told = pool.submit(os.getenv, "PYTHONSAFEPATH").result()
    print(told, os.environ.get("PYTHONSAFEPATH"))
"""


def test_a_new_process_runs_no_file_of_the_working_folder_and_keeps_the_users_environment(tmp_path: Path) -> None:
    (folder := tmp_path / "working").mkdir()
    for name in ("types", "random", "signal", "datasets"):
        (folder / f"{name}.py").write_text(f"open('{name}', 'w').close(); raise SystemExit('of no concern')\n")
    (script := tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    for given in ({}, {"PYTHONSAFEPATH": "yes"}):
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT), **given},
            capture_output=True,
            text=True,
        )
        value = given.get("PYTHONSAFEPATH")
        assert (done.stdout, done.stderr) == (f"{value} {value}\n", "")
    assert {path.suffix for path in folder.iterdir()} == {".py"}
