"""The log of a run: what it says of a command, that it holds no secret, stays small, and never ends a run."""

import errno
import logging
import multiprocessing
import os
import signal
import threading
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import orjson
import pytest
from servers import stub_server
from typer.testing import CliRunner
from worlds.generate_world import World

import distill
from distill import cli, redact, run_log
from distill.artifacts.manifest import Manifest
from distill.errors import CircuitOpen, RecipeError
from distill.machine import interrupts
from distill.run_log import LOG, OLDER, joined, recording


def events(run: Path, name: str = LOG) -> list[dict[str, Any]]:
    # A line is empty where a process saw a part of the line of another one, and began a new line.
    return [orjson.loads(line) for line in (run / name).read_bytes().splitlines() if line]


def messages(run: Path) -> list[str]:
    return [event["message"] for event in events(run)]


def test_a_verb_leaves_where_it_begins_and_ends_what_was_said_meanwhile_and_versions(tmp_path: Path) -> None:
    with recording(tmp_path, "run"), recording(tmp_path, "filter"), recording(tmp_path, "filter"):
        logging.getLogger("filters.anything").info("a note")
        logging.getLogger("library").info("not worth a line")
        logging.getLogger("library").warning("a warning of %s", "a library")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    begin, inner, note, library, python, inner_end, end = events(tmp_path)
    assert [begin["message"], inner["message"]] == ["run begins", "filter begins"]
    assert begin["versions"]["cot-distill"] and begin["time"].endswith("+00:00") and begin["process"] == os.getpid()
    assert (note["level"], note["command"], note["stage"]) == ("info", "run", "filter")
    assert (library["level"], library["message"]) == ("warning", "a warning of a library")
    assert (python["level"], python["message"]) == ("warning", "DeprecationWarning: old")
    assert (inner_end["stage"], end["stage"], end["command"]) == ("filter", "run", "run")
    assert end["exit_code"] == 0 and end["seconds"] >= inner_end["seconds"] >= 0


@pytest.mark.parametrize(
    ("error", "code", "level"),
    [
        (RecipeError("key: wrong"), 2, "error"),
        (CircuitOpen("nothing passes"), 3, "error"),
        (KeyboardInterrupt(), 130, "warning"),
        (ValueError("a fault of ours"), 1, "error"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 2, "error"),
    ],
)
def test_an_error_stands_once_as_the_user_sees_it_with_its_exit_code(
    tmp_path: Path, error: BaseException, code: int, level: str
) -> None:
    with pytest.raises(type(error)), recording(tmp_path, "run"), recording(tmp_path, "train"):
        raise error
    lines = events(tmp_path)
    said = [line for line in lines if line["level"] == level]
    assert len(said) == 1 and said[0]["stage"] == "train"
    assert [line["exit_code"] for line in lines if "exit_code" in line] == [code, code]
    if isinstance(error, RecipeError):
        assert said[0]["message"] == "key: wrong"
    if isinstance(error, ValueError) and code == 1:
        assert "Traceback" in said[0]["message"]
    if isinstance(error, ImportError):
        assert "pip install" in said[0]["message"]


def test_lines_wait_for_the_folder_of_the_run_and_make_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RecipeError), recording(run, "generate"):
        raise RecipeError("refused before anything was done")
    assert not run.exists()
    with recording(run, "generate"):
        run.mkdir()
    assert messages(run)[0] == "generate begins" and len(messages(run)) == 2


def test_the_log_holds_no_secret_neither_by_value_nor_by_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redact.know("the canary of 1849")
    monkeypatch.setattr("sys.argv", ["distill", "generate", "--api-key", "short"])
    with pytest.raises(ValueError), recording(tmp_path, "generate"):
        logging.getLogger("teacher").warning("https://me:pw1@host/ with the canary of 1849")
        raise ValueError("Authorization: Bearer abcdef123456")
    text = (tmp_path / LOG).read_text()
    assert not [secret for secret in ("canary of 1849", "pw1", "abcdef123456", "short") if secret in text]
    assert text.count(redact.MASK) >= 4


def _append_many(run: Path, number: int) -> None:
    with joined(run, "train"):
        for line in range(200):
            logging.getLogger("student").info("%d %d %s", number, line, "x" * 300)


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append_many, args=(tmp_path, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    said = {tuple(message.split()[:2]) for message in messages(tmp_path)}
    assert len(messages(tmp_path)) == len(said) == 800


def test_the_log_is_bounded_also_when_several_processes_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "MOST_BYTES", 50_000)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_append_many, args=(tmp_path, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sizes = [(tmp_path / name).stat().st_size for name in (LOG, OLDER)]
    # A process that finds another one renaming the file appends one line more.
    assert max(sizes) < 52_000 and {path.name for path in tmp_path.iterdir()} == {LOG, OLDER}
    assert all(event["message"] for name in (LOG, OLDER) for event in events(tmp_path, name))
    with joined(tmp_path, "filter"):
        logging.getLogger("filters").info("a" * 1_000_000)
    assert len(events(tmp_path)[-1]["message"]) < 9_000


def test_a_log_that_cannot_be_written_never_ends_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken" / LOG).mkdir(parents=True)
    with recording(tmp_path / "taken", "filter"):
        logging.getLogger("filters").info("a record that is no JSON", extra={"where": object()})

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with recording(tmp_path, "filter"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            logging.getLogger("filters").info("while the disk is full")
        logging.getLogger("filters").info("later")
    assert messages(tmp_path)[1:3] == ["while the disk is full", "later"]


def test_a_copy_of_a_run_by_hard_links_has_a_log_of_its_own(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    copy.mkdir()
    with recording(first, "filter"):
        pass
    os.link(first / LOG, copy / LOG)
    with recording(copy, "train"):
        pass
    begin_and_end = ["filter begins", messages(first)[1]]
    assert messages(first) == begin_and_end and messages(copy)[:3] == [*begin_and_end, "train begins"]
    assert {path.name for path in copy.iterdir()} == {LOG}


def test_a_line_after_a_torn_one_stands_alone(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(b'{"message": "ha')
    with joined(tmp_path, "filter"):
        logging.getLogger("filters").info("whole")
    torn, whole = (tmp_path / LOG).read_bytes().splitlines()
    assert torn == b'{"message": "ha' and orjson.loads(whole)["message"] == "whole"


def test_logging_is_as_it_was_after_a_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, shown = logging.getLogger(), warnings.showwarning
    handlers, level = list(root.handlers), logging.getLogger("distill").level
    for handler in handlers:
        root.removeHandler(handler)
    try:
        with recording(tmp_path, "filter"):
            logging.getLogger("library").warning("also on the terminal")
            logging.getLogger("teacher.engines.outage").warning("shown by the progress already")
        assert capsys.readouterr().err == "also on the terminal\n"
    finally:
        for handler in handlers:
            root.addHandler(handler)
    assert root.handlers == handlers and warnings.showwarning is shown
    assert logging.getLogger("distill").level == level


def test_generate_logs_an_outage_its_end_failed_tries_and_counts_and_no_result_changes(tmp_path: Path) -> None:
    manifests = []
    for name in ("logged", "unlogged"):
        world = World(tmp_path / name)
        world.folder.mkdir()
        world.add_rows(6)
        world.head = "[generate]\npatience_s = 30.0"
        with stub_server.serve() as url:
            world.add_teacher(url)
            if name == "logged":
                distill.load(world.recipe().path)
                mode(url, "503")
                timer = threading.Timer(1.5, mode, (url, ""))
                timer.start()
                arguments = ["generate", str(world.folder / "recipe.toml"), "--run", str(world.run)]
                done = CliRunner().invoke(cli.app, arguments)
                timer.join()
                assert done.exit_code == 0, done.output
            else:
                world.generate()
        manifest = Manifest.read(world.run / "generate")
        assert manifest is not None and LOG not in repr(manifest)
        manifests.append(manifest)
    lines = events(tmp_path / "logged" / "run")
    text = "\n".join(line["message"] for line in lines)
    assert {line["stage"] for line in lines} == {"generate"}
    assert "waiting for teacher 'stub'" in text and "answers again after" in text
    assert "failed tries: " in text
    assert next(line for line in lines if "counts" in line)["counts"]["complete"] == 6
    assert lines[-1]["exit_code"] == 0
    assert not (tmp_path / "unlogged" / "run" / LOG).exists(), "a function below the verbs does not log"
    assert len({each.fingerprint for each in manifests}) == 1


def mode(url: str, name: str) -> None:
    urllib.request.urlopen(f"{url.removesuffix('/v1')}/mode?{name}").read()


def test_repair_takes_the_log_for_no_journal(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").touch()
    (tmp_path / LOG).write_bytes(b"torn")
    (tmp_path / OLDER).write_bytes(b'{"a": 1}\nnot JSON\n')
    done = CliRunner().invoke(cli.app, ["repair", str(tmp_path), "--apply"])
    assert done.exit_code == 0 and "nothing is damaged" in done.output
    assert (tmp_path / OLDER).exists() and "repair ends" in (tmp_path / LOG).read_text()


def test_the_last_line_has_the_exit_code_of_the_signal(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), recording(tmp_path, "run"):
        interrupts.heard(signal.SIGTERM)
        raise KeyboardInterrupt
    assert events(tmp_path)[-1]["exit_code"] == 143
    assert [line["message"] for line in events(tmp_path) if line["level"] == "warning"] == ["interrupted"]
    with pytest.raises(KeyboardInterrupt), recording(tmp_path, "run"):  # a later command of the process, by Ctrl-C
        raise KeyboardInterrupt
    assert events(tmp_path)[-1]["exit_code"] == 130
