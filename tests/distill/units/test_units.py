"""Units in a store: of all attempts one counts, nothing is lost or doubled, and sealed work is used."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers.store_in_memory import MemoryStore

from distill.errors import DataError
from distill.object_store.local_store import LocalStore
from distill.object_store.retrying_store import RetryingStore
from distill.units.commits import Attempt, Commit, Unit, committed_units, read_commit, read_file

UNIT = Unit(round=1, partition="3f2a")
IDS = [f"{number:02d}" for number in range(6)]


class Worker:
    """A machine that works on a unit step by step, as generate does: read, ask, seal, commit."""

    def __init__(self, store: RetryingStore, memory: MemoryStore, number: int, sealed: set[str]) -> None:
        self.store, self.memory, self.number, self.sealed = store, memory, number, sealed
        self.running = self.done = False
        self.commit: Commit | None = None
        self.steps = self._work()

    def step(self) -> None:
        """The next step, unless this worker is in the middle of one or has finished."""
        if not self.running:
            self.running = True
            self.done = next(self.steps, None) is None
            self.running = False

    def finish(self) -> None:
        while not self.done:
            self.step()

    def _work(self) -> Iterator[bool]:
        self.commit = read_commit(self.store, UNIT)
        if self.commit is not None:
            return
        attempt = Attempt(store=self.store, unit=UNIT)
        texts: dict[str, str] = {}
        sealed_before = set(self.sealed)
        for segment in attempt.sealed("teacher"):
            for line in segment.decode().splitlines():
                key, _, text = line.partition(" ")
                texts.setdefault(key, text)
        # A worker that commits meanwhile deletes the segments.
        assert sealed_before <= set(texts) or UNIT.commit_key in self.memory.objects, "sealed work is asked again"
        yield True
        for key in IDS:
            if key not in texts:
                texts[key] = f"written by {self.number}"
                attempt.seal("teacher", f"{key} {texts[key]}\n".encode())
                self.sealed.add(key)
                yield True
        attempt.put_file("traces", "".join(f"{key} {texts[key]}\n" for key in IDS).encode(), count=len(IDS))
        yield True
        self.commit = attempt.commit({"traces": len(texts)})


@settings(max_examples=150)
@given(
    schedule=st.lists(st.integers(0, 3), max_size=60),
    let_in=st.lists(st.integers(0, 7), max_size=60),
    faults=st.lists(st.sampled_from(["", "", "lost", "refused"]), max_size=60),
    killed=st.sets(st.integers(0, 3), max_size=3),
)
def test_of_racing_attempts_one_counts_and_no_id_is_lost_or_doubled(
    schedule: list[int], let_in: list[int], faults: list[str], killed: set[int]
) -> None:
    memory, sealed = MemoryStore(), set[str]()
    store = RetryingStore(store=memory, sleep=lambda _: None, clock=itertools.count(0, 0.001).__next__)
    workers = [Worker(store, memory, number, sealed) for number in range(4)]
    planted, others = iter(faults), iter(let_in)

    def between() -> None:
        number = next(others, 7)
        if number < len(workers):
            workers[number].step()

    memory.fault = lambda: next(planted, "")
    memory.between = between
    for number in schedule:
        workers[number].step()
    living = [worker for worker in workers if worker.number not in killed]
    for worker in living:
        worker.finish()

    commits = [worker.commit for worker in workers if worker.commit is not None]
    assert {worker.number for worker in living} <= {worker.number for worker in workers if worker.commit}
    assert len({commit.attempt for commit in commits}) == 1, "exactly one attempt counts"
    lines = read_file(store, UNIT, commits[0], "traces").decode().splitlines()
    assert [line.split()[0] for line in lines] == IDS, "0 lost, 0 doubled"
    assert committed_units(store) == [UNIT]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def commit_traces(store: LocalStore) -> Commit:
    attempt = Attempt(store=store, unit=UNIT)
    attempt.put_file("traces", attempt.name.encode(), count=1)
    return attempt.commit({"traces": 1})


def test_a_committed_unit_keeps_the_files_of_its_commit_and_nothing_else(store: LocalStore) -> None:
    lost = Attempt(store=store, unit=UNIT)
    lost.seal("teacher", b"1 text\n")
    lost.put_file("traces", b"half")
    late = Attempt(store=store, unit=UNIT)
    late.put_file("traces", b"too late")
    commit = commit_traces(store)
    assert late.commit({}) == commit
    assert read_file(store, UNIT, commit, "traces") == commit.attempt.encode() and commit.files["traces"].count == 1
    late_folder, won = f"{UNIT.folder}/{late.name}", f"{UNIT.folder}/{commit.attempt}/traces"
    assert store.list_objects(late_folder) == []
    assert sorted(found.key for found in store.list_objects()) == sorted([UNIT.commit_key, won])


def test_segments_of_earlier_attempts_are_read_by_stream_and_in_the_order_of_their_names(store: LocalStore) -> None:
    for name in ("b", "a"):
        attempt = Attempt(store=store, unit=UNIT, name=name)
        attempt.seal("teacher", b"%s first\n" % name.encode())
        attempt.seal("other", b"other\n")
        attempt.seal("teacher", b"%s second\n" % name.encode())
    mine = Attempt(store=store, unit=UNIT)
    mine.seal("teacher", b"mine\n")
    assert list(mine.sealed("teacher")) == [b"a first\n", b"a second\n", b"b first\n", b"b second\n"]


def test_a_file_that_changed_after_its_commit_and_a_broken_commit_are_named(store: LocalStore) -> None:
    commit = commit_traces(store)
    store.put(f"{UNIT.folder}/{commit.attempt}/traces", b"changed")
    with pytest.raises(DataError, match=r"missing or changed since it was committed; delete generate/commits/1/3f2a"):
        read_file(store, UNIT, commit, "traces")
    store.put(UNIT.commit_key, b"{}")
    with pytest.raises(DataError, match="no commit of a unit"):
        read_commit(store, UNIT)
