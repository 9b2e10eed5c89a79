"""`distill filter` and `distill view` without what only POSIX has (tests/support/like_windows), not on Windows."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from servers.view_servers import Visitor
from worlds.run_fixtures import RECIPE, generate_folder, small_world

from distill.artifacts.manifest import Manifest
from distill.trace_records.human_labels import read_labels

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
[filter]
workers = 2
partition_rows = 8
exports = ["llava", "webdataset"]
"""
COMMAND = "from distill.cli import main; main()"


def windows_environment() -> dict[str, str]:
    folders = (ROOT / "tests" / "support" / "like_windows", ROOT)
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONWARNDEFAULTENCODING": "1"}


def start(code: str, *arguments: object, pipe: bool = True) -> "subprocess.Popen[str]":
    """A process as on Windows; what libraries say of their own files is left out."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    out = subprocess.PIPE if pipe else None
    return subprocess.Popen(command, env=windows_environment(), stdout=out, stderr=out, text=True, encoding="utf-8")


def on_windows(code: str, *arguments: object) -> tuple[int, str, str]:
    with start(code, *arguments) as process:
        out, error = process.communicate(timeout=200)
        return process.returncode, out, error


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is filtered as on Windows, and a copy that is filtered as usual; a few answers are expressions."""
    folder = tmp_path_factory.mktemp("windows")
    samples, traces = small_world(folder / "pictures", questions=8)
    samples = [replace(sample, answers=(rf"\sqrt{{{int(sample.answers[0]) ** 2}}}",)) for sample in samples]
    generate_folder(folder / "windows", samples, traces)
    shutil.copytree(folder / "windows", folder / "usual")
    (folder / "recipe.toml").write_text(RECIPE + SETTINGS, encoding="utf-8")
    code, _, error = on_windows(COMMAND, "filter", folder / "recipe.toml", "--run", folder / "windows")
    assert code == 0, error
    return folder


def test_the_simulation_takes_away_what_windows_does_not_have() -> None:
    code = """
import distill.artifacts.files, distill.cli, distill.run_log
os, signal = distill.artifacts.files.os, distill.cli.signal
absent = [name for name in ("fork", "getuid", "sync", "O_DIRECTORY", "pread") if hasattr(os, name)]
absent += [name for name in ("SIGHUP", "SIGKILL", "setitimer") if hasattr(signal, name)]
print(os.name, absent, hasattr(os, "replace"), hasattr(signal, "SIGTERM"))
"""
    assert on_windows(code)[:2] == (0, "nt [] True True\n")
    code = "import sys; sys.modules['distill.x'] = 1; exec('import fcntl', {'__name__': 'distill.x'})"
    assert "ModuleNotFoundError: Windows has no module 'fcntl'" in on_windows(code)[2]


def test_filter_on_windows_writes_the_bytes_that_it_writes_elsewhere(world: Path) -> None:
    command = [sys.executable, "-m", "distill", "filter", world / "recipe.toml", "--run", world / "usual"]
    subprocess.run(command, check=True, capture_output=True)
    windows, usual = (Manifest.read(world / name / "filter") for name in ("windows", "usual"))
    assert windows is not None and usual is not None and windows.counts == usual.counts
    assert windows.counts["correct"] > 0
    assert windows.outputs == usual.outputs


def test_filter_on_windows_takes_signals_over_and_names_every_file_as_windows_can(world: Path) -> None:
    run = shutil.copytree(world / "windows", world / "again")
    code, out, error = on_windows(COMMAND, "filter", world / "recipe.toml", "--run", run, "--fresh")
    assert code == 0 and "reused" in out, error
    assert (run / "filter.previous" / "manifest.json").is_file()
    names = {path.name for path in run.rglob("*")}
    assert not [name for name in names if set('<>:"|?*\\') & set(name) or name.endswith((".", " "))]
    for arguments in (("status", run), ("explain", run, json.loads(first_line(run))["id"])):
        assert on_windows(COMMAND, *arguments)[0] == 0


def first_line(run: Path) -> bytes:
    return sorted(run.glob("generate/*/part-*.jsonl"))[0].read_bytes().splitlines()[0]


@contextmanager
def viewed_on_windows(run: Path) -> Iterator[tuple[Visitor, "subprocess.Popen[str]"]]:
    with start(COMMAND, "view", run) as server:
        assert server.stdout is not None
        try:
            yield Visitor(server.stdout.readline().strip()), server
        finally:
            server.kill()


def test_view_on_windows_shows_and_labels_and_a_killed_one_leaves_no_lock(world: Path) -> None:
    run = world / "windows"
    with viewed_on_windows(run) as (visitor, server):
        rows = visitor.ask("/api/traces?words=dots")[1]["rows"]
        for path in ("/", f"/api/traces/{rows[0]['id']}", f"/picture/{rows[0]['sample_id']}/0", "/api/policy"):
            assert visitor.ask(path)[0] == 200
        assert visitor.ask("/api/labels", {"trace": rows[0]["id"], "label": "wrong"})[0] == 200
        with viewed_on_windows(run) as (second, _):
            assert "another process" in second.ask("/api/state")[1]["labelling_off"]
        server.send_signal(signal.SIGKILL)
    with viewed_on_windows(run) as (visitor, server):
        assert not visitor.ask("/api/state")[1]["labelling_off"]
        assert visitor.ask("/api/labels", {"trace": rows[1]["id"], "label": "correct"})[0] == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    assert [read_labels(run)[row["id"]].label for row in rows[:2]] == ["wrong", "correct"]


HOLD = """
import sys, time
from pathlib import Path
from distill.artifacts.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_run_on_windows_is_held_by_one_command_which_is_named_until_it_dies(world: Path) -> None:
    command = ("filter", world / "recipe.toml", "--run", world / "held")
    shutil.copytree(world / "windows", world / "held")
    with start(HOLD, world / "held") as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        code, _, error = on_windows(COMMAND, *command)
        assert code != 0 and f"another process is working here (process {holder.pid} of " in error
        holder.kill()
    assert on_windows(COMMAND, *command)[0] == 0


FILES = """
import os, sys
from pathlib import Path
from distill import run_log
from distill.artifacts.journal import Journal, read_jsonl
from distill.errors import BusyError
folder = Path(sys.argv[1])
(folder / "old.jsonl").write_bytes(b'{"a": 1}\\n{"a": 2}\\n')  # edited by hand
with Journal(folder / "old.jsonl") as journal:
    journal.append({"a": 3})
    try:
        Journal(folder / "old.jsonl")
    except BusyError:
        print("busy")
    print([record["a"] for record in read_jsonl(folder / "old.jsonl")])
run_log.MOST_BYTES = 500
for number in range(100):
    run_log._append(folder / "log.jsonl", b"a line\\r\\n")
print(sorted(path.name for path in folder.iterdir()), (folder / "log.jsonl").read_bytes().count(b"\\r\\n") <= 70)
"""


def test_journals_and_the_log_of_a_run_are_kept_as_elsewhere(tmp_path: Path) -> None:
    names = [".old.jsonl.lock", "log.1.jsonl", "log.jsonl", "old.jsonl"]
    assert on_windows(FILES, tmp_path)[1].splitlines() == ["busy", "[1, 2, 3]", f"{names} True"]


VOTES = r"""
from distill.answers import math_worker
endless = "\\int_0^{10^{9}} \\sin(x^{x^{x}}) \\cdot \\prod_{k=1}^{10^{8}} (x-k) dx"
votes = [math_worker.vote_on_expressions(endless, "9^{9^{9^{9}}}", timeout_s=0.5)]
votes += [math_worker.vote_on_expressions(*pair) for pair in (("\\sqrt{4}", "2"), ("1/2", "3"))]
print([vote.reason for vote in votes])
"""


def test_an_expression_that_takes_too_long_is_given_up_on_windows(tmp_path: Path) -> None:
    reasons = ["expression_took_too_long", "same_expression", "other_expression"]
    assert on_windows(VOTES)[1] == f"{reasons}\n"
