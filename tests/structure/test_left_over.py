"""The plugin that fails a module which leaves threads or processes."""

import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "support"
LEAVES = """
import multiprocessing, threading, time
from processes import left_over

left_over._GRACE_S = 2.0

def test_a():
    {left}

def test_b():
    pass
"""
THREAD = "threading.Thread(target=time.sleep, args=(9,), name='forgotten').start()"


def run_module(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "processes.left_over",
        "-p",
        "no:cacheprovider",
        "-q",
        "test_it.py",
    ]
    environment = {"PYTHONPATH": str(SUPPORT), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_module_that_leaves_a_thread_fails_at_its_last_test(tmp_path: Path) -> None:
    done = run_module(tmp_path, LEAVES.format(left=THREAD))
    assert done.returncode == 1
    assert "2 passed, 1 error" in done.stdout and "ERROR at teardown of test_b" in done.stdout
    assert "test_it.py leaves threads or processes:\nforgotten" in done.stdout


def test_a_module_that_leaves_a_process_fails_at_its_last_test(tmp_path: Path) -> None:
    sleeps = "multiprocessing.get_context('fork').Process(target=time.sleep, args=(9,), name='forgotten').start()"
    done = run_module(tmp_path, LEAVES.format(left=sleeps))
    assert done.returncode == 1 and "<ForkProcess name='forgotten'" in done.stdout


def test_a_module_that_ends_its_threads_passes(tmp_path: Path) -> None:
    done = run_module(tmp_path, LEAVES.format(left="threading.Thread(target=time.sleep, args=(0.2,)).start()"))
    assert done.returncode == 0, done.stdout
