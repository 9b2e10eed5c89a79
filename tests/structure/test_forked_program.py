"""A program that stands in for Python, and its fork, look like one process to the program that starts them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import forked

LOADED = "import json.tool, multiprocessing.resource_tracker"


def ran(*words: str | Path, **settings: object) -> tuple[int, str, str]:
    command = [forked.interpreter(LOADED), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


def test_it_runs_texts_modules_and_files_with_the_input_folder_and_variables_of_the_call(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(sys.argv, os.getcwd(), os.environ.get('MINE'), 'HOME' in os.environ, sys.stdin.read())"
    )
    assert ran("-c", code, "a b", cwd=tmp_path, env={"MINE": "1"}, input="said") == (
        *(0, f"['-c', 'a b'] {tmp_path} 1 False said\n"),
        "",
    )
    assert ran("-m", "json.tool", "--compact", input='{"a": 1}') == (0, '{"a":1}\n', "")
    (tmp_path / "own.py").write_text("NUMBER = 5")
    (tmp_path / "file.py").write_text("import own, sys; print(__name__, own.NUMBER, sys.argv[1:])")
    assert ran("-u", tmp_path / "file.py", "x") == (0, "__main__ 5 ['x']\n", "")


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("import os; os._exit(7)", 7, ""),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import atexit, sys; atexit.register(print, 'left', file=sys.stderr)", 0, "left\n"),
    ],
)
def test_it_ends_as_its_program_does(code: str, status: int, said: str) -> None:
    assert ran("-c", code) == (status, "", said)


def test_an_error_is_shown() -> None:
    status, _, said = ran("-c", "print('before'); raise ValueError('this')")
    assert status == 1 and said.splitlines()[-1] == "ValueError: this"


def test_processes_of_multiprocessing_are_forks_too() -> None:
    code = """
import multiprocessing, sys
context = multiprocessing.get_context("spawn")
child = context.Process(target=print, args=(6,))
child.start(), child.join()
print(sys.executable, child.exitcode)
"""
    assert ran("-c", code) == (0, f"6\n{forked.interpreter(LOADED)} 0\n", "")


def started(reader: int, writer: int) -> tuple["subprocess.Popen[bytes]", Path]:
    """A program that waits, and the folder of its process. The program has an open file of its caller."""
    code = f"import os, time; os.write({writer}, b'%d' % os.getpid()); time.sleep(300)"
    process = subprocess.Popen([forked.interpreter(LOADED), "-c", code], pass_fds=[writer], stderr=subprocess.PIPE)
    os.close(writer)
    return process, Path("/proc") / os.read(reader, 100).decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_reaches_the_program_and_is_how_it_ends(number: int) -> None:
    process, folder = started(*os.pipe())
    assert folder.exists()
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == -number
    assert (b"KeyboardInterrupt" in said) == (number == signal.SIGINT)
    for _ in range(600):
        if not folder.exists():
            return
        time.sleep(0.1)
    pytest.fail("the fork lives on")


def test_open_files_of_high_numbers_are_passed_on_and_no_others_are_open() -> None:
    reader, writer = os.pipe()
    high = [os.dup2(writer, number) for number in (300, 257)]
    code = "import os; os.write(300, b'a'); os.write(257, b'b'); print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    status, said, errors = ran("-c", code, pass_fds=high)
    for file in (writer, *high):
        os.close(file)
    with os.fdopen(reader, "rb") as passed:
        assert passed.read() == b"ab"
    listed = 3  # by the listing itself
    assert (status, said, errors) == (0, f"{[0, 1, 2, listed, 257, 300]}\n", "")


def test_threads_of_a_fork_can_be_the_first_to_use_torch_together() -> None:
    code = """
import threading, torch
together = threading.Barrier(32)
failed = []
def add():
    together.wait()
    try:
        torch.ones(200_000).sum()
    except RuntimeError as error:
        failed.append(error)
threads = [threading.Thread(target=add) for _ in range(32)]
for each in threads: each.start()
for each in threads: each.join()
print(len(failed))
"""
    command = [forked.interpreter(), "-c", code]
    printed = [subprocess.run(command, capture_output=True, text=True, check=False).stdout for _ in range(10)]
    assert printed == ["0\n"] * 10


def test_a_file_of_tests_that_cannot_be_imported_is_an_error_in_a_worker_too(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_broken.py").write_text("from os import missing\n\ndef test_it():\n    pass\n")
    worker = forked.COLLECTED.format(python=sys.executable, arguments=["tests"])
    worker += "sys.exit(pytest.main(['-p', 'no:cacheprovider', 'tests']))"
    done = subprocess.run([sys.executable, "-c", worker], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert "cannot import name 'missing'" in done.stdout
