"""The Dockerfile names things that exist, and its wheel can be built from what it copies. No image is built here."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from distill import __main__

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FIRST = next(number for number, line in enumerate(LINES) if line.endswith(" AS cpu"))


def copied(lines: list[str]) -> list[str]:
    words = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    return [word for line in words if not line[0].startswith("--from") for word in line]


def test_both_targets_are_there_and_take_the_wheel_of_a_stage_that_is_there() -> None:
    stages = [line.split(" AS ")[1] for line in LINES if line.startswith("FROM ")]
    assert stages == ["wheel", "cpu", "gpu"]
    assert set(re.findall(r"--from=(\w+)", "\n".join(LINES))) == {"wheel"}


def test_what_is_copied_exists_and_is_not_kept_out() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    kept = [pattern[1:] for pattern in ignored if pattern.startswith("!")]
    for name in copied(LINES):
        assert (ROOT / name).exists() and any(fnmatch.fnmatch(name, pattern) for pattern in kept), name


def test_what_is_installed_are_extras_and_requirements_of_the_project() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    named = re.findall(r'\.whl\)\[([\w,]+)\]"', "\n".join(LINES))
    assert len(named) == 2 and all(set(each.split(",")) <= set(extras) for each in named)
    assert re.findall(r"'(vllm[^']*)'", "\n".join(LINES)) == extras["vllm"]
    started = [line for line in LINES if line.startswith("ENTRYPOINT")]
    assert started == ['ENTRYPOINT ["distill"]'] * 2 and set(PROJECT["project"]["scripts"]) == {"distill"}


@pytest.mark.slow
def test_the_wheel_builds_from_what_its_stage_copies(tmp_path: Path) -> None:
    for name in copied(LINES[:FIRST]):
        place = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(place, tmp_path / name, ignore=ignored) if place.is_dir() else shutil.copy(place, tmp_path)
    code = "from hatchling.build import build_wheel; print(build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.split()[-1]).stat().st_size > 100_000


def test_the_command_says_what_it_does_not_do_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, function = PROJECT["project"]["scripts"]["distill"].partition(":")
    assert (module, function) == (__main__.__name__, "main")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "argv", ["distill", "generate", "tiny"])
    with pytest.raises(SystemExit, match=r"filter, view.*generate use WSL 2"):
        __main__.main()
