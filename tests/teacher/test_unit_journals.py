"""Finished lines of a unit are sealed while an agent works on it; committed units are collected once, whole."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers.store_in_memory import MemoryStore

from distill.errors import DataError, StaleError, StorageError
from distill.object_store.local_store import LocalStore
from distill.units.agent_record import AgentRecord
from distill.units.commits import Attempt, Unit, decompress
from distill.units.stored_run import collect_units
from teacher.unit_exchange import UnitExchange
from teacher.unit_journals import Sealer, put_journals, write_sealed

UNIT = Unit(round=0, partition="00")


@contextmanager
def given_up(sealer: Sealer) -> Iterator[None]:
    sealer.start()
    try:
        yield
    finally:
        sealer.give_up()


def sealed(store: LocalStore) -> list[bytes]:
    return [decompress(store.read(found.key)) for found in store.list_objects() if "/segment-" in found.key]


def test_new_whole_lines_are_sealed_while_a_unit_is_at_work(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    Attempt(store=store, unit=UNIT, name="earlier").seal("stub", b'{"id": 1}\n')
    attempt, folder = Attempt(store=store, unit=UNIT, name="later"), tmp_path / "generate"
    write_sealed(attempt, folder / "stub")
    first, second = sorted((folder / "stub").glob("part-*"))
    assert first.read_bytes() == b'{"id": 1}\n' and second.read_bytes() == b""
    exchange = UnitExchange(attempt=attempt, agent=AgentRecord(store=store), jobs=list)
    sealer = Sealer(attempt, folder, ["stub"], 0.01, exchange)
    with pytest.raises(KeyboardInterrupt), given_up(sealer):
        second.write_bytes(b'{"id": 2}\n{"id":')
        deadline = time.monotonic() + 30
        while len(sealed(store)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sealed(store) == [b'{"id": 1}\n', b'{"id": 2}\n']
        second.write_bytes(b'{"id": 2}\n{"id": 3}\n')
        raise KeyboardInterrupt
    assert b"".join(sealed(store)) == b'{"id": 1}\n{"id": 2}\n{"id": 3}\n'


def test_lines_that_the_store_did_not_take_are_sealed_the_next_time(tmp_path: Path) -> None:
    store, tried = MemoryStore(), threading.Event()
    attempt, folder = Attempt(store=store, unit=UNIT), tmp_path / "generate"
    write_sealed(attempt, folder / "stub")
    part = max((folder / "stub").glob("part-*"))
    exchange = UnitExchange(attempt=attempt, agent=AgentRecord(store=store), jobs=list)
    part.write_bytes(b'{"id": 1}\n')

    def refuse() -> str:
        tried.set()
        raise StorageError("the store is away")

    store.fault = refuse
    sealer = Sealer(attempt, folder, ["stub"], 0.01, exchange)
    with pytest.raises(KeyboardInterrupt), given_up(sealer):
        assert tried.wait(30)
        store.fault = str
        with part.open("ab") as file:
            file.write(b'{"id": 2}\n')
        raise KeyboardInterrupt
    lines = [decompress(store.read(found.key)) for found in store.list_objects() if "/segment-" in found.key]
    assert b"".join(lines) == b'{"id": 1}\n{"id": 2}\n'


def test_units_are_collected_when_all_are_committed_and_into_a_new_folder(tmp_path: Path) -> None:
    store, plan = LocalStore(tmp_path / "store"), {"partitions": {"00": 1}, "rounds": [{"teachers": ["stub"]}]}
    with pytest.raises(StaleError, match="unit 0/00 is not finished"):
        collect_units(store, plan, tmp_path / "first")
    attempt = Attempt(store=store, unit=UNIT)
    write_sealed(attempt, tmp_path / "scratch" / "stub")
    (tmp_path / "scratch" / "stub" / "part-000001.jsonl").write_bytes(b"{}\n")
    attempt.commit(dict(put_journals(attempt, tmp_path / "scratch", ["stub"])))
    with pytest.raises(DataError, match="no name of a teacher"):
        collect_units(store, {**plan, "rounds": [{"teachers": ["../../stub"]}]}, tmp_path / "outside")
    collect_units(store, plan, tmp_path / "second")
    assert [part.read_bytes() for part in (tmp_path / "second" / "generate" / "stub").glob("part-*")] == [b"{}\n"]
    with pytest.raises(StaleError, match="holds traces"):
        collect_units(store, plan, tmp_path / "second")
