"""The processes that share tasks outlive a crash of native code and a kill by the system."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from distill.errors import DataError
from distill.machine.process_pool import ProcessLost, ProcessPool, ending


def crash_on_some(number: int) -> int:
    if number in (3, 4):
        os.kill(os.getpid(), signal.SIGSEGV)
    return number * number


def kill_once(folder: Path, number: int) -> tuple[int, int]:
    """The number and the process; the process of each odd number is killed at the first try."""
    if number % 2 and not (folder / str(number)).exists():
        (folder / str(number)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number, os.getpid()


def end_itself(folder: Path, number: int) -> None:
    (folder / str(os.getpid())).touch()
    os._exit(number)


def fail(number: int) -> object:
    if number == 1:
        raise DataError("nothing to read")
    return (lambda: number) if number == 2 else os.getpid()


@pytest.mark.parametrize("count", [1, 2])
def test_a_crash_of_native_code_costs_its_own_task_alone(count: int) -> None:
    with ProcessPool(count) as pool:
        results = list(pool.map(crash_on_some, range(8), lambda number: -number))
    assert results == [0, 1, 4, -3, -4, 25, 36, 49]


def test_a_task_whose_process_was_killed_is_done_again_and_the_others_keep_their_process(tmp_path: Path) -> None:
    with ProcessPool(2) as pool:
        done = list(pool.map(partial(kill_once, tmp_path), range(12)))
    assert [number for number, _ in done] == list(range(12))
    assert len({process for _, process in done}) <= 2 + 6, "only a killed process is replaced"


def test_a_process_that_is_killed_at_each_try_is_named_with_its_signal() -> None:
    with ProcessPool(2) as pool, pytest.raises(ProcessLost, match="was killed by SIGSEGV"):
        list(pool.map(crash_on_some, range(8)))


def test_what_ends_its_process_itself_does_so_once(tmp_path: Path) -> None:
    with ProcessPool(1) as pool, pytest.raises(ProcessLost, match="ended with exit code 7"):
        pool.submit(partial(end_itself, tmp_path), 7).result()
    assert len(list(tmp_path.iterdir())) == 1


def test_an_error_and_a_result_that_cannot_be_sent_cost_no_process() -> None:
    with ProcessPool(1) as pool:
        process, failed, unsendable, same = [pool.submit(fail, number) for number in range(4)]
        error = failed.exception()
        assert isinstance(error, DataError) and "in fail" in error.__notes__[0]
        assert "pickle" in str(unsendable.exception())
        assert same.result() == process.result() != os.getpid()


def test_threads_share_the_processes(tmp_path: Path) -> None:
    with ProcessPool(2) as pool, ThreadPoolExecutor(4) as threads:
        folders = [tmp_path / name for name in "abcd"]
        for folder in folders:
            folder.mkdir()
        made = threads.map(lambda folder: list(pool.map(partial(kill_once, folder), range(6))), folders)
        assert [[number for number, _ in each] for each in made] == [list(range(6))] * 4


def test_the_end_of_a_process_is_told_by_name() -> None:
    assert ending(3) == "ended with exit code 3"
    assert ending(-signal.SIGTERM) == "was killed by SIGTERM"
    assert ending(-(signal.SIGRTMIN + 1)) == f"was killed by signal {signal.SIGRTMIN + 1}"
