"""The store's copy of a stage that is being made: whole, of the newest attempt, ended by the result."""

import errno
import hashlib
import os
import shutil
import threading
import time
from pathlib import Path

import orjson
import pytest
from servers.store_in_memory import MemoryStore

from distill.artifacts.manifest import MANIFEST, Manifest
from distill.errors import DataError, StorageError
from distill.object_store.local_store import LocalStore
from distill.units import unfinished_stage
from distill.units.agent_record import AgentRecord
from distill.units.stored_stage import pull_stage, push_stage, stage_files
from distill.units.unfinished_stage import FolderCopy, copied_to_store, pull_newest

ATTEMPTS = "run/train/attempts"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def finish(folder: Path, name: str = "") -> None:
    Manifest(stage="train", fingerprint=name, fields={}, counts={"steps": 3}).write(folder)


def copy_of(store: MemoryStore | LocalStore, folder: Path, agent: str) -> FolderCopy:
    return FolderCopy(store=store, stage="train", folder=folder, agent=agent, begun_from="")


def test_a_copy_is_the_folder_at_one_moment_while_checkpoints_come_and_go(tmp_path: Path) -> None:
    folder, store, ended = tmp_path / "train", LocalStore(tmp_path / "store"), threading.Event()

    def work() -> None:
        step = 0
        while not ended.is_set():
            step += 1
            with (folder / "a" / "metrics.jsonl").open("a") as lines:
                lines.write(f"{step}\n")
            checkpoint = folder / "a" / "checkpoints" / f"{step}"
            write(checkpoint / "weights", f"{step} " * 1000)
            write(checkpoint / "complete", "")
            if step > 1:
                shutil.rmtree(folder / "a" / "checkpoints" / f"{step - 1}")
            ended.wait(0.01 + step / 10_000)  # longer and longer: on a busy machine listing a folder takes long, too

    (folder / "a").mkdir(parents=True)
    thread, copy, seen = threading.Thread(target=work), copy_of(store, folder, "one"), set[int]()
    thread.start()
    try:
        while len(seen) < 12:
            copy.renew()
            pull_newest(store, "train", tmp_path / "pulled")
            complete = [path.parent for path in (tmp_path / "pulled").rglob("complete")]
            if not complete:
                continue
            # Training goes on from the newest one; the one before may be half removed at this moment.
            newest = max(int(checkpoint.name) for checkpoint in complete)
            weights = tmp_path / "pulled" / "a" / "checkpoints" / f"{newest}" / "weights"
            assert weights.read_text() == f"{newest} " * 1000
            lines = (tmp_path / "pulled" / "a" / "metrics.jsonl").read_text().splitlines()
            assert newest <= len(lines) <= newest + 1
            seen.add(newest)
    finally:
        ended.set()
        thread.join()
    copy.renew()
    objects = [stored.key for stored in store.list_objects(f"{ATTEMPTS}/one")]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(objects) <= len(files), "what no copy names is deleted"


def test_the_next_agent_goes_on_from_the_newest_whole_copy(tmp_path: Path) -> None:
    store = MemoryStore()
    for number, agent in enumerate(("one", "two"), 1):
        write(tmp_path / agent / "checkpoint", agent)
        write(tmp_path / agent / ".cache" / "tokens", "can be computed again")
        store.clock = lambda number=number: float(number)  # type: ignore[misc]
        copy_of(store, tmp_path / agent, agent).renew()
        if agent == "one":
            kept = dict(store.objects)
    assert not any("cache" in key for key in store.objects)
    assert not any("/one" in key for key in store.objects), "the first copy of an attempt ends the earlier ones"
    store.objects |= kept
    pull_newest(store, "train", tmp_path / "next")
    assert (tmp_path / "next" / "checkpoint").read_text() == "two"
    damaged = next(key for key in store.objects if key.startswith(f"{ATTEMPTS}/two/"))
    store.objects[damaged] = (b"TWO", 2.0)
    pull_newest(store, "train", tmp_path / "other")
    assert (tmp_path / "other" / "checkpoint").read_text() == "one", "a damaged copy costs time and nothing else"


def test_an_agent_that_was_taken_for_lost_changes_nothing_after_the_end(tmp_path: Path) -> None:
    store = MemoryStore()
    write(tmp_path / "lost" / "checkpoint", "1")
    lost = copy_of(store, tmp_path / "lost", "lost")
    lost.renew()
    with copied_to_store(AgentRecord(store=store), "train", tmp_path / "train", every_s=60):
        assert (tmp_path / "train" / "checkpoint").read_text() == "1"
        (tmp_path / "train" / "checkpoint").unlink()
        write(tmp_path / "train" / "model", "trained")
        finish(tmp_path / "train")
    assert not store.list_objects(ATTEMPTS)
    write(tmp_path / "lost" / "checkpoint", "2")
    lost.renew()
    pull_newest(store, "train", tmp_path / "pulled")
    assert (tmp_path / "pulled" / "model").read_text() == "trained" and Manifest.read(tmp_path / "pulled")
    with copied_to_store(AgentRecord(store=store), "train", tmp_path / "again", every_s=60):
        (tmp_path / "again" / MANIFEST).unlink()
        write(tmp_path / "again" / "checkpoint", "3")
    assert not (tmp_path / ".train.held").exists(), "links to old checkpoints would keep them on the disk"
    pull_newest(store, "train", tmp_path / "pulled")
    assert (tmp_path / "pulled" / "checkpoint").read_text() == "3", "made again from the finished stage, it is newer"
    assert "model" in stage_files(store, "train"), "and the result stays until the next one"


def test_a_stage_goes_on_while_the_store_refuses_copies_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(MemoryStore):
        refuses = False

        def put(self, key: str, data: bytes | Path) -> None:
            if self.refuses:
                refused.set()
                raise StorageError("the store refuses the credentials")
            super().put(key, data)

    store, refused = Refusing(), threading.Event()
    with copied_to_store(AgentRecord(store=store), "train", tmp_path / "train", every_s=0.01):
        store.refuses = True
        write(tmp_path / "train" / "checkpoint", "1")
        assert refused.wait(60)
        write(tmp_path / "train" / "checkpoint", "2")
        store.refuses = False
    assert "not copied: the store refuses" in caplog.text
    pull_newest(store, "train", tmp_path / "pulled")
    assert (tmp_path / "pulled" / "checkpoint").read_text() == "2"


def test_a_stage_is_copied_again_after_an_error_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that copies ended, so an hour of training could be lost with the machine."""
    store, full = MemoryStore(), threading.Event()

    def refuse(*_: object) -> None:
        full.set()
        raise OSError(errno.ENOSPC, "no space left")

    with copied_to_store(AgentRecord(store=store), "train", tmp_path / "train", every_s=0.01):
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", refuse)
            write(tmp_path / "train" / "checkpoint", "1")
            assert full.wait(60)
        deadline = time.monotonic() + 60
        while not store.list_objects(ATTEMPTS) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.list_objects(ATTEMPTS)
    assert "not copied: [Errno 28] no space left" in caplog.text


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space left"), RuntimeError("a bug of a client")])
def test_an_error_of_any_kind_ends_no_copying(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Failing(MemoryStore):
        fails = True

        def put(self, key: str, data: bytes | Path) -> None:
            if self.fails:
                self.fails = False
                raise error
            super().put(key, data)

    store = Failing()
    with copied_to_store(AgentRecord(store=store, name="one"), "train", tmp_path / "train", every_s=0.01):
        store.fails = True
        write(tmp_path / "train" / "checkpoint", "1")
        deadline = time.monotonic() + 10
        while not store.list_objects(ATTEMPTS) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.list_objects(ATTEMPTS)
    assert f"stage train is not copied: {error}" in caplog.text


def test_of_a_file_that_grows_only_what_is_new_is_put_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(MemoryStore):
        put_bytes = 0

        def put(self, key: str, data: bytes | Path) -> None:
            if not key.endswith(".json"):
                self.put_bytes += len(data) if isinstance(data, bytes) else data.stat().st_size
            super().put(key, data)

    monkeypatch.setattr(unfinished_stage, "_CHUNK_BYTES", 1000)
    store, lines = Counting(), tmp_path / "train" / "a" / "metrics.jsonl"
    copy, put = copy_of(store, tmp_path / "train", "one"), []
    for size in (0, 999, 1000, 50_000, 50_100, 52_000):
        write(lines, "".join(f"{number:09d}\n" for number in range(6000))[:size])
        store.put_bytes = 0
        copy.renew()
        put.append(store.put_bytes)
        pull_newest(store, "train", tmp_path / "pulled")
        assert (tmp_path / "pulled" / "a" / "metrics.jsonl").read_bytes() == lines.read_bytes()
        assert [path.name for path in (tmp_path / "pulled").rglob("*") if path.is_file()] == ["metrics.jsonl"]
    assert put == [0, 999, 1000, 49_000, 100, 2_000]
    write(lines, "another file\n")
    copy.renew()
    pull_newest(store, "train", tmp_path / "pulled")
    assert (tmp_path / "pulled" / "a" / "metrics.jsonl").read_bytes() == lines.read_bytes()
    assert len(store.list_objects(f"{ATTEMPTS}/one/")) <= 1, "what no copy names is deleted"


@pytest.mark.parametrize("name", ["../outside", "/", "a/../../outside", "C:\\outside", "\\outside", ""])
def test_a_name_in_the_store_that_leads_out_of_a_stage_is_refused(tmp_path: Path, name: str) -> None:
    store, data = MemoryStore(), b"of another user of the bucket"
    output = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    name = str(tmp_path / "outside") if name == "/" else name
    store.put("run/filter/stage.json", orjson.dumps({name: output}))
    store.put(f"run/filter/files/{output['sha256']}", data)
    with pytest.raises(DataError, match="no name of a run's file"):
        pull_stage(store, "filter", tmp_path / "run" / "filter")
    assert not list(tmp_path.rglob("*outside*"))


def test_an_error_or_a_signal_leaves_the_last_state_in_the_store(tmp_path: Path) -> None:
    store = MemoryStore()
    with (
        pytest.raises(KeyboardInterrupt),
        copied_to_store(AgentRecord(store=store), "t", tmp_path / "t", every_s=60),
    ):
        write(tmp_path / "t" / "checkpoint", "1")
        raise KeyboardInterrupt
    pull_newest(store, "t", tmp_path / "pulled")
    assert (tmp_path / "pulled" / "checkpoint").read_text() == "1" and not store.list_objects("claims")


def test_students_of_finished_training_stages_are_put_once(tmp_path: Path) -> None:
    store, puts = MemoryStore(), list[str]()
    put = store.put

    def count(key: str, data: bytes | Path) -> None:
        puts.append(key)
        put(key, data)

    store.put = count  # type: ignore[method-assign]
    folder = tmp_path / "train"
    write(folder / "a" / "model", "weights of a")
    finish(folder / "a", "a")
    write(folder / "b" / "checkpoint", "1")
    copy_of(store, folder, "one").renew()
    pull_newest(store, "train", tmp_path / "other")
    write(tmp_path / "other" / "b" / "checkpoint", "2")
    copy_of(store, tmp_path / "other", "two").renew()
    finish(tmp_path / "other")
    push_stage(store, "train", tmp_path / "other")
    large = [key for key in puts if "/files/" in key]
    assert len(large) == len(set(large)) == len([name for name in stage_files(store, "train") if name])


def test_a_damaged_result_is_reported_and_not_used(tmp_path: Path) -> None:
    store = MemoryStore()
    write(tmp_path / "train" / "model", "weights")
    finish(tmp_path / "train")
    push_stage(store, "train", tmp_path / "train")
    key = next(key for key, (data, _) in store.objects.items() if data == b"weights")
    store.objects[key] = (b"WEIGHTS", 0.0)
    with pytest.raises(DataError, match=r"missing or changed.*run/train/stage\.json"):
        pull_newest(store, "train", tmp_path / "pulled")
    assert Manifest.read(tmp_path / "pulled") is None
