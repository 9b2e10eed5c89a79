"""Items are worked on side by side, and their results come in order."""

import threading
import time

import pytest

from distill.machine.thread_map import thread_map


def test_items_overlap_and_results_keep_their_order() -> None:
    together = threading.Barrier(3, timeout=30)

    def read(number: int) -> int:
        together.wait()  # ends only where three are at work
        time.sleep(0.01 * (3 - number % 3))
        return number

    assert list(thread_map(read, range(9), threads=3)) == list(range(9))


def test_few_results_wait_and_an_error_ends_the_work() -> None:
    begun: list[int] = []

    def read(number: int) -> int:
        begun.append(number)
        if number == 5:
            raise FileNotFoundError("5")
        return number

    found = thread_map(read, range(1000), threads=2)
    assert [next(found) for _ in range(3)] == [0, 1, 2] and max(begun) <= 4
    with pytest.raises(FileNotFoundError):
        list(found)
    assert max(begun) <= 7
