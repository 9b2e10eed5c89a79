"""A process that answers requests over pipes: what is lost with it, and who has it for itself."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from distill.errors import TeacherError
from distill.recipe.sections.managed_server import Server
from distill.recipe.sections.teachers import Teacher
from teacher.engines.processes.worker_process import LostError, WorkerProcess

HALF_AN_ANSWER = """
import os, sys
requests, answers = map(int, sys.argv[1:])
os.write(answers, b'{}\\n')
os.read(requests, 4096)
os.write(answers, b'{"id": "1", "te')  # as a process does that is killed
"""
ENDS_AT_ONCE = "import os, sys; os.write(int(sys.argv[2]), b'{}\\n')"
HALF_A_START = "import os, sys; os.write(int(sys.argv[2]), b'{\"version\": ')"


def worker(folder: Path, program: str = "", restarts: int = 0) -> WorkerProcess:
    return WorkerProcess(
        Teacher(name="t", model="m", server=Server(restarts=restarts)),
        lambda *pipes: [sys.executable, "-c", program, *pipes],
        dict(os.environ),
        folder / "log",
    )


def test_a_request_whose_answer_breaks_off_is_lost_and_not_waited_for(tmp_path: Path) -> None:
    async def ask() -> None:
        process = worker(tmp_path, HALF_AN_ANSWER)
        await process.start()
        try:
            await asyncio.wait_for(process.ask({"text": "?"}), 60)
        finally:
            await process.stop()

    with pytest.raises(LostError):
        asyncio.run(ask())


def test_a_process_that_ends_while_it_says_that_it_is_ready_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match="while starting"):
        asyncio.run(worker(tmp_path, HALF_A_START).start())


def test_a_process_that_cannot_be_started_leaves_no_pipe_open(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, so no folder for the log")

    async def start() -> None:
        process = worker(tmp_path / "taken")
        with pytest.raises(OSError):
            await process.start()
        await process.stop()
        await asyncio.sleep(0)

    async def open_descriptors() -> int:
        await start()  # what the first start opens for good
        before = len(list(Path("/proc/self/fd").iterdir()))
        await start()
        return len(list(Path("/proc/self/fd").iterdir())) - before

    assert asyncio.run(open_descriptors()) == 0


def test_a_request_that_has_the_process_for_itself_meets_no_other_one(tmp_path: Path) -> None:
    """Both wait while a third one has it. Alone, a row is proven to be the cause of a crash."""
    process, inside, met = worker(tmp_path), set[str](), list[set[str]]()

    async def take(name: str, *, alone: bool) -> None:
        async with process.alone() if alone else process.shared():
            inside.add(name)
            for _ in range(10):  # the process is started again
                await asyncio.sleep(0)
                if alone:
                    met.append(inside - {name})
            inside.discard(name)

    async def take_turns() -> None:
        async with process.alone():
            others = [asyncio.create_task(take(name, alone=name == "alone")) for name in ("shared", "alone")]
            await asyncio.sleep(0)
        await asyncio.gather(*others)

    asyncio.run(take_turns())
    assert met and not any(met)


def test_a_request_after_a_restart_whose_process_has_ended_is_lost_and_not_waited_for(tmp_path: Path) -> None:
    async def stay_busy() -> None:
        while True:
            time.sleep(0.3)
            await asyncio.sleep(0)

    async def ask() -> None:
        process = worker(tmp_path, ENDS_AT_ONCE, restarts=9)
        await process.start()
        with pytest.raises(LostError):
            await process.ask({"text": "?"})
        busy = asyncio.create_task(stay_busy())  # the end of the next process is seen before its start is
        try:
            with pytest.raises(LostError):
                await asyncio.wait_for(process.ask({"text": "?"}), 10)
        finally:
            busy.cancel()
            await process.stop()

    asyncio.run(ask())
