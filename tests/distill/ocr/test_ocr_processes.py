"""The processes that read pictures outlive a crash of native code."""

import os
import signal

import pytest

from distill.ocr.processes import ReaderProcesses


def crash_on_some(number: int) -> int:
    if number in (3, 4):
        os.kill(os.getpid(), signal.SIGSEGV)
    return number * number


@pytest.mark.parametrize("count", [1, 2])
def test_a_crash_of_native_code_costs_its_own_task_alone(count: int) -> None:
    with ReaderProcesses(count) as readers:
        results = list(readers.map(crash_on_some, range(8), lambda number: -number))
    assert results == [0, 1, 4, -3, -4, 25, 36, 49]
