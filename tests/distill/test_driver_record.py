"""One process gives out the units of a run; a silent one is replaced by the clock of the store."""

import pytest
from store_in_memory import MemoryStore

from distill.errors import BusyError
from distill.units.driver_record import SILENCE_S, DriverRecord


@pytest.fixture
def store() -> MemoryStore:
    """A store whose clock stands still unless a test moves it, and is wrong by years."""
    memory = MemoryStore()
    memory.clock = lambda: 1000.0
    return memory


def test_a_second_driver_is_refused_while_the_first_gives_signs_and_told_who_it_is(store: MemoryStore) -> None:
    first = DriverRecord.take(store)
    store.clock = lambda: 1000.0 + SILENCE_S - 1
    with pytest.raises(BusyError, match=r"process \d+ on .* drives this run since 20"):
        DriverRecord.take(store)
    first.beat()
    store.clock = lambda: 1000.0 + 2 * SILENCE_S - 2
    with pytest.raises(BusyError):
        DriverRecord.take(store)
    assert first.is_current()


def test_a_silent_driver_is_replaced_and_stops_when_it_comes_back(store: MemoryStore) -> None:
    first = DriverRecord.take(store)
    first.beat()
    store.clock = lambda: 1000.0 + SILENCE_S
    second = DriverRecord.take(store)
    first.beat()
    assert (first.is_current(), second.is_current()) == (False, True)
    assert (first.number, second.number) == (1, 2)


def test_after_an_orderly_end_the_next_driver_begins_at_once(store: MemoryStore) -> None:
    DriverRecord.take(store).end()
    assert DriverRecord.take(store).number == 2
    assert not [key for key in store.objects if "look" in key]


def test_of_two_that_begin_at_the_same_moment_one_becomes_the_driver(store: MemoryStore) -> None:
    rivals: list[DriverRecord] = []

    def between() -> None:
        # After the first has listed and before it creates its record.
        if store.requests == 4:
            store.between = lambda: None
            rivals.append(DriverRecord.take(store))

    store.between = between
    with pytest.raises(BusyError, match="just begun"):
        DriverRecord.take(store)
    assert len(rivals) == 1 and rivals[0].is_current()
