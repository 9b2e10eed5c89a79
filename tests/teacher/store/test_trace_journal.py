"""Traces on disk: durable whatever else the process does, and no failure to make them so is kept quiet."""

import errno
import os
import resource
import stat
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

import pytest

from distill.artifacts.journal import Journal, read_jsonl
from distill.artifacts.json_lines import seal
from distill.artifacts.layout import part_path
from distill.errors import StorageError
from distill.types import Trace, Usage
from teacher.store.trace_index import TraceIndex
from teacher.store.trace_journal import TraceJournal


def finished(number: int) -> Trace:
    return Trace(
        id=f"{number:020x}",
        sample_id="s",
        teacher="stub",
        k=0,
        seed=0,
        reasoning="",
        answer="7",
        text="7",
        outcome="complete",
        finish_reason="stop",
        usage=Usage(),
        params={},
        model="stub",
        revision="",
        engine={"name": "stub", "version": ""},
        prompt_sha="",
        latency_s=0.0,
        created="",
    )


def test_a_trace_becomes_durable_without_a_further_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable: list[int] = []

    def sync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            durable.append(status.st_size)

    monkeypatch.setattr(os, "fsync", sync)
    journal = TraceJournal(TraceIndex(tmp_path), flush_interval_s=0.2)
    for number in range(3):
        journal.append(asdict(finished(number)))
        deadline = time.monotonic() + 60  # how long it takes is a benchmark's business: other work slows this down
        written = part_path(tmp_path, 0, ".jsonl").stat().st_size
        while time.monotonic() < deadline and durable[-1:] != [written]:
            pass  # busy, as an event loop or a model may be
        assert durable[-1:] == [written]
    journal.close()
    assert len(durable) == 3


def test_an_fsync_that_fails_stops_the_run_at_the_next_trace_or_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for ending in ("append", "close"):
        journal = TraceJournal(TraceIndex(tmp_path / ending), flush_interval_s=0.01)
        journal.append(asdict(finished(0)))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            journal.append(asdict(finished(1)))
            journal._flusher.join(timeout=5)
        if ending == "append":
            with pytest.raises(StorageError, match="No space left on device"):
                journal.append(asdict(finished(2)))
        with pytest.raises(StorageError, match="No space left on device"):
            journal.close()
        written = [record["id"] for record in read_jsonl(part_path(tmp_path / ending, 0, ".jsonl"))]
        assert written == [finished(0).id, finished(1).id]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ENOTCONN, errno.ENOMEM])
def test_a_network_drive_that_goes_away_loses_no_trace_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    journal = TraceJournal(TraceIndex(tmp_path / "fsync"), flush_interval_s=0.01)
    journal.append(asdict(finished(0)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        journal.append(asdict(finished(1)))
        journal._flusher.join(timeout=5)
    with pytest.raises(OSError, match=os.strerror(number)):
        journal.append(asdict(finished(2)))
    with pytest.raises(OSError, match=os.strerror(number)):
        journal.close()

    called: list[Callable[[], None]] = []
    journal = TraceJournal(TraceIndex(tmp_path / "write"), flush_interval_s=60, soon=called.append)
    journal.append(asdict(finished(0)))
    assert journal._journal is not None
    with monkeypatch.context() as patch:
        patch.setattr(journal._journal, "_file", NoWrites(journal._journal._file, refuse))
        called.pop()()  # an event loop would only report what it raises
    with pytest.raises(OSError, match=os.strerror(number)):
        journal.append(asdict(finished(1)))
    with pytest.raises(OSError, match=os.strerror(number)):
        journal.close()


class NoWrites:
    """An open file of a drive that is gone."""

    def __init__(self, file: IO[bytes], write: Callable[..., int]) -> None:
        self._file, self.write = file, write

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def test_parts_roll_over_and_close_while_the_flusher_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teacher.store.trace_journal.PART_RECORDS", 5)
    journal = TraceJournal(TraceIndex(tmp_path), flush_interval_s=0.0001)
    for number in range(200):
        journal.append(asdict(finished(number)))
    journal.close()
    found = [record["id"] for number in range(40) for record in read_jsonl(part_path(tmp_path, number, ".jsonl"))]
    assert found == [finished(number).id for number in range(200)]


def test_half_of_a_surrogate_pair_in_a_trace_is_kept_as_the_sign_for_an_unreadable_character(tmp_path: Path) -> None:
    journal = TraceJournal(TraceIndex(tmp_path), flush_interval_s=1.0)
    journal.append(
        asdict(replace(finished(0), text="<a\ud800b>\udfff", reasoning="7 \U0001f600", stop_reason="\ude00"))
    )
    journal.append(asdict(replace(finished(1), text="\ud83d\ude00 is one character")))
    journal.close()
    first, second = read_jsonl(part_path(tmp_path, 0, ".jsonl"))
    assert (first["text"], first["reasoning"], first["stop_reason"]) == ("<a\ufffdb>\ufffd", "7 \U0001f600", "\ufffd")
    assert second["text"] == "\U0001f600 is one character"


def test_traces_of_one_moment_are_written_together_and_can_be_read_before(tmp_path: Path) -> None:
    called: list[Callable[[], None]] = []
    index = TraceIndex(tmp_path)
    journal = TraceJournal(index, flush_interval_s=1.0, soon=called.append)
    part = part_path(tmp_path, 0, ".jsonl")
    for number in range(3):
        journal.append(asdict(finished(number)))
    assert part.stat().st_size == 0
    (write,) = called
    write()
    assert [record["id"] for record in read_jsonl(part)] == [finished(number).id for number in range(3)]
    journal.append(asdict(finished(3)))
    assert index.read(finished(3).id)["id"] == finished(3).id
    journal.append(asdict(finished(4)))
    journal.close()
    assert len(list(read_jsonl(part))) == 5
    index.close()


def test_of_lines_that_are_written_together_those_that_fit_on_the_disk_stay(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    lines = [seal({"number": number}) for number in range(4)]
    room = sum(map(len, lines[:2])) + 5
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, (before := resource.getrlimit(resource.RLIMIT_FSIZE))[1]))
    try:
        for number in range(4):
            journal.append({"number": number}, hold=True)
        with pytest.raises(StorageError, match="cannot write"):
            journal.write_held()
        assert (tmp_path / "j.jsonl").read_bytes() == b"".join(lines[:2])
        assert journal.end == sum(map(len, lines[:2]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        journal.close()


def test_an_index_holds_the_parts_of_a_run_with_very_many_units(tmp_path: Path) -> None:
    """Each unit of a run in a store is a part: a run of more than 65,536 units failed when it was finished."""
    index, units = TraceIndex(tmp_path), 1 << 20
    index.add(asdict(finished(1)), units, 0)
    entry = index.entry(finished(1).id)
    assert entry is not None and entry.part == units
