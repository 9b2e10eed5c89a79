"""What survives a crash: journals, atomic writes, locks, manifests, fingerprints, a full disk."""

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

import pytest

from distill.artifacts import files
from distill.artifacts import manifest as artifacts
from distill.artifacts.files import (
    Output,
    atomic_path,
    describe,
    directory_sha256,
    locked,
    new_folder,
    remembered_sha256,
    run_holder,
    set_aside,
    storage_errors,
    write_bytes,
    write_json,
    write_text,
)
from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.json_lines import seal
from distill.artifacts.manifest import Manifest
from distill.artifacts.snapshot import read_snapshot, write_snapshot
from distill.errors import BusyError, DataError, StaleError, StorageError
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


# --- manifests and fingerprints ---------------------------------------------------------------------------------


FIELDS = {"seed": 0, "teachers": [{"name": "a", "samples": 2, "sampling": {"top_p": 0.9}}], "data": {"limit": None}}


def manifest(fields: dict[str, object]) -> Manifest:
    flat = artifacts.flatten(fields)
    return Manifest(
        stage="generate",
        fingerprint=artifacts.fingerprint(flat),
        fields=flat,
        inputs={"recipe": "ab"},
        outputs={"part.jsonl": Output(sha256="cd", bytes=7, count=2)},
        counts={"traces": 2},
    )


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    assert Manifest.read(tmp_path) is None
    written = manifest(FIELDS).write(tmp_path)
    assert Manifest.read(tmp_path) == written
    assert artifacts.finished(tmp_path, artifacts.flatten(FIELDS), remedy="use --fresh") == written
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="not valid JSON"):
        Manifest.read(tmp_path)


def test_a_stale_stage_names_exactly_the_fields_that_differ_and_the_remedy(tmp_path: Path) -> None:
    manifest(FIELDS).write(tmp_path)
    changed = {"seed": 0, "teachers": [{"name": "a", "samples": 4, "sampling": {"top_p": 0.9}}], "data": {"limit": 9}}
    with pytest.raises(StaleError) as caught:
        artifacts.finished(
            tmp_path, artifacts.flatten({**changed, "extra": True}), remedy="use --fresh to start over"
        )
    lines = str(caught.value).splitlines()
    assert lines[1:-1] == [
        "  data.limit: None -> 9",
        "  extra: '(not set)' -> True",
        "  teachers.a.samples: 2 -> 4",
    ]
    assert lines[-1] == "use --fresh to start over"


def test_of_many_fields_that_differ_the_first_are_listed_and_the_others_counted() -> None:
    text = artifacts.differences({f"a{n:02}": 1 for n in range(20)}, {f"b{n:02}": 1 for n in range(20)})
    lines = text.splitlines()
    assert len(lines) == 17 and lines[0] == "  a00: 1 -> '(not set)'"
    assert lines[-1].startswith("  and 24 more fields: of another recipe or version? `distill plan ")


def test_a_stage_that_is_needed_and_not_finished_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(StaleError, match="has not been run; run distill generate"):
        artifacts.require(tmp_path, "generate", next_step="run distill generate")
    (tmp_path / "generate").mkdir()
    with pytest.raises(StaleError, match="is unfinished; run distill generate"):
        artifacts.require(tmp_path, "generate", next_step="run distill generate")
    written = manifest(FIELDS).write(tmp_path / "generate")
    assert artifacts.require(tmp_path, "generate", next_step="x") == written


def test_a_fingerprint_depends_on_values_and_not_on_their_order() -> None:
    assert artifacts.fingerprint({"a": 1, "b": 2.5}) == artifacts.fingerprint({"b": 2.5, "a": 1})
    assert artifacts.fingerprint({"a": 1}) != artifacts.fingerprint({"a": 1.0})
    assert artifacts.fingerprint({"a": 1}) == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


def test_flattening_names_list_items_and_keeps_empty_sections() -> None:
    assert artifacts.flatten({"a": {"b": 1, "c": []}, "l": [{"name": "x", "v": 1}, {"v": 2}], "t": (1, 2)}) == {
        "a.b": 1,
        "a.c": [],
        "l.x.name": "x",
        "l.x.v": 1,
        "l.1.v": 2,
        "t": (1, 2),
    }


def test_the_digest_of_a_directory_follows_names_and_contents(tmp_path: Path) -> None:
    def folder(name: str, **files: str) -> Path:
        (tmp_path / name / "sub").mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / "sub" / file).write_text(text)
        return tmp_path / name

    first = directory_sha256(folder("a", x="1", y="2"))
    assert directory_sha256(folder("b", y="2", x="1")) == first
    assert directory_sha256(folder("c", x="2", y="1")) != first
    (folder("d", x="1", y="2") / ".cache").write_text("ignored")
    assert directory_sha256(tmp_path / "d") == first


def test_a_description_holds_digest_size_and_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert describe(tmp_path / "a", 3) == Output(sha256=digest, bytes=3, count=3)


def test_a_digest_is_not_remembered_for_another_file_of_the_same_size_and_time(tmp_path: Path) -> None:
    """The clock of a file system moves in steps of milliseconds."""
    path = tmp_path / "metrics.json"
    digests = []
    for text in ("1.25", "1.50"):
        write_text(path, text)
        os.utime(path, ns=(10**18, 10**18))
        digests.append((remembered_sha256(path), describe(path).sha256))
    assert all(remembered == sha256 for remembered, sha256 in digests)


def test_starting_over_keeps_the_last_result_aside(tmp_path: Path) -> None:
    stage = tmp_path / "filter"
    for text in ("first", "second"):
        write_text(stage / "a", text)
        set_aside(stage)
    assert not stage.exists()
    assert (tmp_path / "filter.previous" / "a").read_text() == "second"
    set_aside(stage)
    assert (tmp_path / "filter.previous" / "a").read_text() == "second"


def test_versions_leave_out_what_is_not_installed() -> None:
    found = artifacts.versions("pyarrow", "no-such-distribution")
    assert "pyarrow" in found and "no-such-distribution" not in found


def test_a_manifest_that_is_none_is_named_with_the_way_on(tmp_path: Path) -> None:
    for text, fault in (
        ("{", "not valid JSON"),
        ("[]", "no manifest of a stage"),
        ('{"outputs": {}}', "no manifest"),
    ):
        (tmp_path / artifacts.MANIFEST).write_text(text)
        with pytest.raises(DataError, match=rf"{artifacts.MANIFEST}: {fault}.*remove it to redo the stage"):
            Manifest.read(tmp_path)


def test_a_stage_is_refused_only_if_it_was_begun_with_other_settings(tmp_path: Path) -> None:
    note = tmp_path / "begun.json"
    artifacts.begin(note, {"seed": 1}, begun=True, remedy="")  # nothing is noted
    artifacts.begin(note, {"seed": 2}, begun=False, remedy="")  # no work was done
    artifacts.begin(note, {"seed": 2}, begun=True, remedy="")
    with pytest.raises(StaleError, match=r"(?s)started with other settings.*seed: 2 -> 3.*use --fresh"):
        artifacts.begin(note, {"seed": 3}, begun=True, remedy="use --fresh")
    assert json.loads(note.read_bytes()) == {"seed": 2}


def test_a_manifest_without_counts_and_time_has_none() -> None:
    empty = Manifest(stage="filter", fingerprint="f", fields={})
    assert (empty.counts, empty.tokens, empty.outputs, empty.seconds) == ({}, {}, {}, 0)
