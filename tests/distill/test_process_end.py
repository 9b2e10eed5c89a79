"""How the process of a command ends: after signals, with streams that fail, in a folder that is gone."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_command_ends_without_taking_modules_apart_and_with_its_own_code(
    tmp_path: Path, number: int, code: int
) -> None:
    """As while torch is imported: it defines classes by `exec`, and takes seconds to be taken apart."""
    script = (
        "import atexit, os, signal, sys, threading, time\n"
        "class Slow:\n    def __del__(self): os.write(1, b'taken apart')\n"
        "held = Slow()\n"
        "def load(*_, **__):\n"
        "    atexit.register(print, 'exit function')\n"
        "    threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
        f"    exec('os.kill(os.getpid(), {number}); time.sleep(9)')\n"
        "sys.argv = ['distill', 'check', 'tiny']\n"
        "import distill.recipe.loading; distill.recipe.loading.load = load\n"
        "from distill.__main__ import main; main()"
    )
    (tmp_path / "program.py").write_text(script)
    command = [sys.executable, "-m", "program"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (code, "thread\nexit function\n")
    assert done.stderr == "distill: interrupted\n"


def test_a_second_signal_does_not_wait_for_threads() -> None:
    script = (
        "import os, signal, sys, threading, time\n"
        "def load(*_, **__):\n"
        "    again = lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGINT), time.sleep(60))\n"
        "    threading.Thread(target=again).start()\n"
        "    raise KeyboardInterrupt\n"
        "sys.argv = ['distill', 'check', 'tiny']\n"
        "import distill.recipe.loading; distill.recipe.loading.load = load\n"
        "from distill.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == (130, "distill: interrupted\n")


def test_a_signal_before_the_command_is_read_has_its_own_code() -> None:
    script = (
        "import os, signal, sys; sys.argv = ['distill', '--version']\nfrom distill import cli\n"
        "cli.hide_secrets = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from distill.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "")


def test_a_version_that_cannot_be_written_is_one_message() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "distill", "--version"], stdout=full, stderr=-1, check=False)
    assert done.returncode == 1 and re.fullmatch(rb"distill: stdout cannot be written .*\n", done.stderr)


def test_a_command_in_a_folder_that_was_deleted_says_so(tmp_path: Path) -> None:
    script = (
        "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); "
        "sys.argv = ['distill', 'check', 'tiny']; from distill.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and done.stderr.startswith("distill: the current folder was deleted"), done.stderr
