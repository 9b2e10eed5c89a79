"""What survives a crash: journals, atomic writes, locks, a full disk."""

import errno
import json
import os
import platform
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from distill.artifacts import files
from distill.artifacts.files import (
    atomic_path,
    lock_file,
    locked,
    new_folder,
    run_holder,
    storage_errors,
    write_bytes,
    write_json,
    write_text,
)
from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.json_lines import seal
from distill.artifacts.snapshot import read_snapshot, write_snapshot
from distill.errors import BusyError, DataError, StorageError
from distill.object_store.local_store import LocalStore


def run_python(program: str, *arguments: Path | str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


# --- journals ---------------------------------------------------------------------------------------------------


def test_records_come_back_in_order_and_appending_continues(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "part.jsonl"
    with Journal(path) as journal:
        journal.append({"b": 1, "a": "ü\n"})
    with Journal(path) as journal:
        journal.append({"c": [1.5, None]})
    assert list(read_jsonl(path)) == [{"a": "ü\n", "b": 1}, {"c": [1.5, None]}]
    assert path.read_bytes().startswith(b'{"a":')


def test_a_copy_of_a_run_by_hard_links_leaves_the_journals_of_the_first_alone(tmp_path: Path) -> None:
    first, copy = tmp_path / "first.jsonl", tmp_path / "copy.jsonl"
    with Journal(first) as journal:
        journal.append({"a": 1})
    os.link(first, copy)
    with Journal(copy) as journal:
        journal.append({"a": 2})
    assert [*read_jsonl(first)] == [{"a": 1}] and [*read_jsonl(copy)] == [{"a": 1}, {"a": 2}]


def test_a_copy_of_a_run_by_hard_links_has_a_lock_of_its_own(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    with locked(first):
        pass
    copy.mkdir()
    os.link(first / ".lock", copy / ".lock")
    with locked(copy), locked(first), pytest.raises(BusyError, match="another process"), locked(copy):
        pass


def test_a_lock_file_that_was_replaced_after_it_was_opened_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def replaced_once(file: IO[bytes], run: Path, **holder: str) -> None:
        if not calls:  # as another process does that finds it in a copy by hard links
            (run / ".lock").unlink()
            (run / ".lock").touch()
        calls.append(run)
        lock_file(file, run, **holder)

    monkeypatch.setattr(files, "lock_file", replaced_once)
    with locked(tmp_path), pytest.raises(BusyError, match="another process"), locked(tmp_path):
        pass


def test_a_file_system_that_syncs_no_folders_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    write_text(tmp_path / "new" / "a.txt", "a")
    assert (tmp_path / "new" / "a.txt").read_text() == "a"


@pytest.mark.parametrize("torn", [b'{"a"', b"{", b'{"a": 3}', b"\0" * 70_000])
def test_a_torn_last_line_is_cut_off_on_opening_and_never_joined(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "part.jsonl"
    whole = seal({"a": 1}) + seal({"a": 2})
    path.write_bytes(whole + torn)
    assert [record["a"] for record in read_jsonl(path)] == [1, 2]
    with Journal(path) as journal:
        journal.append({"a": 9})
    assert path.read_bytes() == whole + seal({"a": 9})


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(b"x" * 200_000)
    Journal(path).close()
    assert path.read_bytes() == b""


def test_a_damaged_line_that_is_not_set_aside_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_bytes(b'{"a":1}\nnonsense\n{"a":2}\n')
    with pytest.raises(DataError, match=r"part.jsonl:2: this line is damaged: .* `distill repair [^`]+`"):
        list(read_jsonl(path))


def test_a_missing_journal_has_no_records(tmp_path: Path) -> None:
    assert list(read_jsonl(tmp_path / "none.jsonl")) == []


def test_two_writers_of_one_journal_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    with Journal(path), pytest.raises(BusyError, match="another process"):
        Journal(path)
    Journal(path).close()


def test_appends_are_fsynced_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with Journal(tmp_path / "part.jsonl", flush_interval_s=3600) as journal:
        synced.clear()  # the folder of a new file
        for number in range(100):
            journal.append({"n": number})
        assert synced == []
        journal.flush()
        journal.flush()
        assert len(synced) == 1
        journal.append({"n": 100})
    assert len(synced) == 2
    with Journal(tmp_path / "part.jsonl", flush_interval_s=1e-9) as journal:
        journal.append({"n": 101})
        assert len(synced) == 3


WRITER = """
import sys
from pathlib import Path
from typing import IO
from distill.artifacts.journal import Journal
journal = Journal(Path(sys.argv[1]), flush_interval_s=0.001)
number = 0
while True:
    journal.append({"n": number, "text": "x" * (number % 5000)})
    journal.flush()
    print(number, flush=True)
    number += 1
"""


def test_killing_a_writer_loses_no_flushed_line_and_the_next_one_continues(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    for _ in range(3):
        before = sum(1 for _ in read_jsonl(path))
        writer = run_python(WRITER, path)
        assert writer.stdout is not None
        told = -1
        for line in writer.stdout:
            told = int(line)
            if told >= 150:
                os.kill(writer.pid, signal.SIGKILL)
                break
        told = max([told, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        writer.wait()
        found = [record["n"] for record in read_jsonl(path)][before:]
        assert found[: told + 1] == list(range(told + 1))
    Journal(path).close()
    assert path.read_bytes().endswith(b"\n")


# --- atomic files -----------------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    write_text(path, "new")
    assert path.read_text() == "new"


def test_two_that_write_one_file_at_once_each_write_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_path(path) as slow:
        slow.write_bytes(b"slow and long")
        with atomic_path(path) as fast:
            fast.write_bytes(b"fast")
        assert path.read_bytes() == b"fast"
    assert path.read_bytes() == b"slow and long" and [*tmp_path.iterdir()] == [path]


def test_the_names_of_new_folders_and_journals_are_on_disk_with_what_is_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut only those names are sure to be there whose folder was fsynced after they came into it."""
    synced: dict[int, set[str]] = {}
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISDIR((status := os.fstat(descriptor)).st_mode):
            synced[status.st_ino] = set(os.listdir(descriptor))

    monkeypatch.setattr(os, "fsync", note)
    write_text(tmp_path / "run" / "generate" / "plan.json", "{}")
    with Journal(tmp_path / "run" / "generate" / "teacher" / "part.jsonl") as journal:
        journal.append({"a": 1})
    (store := LocalStore(tmp_path / "store")).put("p/00/attempt/file", b"result")
    store.create("commits/00.json", b"commit")
    for path in tmp_path.rglob("*"):
        assert path.name in synced.get(path.parent.stat().st_ino, set()), path


def test_no_disk_is_waited_for_where_a_file_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)
    write_snapshot(tmp_path / "snapshot", {"version": 1}, [b"values"])
    write_json(tmp_path / "note.json", {}, durable=False)
    assert not waits and read_snapshot(tmp_path / "snapshot") is not None
    write_json(tmp_path / "note.json", {})
    assert len(waits) == 2


def test_a_file_is_never_seen_half_written_even_when_its_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    program = """
import sys
from pathlib import Path
from typing import IO
from distill.artifacts.files import write_json
print("ready", flush=True)
for number in range(10**9):
    write_json(Path(sys.argv[1]), {"n": number, "filling": [number] * 20000})
"""
    for _ in range(3):
        writer = run_python(program, path)
        assert writer.stdout is not None
        writer.stdout.readline()
        began = time.monotonic()
        while not path.exists() and time.monotonic() < began + 60:
            time.sleep(0.01)
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            if path.exists():
                value = json.loads(path.read_bytes())
                assert value["filling"] == [value["n"]] * 20000
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        value = json.loads(path.read_bytes())
        assert value["filling"] == [value["n"]] * 20000


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from typing import IO
from distill.artifacts.files import write_bytes
from distill.artifacts.journal import Journal
from distill.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
journal = Journal(folder / "part.jsonl")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
written = 0
try:
    while True:
        journal.append({"n": written, "text": "x" * 300})
        written += 1
except StorageError as error:
    print(written, error)
try:
    write_bytes(folder / "big.bin", b"x" * 30_000)
except StorageError as error:
    print(error)
"""


def test_a_full_disk_is_one_plain_error_and_keeps_every_whole_line(tmp_path: Path) -> None:
    write_bytes(tmp_path / "big.bin", b"old")
    writer = run_python(FULL_DISK, tmp_path)
    out, err = writer.communicate(timeout=60)
    assert writer.returncode == 0, err
    journal, file = out.splitlines()
    written = int(journal.split()[0])
    assert written > 10
    assert [record["n"] for record in read_jsonl(tmp_path / "part.jsonl")] == list(range(written))
    assert (tmp_path / "part.jsonl").read_bytes().endswith(b"\n")
    assert "raise the limit" in journal and "raise the limit" in file
    assert (tmp_path / "big.bin").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.bin", "part.jsonl"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_refused_write_names_the_file_the_cause_and_the_next_step(tmp_path: Path, code: int) -> None:
    path = tmp_path / "a"
    with pytest.raises(StorageError) as caught, storage_errors(path):
        raise OSError(code, "refused")
    for part in (str(path), os.strerror(code), "run the same command again"):
        assert part in str(caught.value)
    with pytest.raises(FileNotFoundError), storage_errors(path):
        raise FileNotFoundError(errno.ENOENT, "gone")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_device_without_space_is_a_storage_error() -> None:
    with pytest.raises(StorageError), storage_errors(Path("/dev/full")):
        Path("/dev/full").write_bytes(b"x" * 100_000)


# --- locks ------------------------------------------------------------------------------------------------------


LOCKER = """
import sys, time
from pathlib import Path
from typing import IO
from distill.artifacts.files import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_run_is_held_by_one_process_and_freed_by_its_death(tmp_path: Path) -> None:
    holder = run_python(LOCKER, tmp_path)
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    said = rf"another process is working here \(process {holder.pid} of {re.escape(platform.node())}: -c "
    with pytest.raises(BusyError, match=said), locked(tmp_path):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        assert f"process {os.getpid()} " in run_holder(tmp_path)
    assert not run_holder(tmp_path)
    with locked(tmp_path):
        pass


def test_a_new_folder_has_one_writer_and_what_a_killed_one_left_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "above" / "out"
    program = (
        "import sys; from pathlib import Path; from distill.artifacts.files import new_folder\n"
        "with new_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'of the first').touch(); print(flush=True); sys.stdin.read()"
    )
    for killed in (True, False):
        first = run_python(program, out)
        assert first.stdout and first.stdout.readline()
        with pytest.raises(BusyError, match="another process is writing it"), new_folder(out):
            pass
        if killed:
            first.kill()
        first.communicate()
    assert [path.name for path in out.iterdir()] == ["of the first"] and list(out.parent.iterdir()) == [out]
    with pytest.raises(DataError, match="give a new folder"), new_folder(out):
        pass


def test_a_file_system_without_locks_is_named_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files, "try_lock", refuse)
    where = f"{tmp_path}: .* choose a place on a file system that has locks"
    with pytest.raises(StorageError, match=where), locked(tmp_path):
        pass


def test_a_run_that_is_held_is_made_with_the_folders_above_it(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "of today" / "first"
    for _ in range(2):
        with locked(run):
            assert run.is_dir()
