"""Agents of a run claim work; the claims of a silent one go to others, by the clock of the store."""

import itertools
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from servers.store_in_memory import MemoryStore

from distill.errors import DistillError, StaleError, StorageError, StoreUnavailable
from distill.object_store import retrying_store
from distill.object_store.retrying_store import RetryingStore
from distill.units import agent_record
from distill.units.agent_record import LEASE_S, AgentRecord, joined
from distill.units.commits import Attempt, Unit
from distill.units.unit_queue import UNDRAWN, UnitQueue

UNITS = [Unit(round=0, partition=f"{number:02x}") for number in range(6)]


@pytest.fixture
def store() -> MemoryStore:
    """A store whose clock stands still unless a test moves it, and is wrong by years."""
    memory = MemoryStore()
    memory.clock = lambda: 1000.0
    return memory


def agent(store: MemoryStore) -> AgentRecord:
    record = AgentRecord(store=store)
    record.beat()
    return record


def test_work_has_one_agent_while_that_gives_signs(store: MemoryStore) -> None:
    first, second = agent(store), agent(store)
    assert first.claim("work") and not second.claim("work")
    store.clock = lambda: 1000.0 + LEASE_S - 1
    assert not second.claim("work")
    first.beat()
    store.clock = lambda: 1000.0 + 2 * LEASE_S - 2
    assert not second.claim("work")
    assert second.claim("other work")


def test_the_work_of_a_silent_agent_goes_to_one_other(store: MemoryStore) -> None:
    first, second, third = agent(store), agent(store), agent(store)
    assert first.claim("work")
    store.clock = lambda: 1000.0 + LEASE_S
    for each in (second, third):
        each.beat()
    assert [each.claim("work") for each in (second, third)] == [2, 0]
    first.beat()
    assert not first.claim("work"), "it was only slow; its work is taken"


def test_after_an_outage_of_the_store_agents_wait_for_the_signs_of_the_others(store: MemoryStore) -> None:
    own_s = 0.0
    first, second = agent(store), AgentRecord(store=store, clock=lambda: own_s)
    store.clock = lambda: 1000.0 + own_s
    second.beat()
    assert first.claim("work")
    own_s = 600.0  # as long the store did not answer
    assert not second.claim("work"), "the first one has had no time to give a sign either"
    assert second.away_s == 600.0 and first.away_s == 0.0
    first.beat()
    for passed_s in range(0, int(LEASE_S), 10):
        own_s = 600.0 + passed_s
        assert not second.claim("work")
    for passed_s in range(int(LEASE_S), int(2 * LEASE_S), 10):  # the first one is lost
        own_s = 600.0 + passed_s
        second.beat()
    assert second.claim("work")


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the system does not count the time of its sleep")
def test_after_a_sleep_of_the_machine_agents_wait_for_the_signs_of_the_others(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    up_s = 100.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: up_s)
    first, second = agent(store), agent(store)
    assert first.claim("work")
    up_s, store.clock = 3700.0, lambda: 4600.0
    assert not second.claim("work"), "the first one slept on the same machine"
    first.beat()
    assert not second.claim("work")


def test_an_agent_that_joins_after_an_outage_of_the_store_waits_for_the_signs_of_the_others(
    store: MemoryStore, tmp_path: Path
) -> None:
    first, lost = agent(store), agent(store)
    assert first.claim("work") and lost.claim("work of a lost one")
    store.clock = lambda: 1600.0  # as long the store did not answer
    with joined(store, tmp_path) as late:
        assert not late.claim("work") and not late.claim("work of a lost one")
        assert late.claim("other work")
        assert late.read_others() == [], "what silent agents say of themselves counts no more"
        first.beat()
        late._joining_until_s = 0.0
        assert late.claim("work") == 0 and late.claim("work of a lost one") == 2
        late.release("work of a lost one")


def test_an_agent_that_was_taken_for_lost_leaves_the_claim_of_the_one_that_took_over(store: MemoryStore) -> None:
    slow, second, third = agent(store), agent(store), agent(store)
    with slow.alone("train"):
        assert slow.claim("unit")
        store.clock = lambda: 1000.0 + LEASE_S
        for each in (second, third):
            each.beat()
        assert second.claim("train") == second.claim("unit") == 2
    slow.give_back()  # as for a signal
    assert third.claim("train") == third.claim("unit") == 0, "the second one is at work"
    second.give_back()
    assert not store.list_objects("claims"), "those of the lost one end with the work"
    assert third.claim("unit") == 1 and slow.claim("unit") == 0
    slow.give_back()
    assert second.claim("unit") == 0, "a claim of this number may be that of another agent"


def test_an_agent_that_has_ended_leaves_its_work_at_once(store: MemoryStore) -> None:
    first, second = agent(store), agent(store)
    assert first.claim("work")
    first.end()
    assert second.claim("work")
    second.release("work")
    assert not store.list_objects("claims")


def test_of_two_that_claim_at_the_same_moment_one_gets_the_work(store: MemoryStore) -> None:
    first, second = agent(store), agent(store)
    seen: list[int] = []

    def between() -> None:
        # After the first has listed and before it creates its claim.
        if not seen and store.requests == began + 2:
            seen.append(0)
            seen[0] = second.claim("work")

    began = store.requests
    store.between = between
    assert not first.claim("work") and seen == [1]


def test_a_process_in_the_scratch_folder_of_a_killed_one_does_not_wait_for_its_lease(
    store: MemoryStore, tmp_path: Path
) -> None:
    killed = joined(store, tmp_path).__enter__()
    assert killed.claim("work")
    with joined(store, tmp_path) as successor:
        assert successor.claim("work")
    assert not store.list_objects("agents")


def test_an_agent_with_another_version_of_the_package_is_refused_while_others_work(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with joined(store, tmp_path / "one") as first:
        assert first.claim("work")
        monkeypatch.setattr(agent_record, "versions", lambda: {"cot-distill": "0.0.1"})
        with pytest.raises(StaleError, match=r"works with .*this one has \{'cot-distill': '0\.0\.1'\}"):
            joined(store, tmp_path / "two").__enter__()
        assert len(store.list_objects("agents")) == 1 and len(store.list_objects("failures")) == 1
    with joined(store, tmp_path / "two") as other:
        assert other.claim("work"), "a run goes on with another version when no agent has the old one"


def test_one_of_all_agents_makes_what_is_wanted_once(store: MemoryStore) -> None:
    made: list[str] = []

    def make() -> str:
        made.append("plan")
        return made[0]

    for _ in range(2):
        assert agent(store).make_once("plan", lambda: made[0] if made else None, make) == "plan"
    assert made == ["plan"]
    waiting, busy = agent(store), agent(store)
    assert busy.claim("finish")
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: found.append(waiting.make_once("finish", lambda: None, lambda: "done by the second"))
    )
    thread.start()
    busy.end()
    thread.join(30)
    assert found == ["done by the second"]


def test_queues_of_several_agents_give_each_unit_once_and_see_what_others_commit(store: MemoryStore) -> None:
    elsewhere: list[Unit] = []
    told = agent(store)
    first = UnitQueue(told, UNITS, elsewhere.append, retries=5)
    told.live = lambda: {"units": first.at_work}
    second = UnitQueue(agent(store), UNITS, retries=5)
    drawn = [first.draw(), second.draw(), first.draw(), second.draw(), first.draw(), second.draw()]
    assert set(drawn) == set(UNITS)
    assert second.draw() is None and not second.ended

    def commit(queue: UnitQueue, unit: Unit | None) -> None:
        assert unit is not None
        Attempt(store=store, unit=unit).commit({})
        queue.done(unit)

    for unit in drawn[1::2]:
        commit(second, unit)
    assert not second.ended
    for unit in drawn[::2]:
        commit(first, unit)
    assert not first.ended, "others have committed the rest, which it has not seen yet"
    assert first.draw() is None and first.ended and set(elsewhere) == set(drawn[1::2])
    assert not store.list_objects("claims")


@pytest.mark.parametrize(
    ("traces", "seconds", "undrawn", "joins"),
    [
        (0, 2.0, 100, False),  # it has just begun, and may be fast
        (0, 20.0, 100, True),
        (10, 5.0, 19, False),  # done in 9.5 seconds
        (10, 5.0, 21, True),
        (1, 60.0, 3, False),  # too few to share
    ],
)
def test_an_agent_joins_a_unit_that_takes_another_one_long(
    store: MemoryStore, traces: int, seconds: float, undrawn: int, joins: bool
) -> None:
    other = agent(store)
    unit = UnitQueue(other, UNITS[:1], retries=5).draw()
    assert unit is not None
    other.live = lambda: {"traces": traces, "seconds": seconds, UNDRAWN: {unit.name: undrawn}}
    other.beat()
    assert UnitQueue(agent(store), UNITS[:1], retries=5).join(4, 10.0) == ((unit, 1) if joins else None)


def test_several_agents_join_a_unit_as_long_as_each_of_them_has_enough_to_do(store: MemoryStore) -> None:
    slow = agent(store)
    unit = UnitQueue(slow, UNITS[:1], retries=5).draw()
    assert unit is not None
    slow.live = lambda: {"traces": 10, "seconds": 10.0, UNDRAWN: {unit.name: 35}}
    slow.beat()

    def join(least_s: float) -> tuple[Unit, int] | None:
        record = agent(store)
        joined = UnitQueue(record, UNITS[:1], retries=5).join(1, least_s)
        record.live = lambda: {"traces": 0, "seconds": 1.0}
        record.beat()
        return joined

    joined_as = [join(10.0) for _ in range(5)]
    assert joined_as == [(unit, 1), (unit, 2), (unit, 3), None, None], (
        "35 samples are 11.7 s for three, 8.8 s for four"
    )
    fast = agent(store)
    fast.live = lambda: {"traces": 50, "seconds": 10.0, UNDRAWN: {unit.name: 35}}
    fast.beat()
    assert join(3.0) is None, "four agents of 3 samples a second on average"
    assert join(2.5) == (unit, 4)


def test_a_queue_takes_over_the_units_of_a_lost_agent(store: MemoryStore) -> None:
    lost = UnitQueue(agent(store), UNITS, retries=5)
    held = {lost.draw() for _ in UNITS}
    queue = UnitQueue(agent(store), UNITS, retries=5)
    assert queue.draw() is None
    store.clock = lambda: 1000.0 + LEASE_S
    queue._next_look_s = 0.0
    assert queue.draw() in held and not queue.ended


def lose_agent_at(store: MemoryStore, units: list[Unit], *, error: str = "") -> Unit | None:
    """What an agent draws that ends with an error, or is lost."""
    record = agent(store)
    drawn = UnitQueue(record, units, retries=2).draw()
    if error:
        failure = {"host": "node", "pid": 7, "units": [drawn.name] if drawn else [], "error": error}
        store.put(f"failures/{record.name}.json", orjson.dumps(failure))
        record.end()
    else:
        now_s = store.clock() + LEASE_S
        store.clock = lambda: now_s
    return drawn


def test_a_unit_at_which_agents_are_lost_or_fail_is_set_aside_and_the_others_are_finished(store: MemoryStore) -> None:
    bad, good = UNITS[:2]
    assert lose_agent_at(store, [bad]) == bad
    assert [lose_agent_at(store, [bad], error="its images are damaged") for _ in range(2)] == [bad, bad]
    queues = [UnitQueue(agent(store), [bad, good], retries=2) for _ in range(2)]
    assert [queue.draw() for queue in queues] == [good, None]
    Attempt(store=store, unit=good).commit({})
    queues[0].done(good)
    for queue in queues:
        queue._next_look_s = 0.0
        assert queue.draw() is None and queue.ended


def test_the_last_agent_gives_units_that_are_set_aside_free_for_the_next_command(store: MemoryStore) -> None:
    for _ in range(3):
        lose_agent_at(store, UNITS[:1], error="its images are damaged")
    records = agent(store), agent(store)
    queues = [UnitQueue(record, UNITS[:1], retries=2) for record in records]
    assert [queue.draw() for queue in queues] == [None, None] and all(queue.ended for queue in queues)
    for record, queue in zip(records, queues, strict=True):
        with pytest.raises(DistillError, match=r"0/00 \(3 agents\)\n  node 7: its images are damaged\n"):
            queue.require_all()
        assert store.list_objects("claims") or record is records[1]
        record.end()
    assert not store.list_objects("claims") and lose_agent_at(store, UNITS[:1]) == UNITS[0]


def test_of_agents_that_end_at_the_same_moment_one_frees_the_units_that_are_set_aside(store: MemoryStore) -> None:
    failure = {"host": "node", "pid": 7, "units": [UNITS[0].name], "error": "first"}
    store.put("failures/zz.json", orjson.dumps(failure))
    moments = itertools.count(1001.0, 0.001)
    store.clock = moments.__next__
    for error in ("second", "third", "last"):
        lose_agent_at(store, UNITS[:1], error=error)
    queues = [UnitQueue(agent(store), UNITS[:1], retries=2) for _ in range(2)]
    assert [queue.draw() for queue in queues] == [None, None]
    for queue in queues:  # neither has removed its record when the other one looks
        with pytest.raises(DistillError, match=r"node 7: second\n  node 7: third\n  node 7: last\n"):
            queue.require_all()
    assert not store.list_objects("claims") and lose_agent_at(store, UNITS[:1]) == UNITS[0]


def test_a_unit_at_which_an_agent_was_lost_is_worked_on_alone(store: MemoryStore) -> None:
    assert lose_agent_at(store, UNITS[:1]) == UNITS[0]
    queue = UnitQueue(agent(store), UNITS[:3], retries=2)
    fresh = {queue.draw(), queue.draw()}
    assert fresh == set(UNITS[1:3]) and queue.draw() is None, "others are at work"
    for unit in UNITS[1:3]:
        queue.done(unit)
    queue._next_look_s = 0.0
    assert queue.draw() == UNITS[0] and queue._alone == UNITS[0]
    queue._unclaimed.append(UNITS[4])
    assert queue.draw() is None
    queue.done(UNITS[0])
    assert queue.draw() == UNITS[4]


def test_a_signal_gives_units_back_and_does_not_count_as_a_failure(store: MemoryStore, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), joined(store, tmp_path) as record:
        assert UnitQueue(record, UNITS[:1], retries=0).draw() == UNITS[0]
        raise KeyboardInterrupt
    assert not store.list_objects("claims") and not store.list_objects("failures")
    with pytest.raises(RuntimeError), joined(store, tmp_path) as record:
        record.live = lambda: {"units": [UNITS[0].name]}
        assert UnitQueue(record, UNITS[:1], retries=0).draw() == UNITS[0]
        raise RuntimeError("broken")
    assert store.list_objects("claims")
    failure = orjson.loads(store.read(store.list_objects("failures")[0].key))
    assert failure["units"] == ["0/00"] and failure["error"] == "broken"


def test_an_agent_without_a_heartbeat_warns_once_and_continues(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beaten, signs = threading.Event(), 0

    def live() -> dict[str, object]:
        nonlocal signs
        signs += 1
        if signs in (2, 3):
            raise RuntimeError("the numbers changed")
        if signs == 5:
            beaten.set()
        return {"signs": signs}

    with joined(store, tmp_path, lease_s=0.04) as own:
        own.live = live
        assert beaten.wait(60)
        assert orjson.loads(store.read(f"agents/{own.name}.json"))["signs"] >= 4
    (told,) = [record.message for record in caplog.records]
    assert "cannot write its heartbeat (RuntimeError: the numbers changed)" in told


def test_an_interrupt_during_an_outage_ends_at_once_and_stays_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retrying_store, "LAST_PATIENCE_S", 0.1)
    memory, away = MemoryStore(), threading.Event()

    class Away(MemoryStore):
        def delete(self, keys: Iterable[str]) -> None:
            if away.is_set():
                raise StoreUnavailable("no answer")
            memory.delete(keys)

    faulty = Away()
    faulty.objects = memory.objects
    store = RetryingStore(store=faulty, report_wait=lambda text: waits.set())
    waits, ended = threading.Event(), threading.Event()

    def wait_for_the_store() -> None:
        with suppress(StorageError):
            store.delete(["nothing"])
        ended.set()

    with pytest.raises(KeyboardInterrupt), joined(store, tmp_path):
        away.set()
        threading.Thread(target=wait_for_the_store, daemon=True).start()
        assert waits.wait(60)
        raise KeyboardInterrupt
    assert ended.wait(60)
    assert any("after its lease: no answer" in record.message for record in caplog.records)


def test_an_agent_whose_record_is_deleted_at_this_moment_lives(store: MemoryStore) -> None:
    record = agent(store)

    def forget() -> None:  # after its sign, as another agent does that took it for lost
        if store.requests == before + 2:
            store.objects.clear()

    before, store.between = store.requests, forget
    assert record.living() == {record.name}


def test_a_sign_of_an_agent_does_not_wait_for_a_unit_that_is_drawn(store: MemoryStore) -> None:
    """The store may be slow, or many units may be finished by others: after a lease without a sign it is lost."""
    record, signs = agent(store), []
    queue = UnitQueue(record, UNITS, retries=5)
    record.live = lambda: {"units": queue.at_work}

    def sign() -> None:
        store.between = lambda: None
        sign = threading.Thread(target=record.beat, daemon=True)
        sign.start()
        sign.join(10)
        signs.append(sign.is_alive())

    store.between = sign
    assert queue.draw() in UNITS and signs == [False]
