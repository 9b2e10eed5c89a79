"""Every script of benchmarks/ starts on the code of today, and the commands that name one have its options."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from processes import forked

ROOT = Path(__file__).parents[2]
SCRIPT = re.compile(r"benchmarks/[\w/]+\.py")
_COMMAND = re.compile(r"(benchmarks/[\w/]+\.py)((?:[^`\n#\\]|\\\n)*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_OWN_OPTION = re.compile(r"^  (?:-\w, )?(--[a-z][\w-]*)", re.MULTILINE)
PASSES_ON = {"benchmarks/project/base_install.py"}
"""They give options that they do not know to another program."""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of every script; benchmark_helps.py has each in the same process."""
    program = ROOT / "tests" / "support" / "listed" / "benchmark_helps.py"
    done = subprocess.run(
        [forked.interpreter(), program],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "118", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def commands(text: str) -> list[tuple[str, set[str]]]:
    """The scripts of benchmarks/ that a text calls, each with the options that it gets there."""
    return [(script, set(_OPTION.findall(rest))) for script, rest in _COMMAND.findall(text)]


@pytest.mark.slow
def test_every_script_prints_what_it_measures_and_how_long_it_takes(helps: dict[str, str]) -> None:
    assert len(helps) > 70
    for script, text in helps.items():
        assert "usage:" in text and "Traceback" not in text and "exit code" not in text.splitlines()[-1], (
            f"{script}\n{text[-2000:]}"
        )
        (first, *_) = re.search(r'"""(.+?)"""', (ROOT / script).read_text(encoding="utf-8"), re.DOTALL)[1].split("\n")
        assert first in text, f"{script} does not print its docstring"
        # Others are started by a script beside them.
        if "/peers/" not in script and "/judges/" not in script:
            assert re.search(r"^ *Takes ", text, re.MULTILINE), f"{script}: takes how long?"


@pytest.mark.slow
def test_every_option_that_a_text_gives_a_script_of_benchmarks_is_one_of_its_own(helps: dict[str, str]) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--", "*.md", "*.py", "*.toml", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wrong, seen = [], 0
    for name in listed.stdout.split():
        if name.startswith(("tests/", "benchmarks/data/")):
            continue
        for script, options in commands((ROOT / name).read_text(encoding="utf-8")):
            seen += 1
            if not (ROOT / script).is_file():
                wrong.append(f"{name}: {script} does not exist")
            elif script in helps and script not in PASSES_ON:
                wrong += [
                    f"{name}: {script} {option}" for option in options - set(_OWN_OPTION.findall(helps[script]))
                ]
    assert seen > 150 and wrong == []


def test_a_script_and_an_option_that_do_not_exist_are_found() -> None:
    text = "`python benchmarks/a/b.py --rows 3 \\\n  --seed 1` and benchmarks/c.py --not` --this"
    assert commands(text) == [("benchmarks/a/b.py", {"--rows", "--seed"}), ("benchmarks/c.py", {"--not"})]
