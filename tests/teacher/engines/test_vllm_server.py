"""Servers that a run starts: up, restarted after a crash, gone afterwards."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distill.errors import TeacherError
from distill.recipe.sections.teachers import Teacher
from teacher.engines.vllm.vllm_server import Servers

# Answers /health and /pid, writes its own pid and that of a child to a file, and has a child that outlives SIGTERM.
FAKE = """\
import argparse, http.server, os, signal, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--pids")
parser.add_argument("--die-in", type=float)
parser.add_argument("--die-once")
parser.add_argument("--slow", type=float, default=0)
parser.add_argument("--deaf", action="store_true")
parser.add_argument("--stubborn", action="store_true")
options, _ = parser.parse_known_args()
print("fake server starts", os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("COLOUR"), flush=True)
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen(
    [sys.executable, "-c", stubborn if options.stubborn else "import time; time.sleep(600)"],
    start_new_session=options.stubborn,
)
if options.pids:
    with open(options.pids, "a") as file:
        file.write(f"{os.getpid()} {child.pid}\\n")
try:
    os.unlink(options.die_once or "")  # of two that start together only one can do it
    options.die_in = 0
except FileNotFoundError:
    pass
if options.die_in is not None:
    time.sleep(options.die_in)
    print("(Worker pid=7) ERROR 11-21 [x.py:9] torch.OutOfMemoryError: tried to allocate 20 GiB")
    print("\\n".join(f"line {number}" for number in range(30)))
    print("ValueError: no such model", flush=True)
    os._exit(3)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if options.deaf and time.monotonic() > born + 1:
            time.sleep(600)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())
    def log_message(self, *_):
        pass
born = time.monotonic()
time.sleep(options.slow)
http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    path = tmp_path / "fake.py"
    path.write_text(FAKE)
    return path


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pids"
    path.touch()
    yield path
    for pid in started(path):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def started(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent(pid: int) -> int:
    """The parent of a process; of a server, its guard."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(pids: list[int], patience_s: float = 15) -> bool:
    deadline = time.monotonic() + patience_s
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def teacher(fake: Path, pids: Path, *extra: str, **server: Any) -> Teacher:
    command = [sys.executable, str(fake)]
    return Teacher(
        name="managed", model="m", server={"command": command, "extra": ["--pids", str(pids), *extra], **server}
    )


def asked(url: str) -> int:
    """The pid of the server that answers there."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/pid", timeout=5) as response:
        return int(response.read())


async def crash(url: str) -> int:
    pid = asked(url)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(gone, [pid])
    return pid


def test_a_server_is_up_inside_the_block_and_gone_after_it(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        environment = {"COLOUR": "green"}
        async with Servers(teacher(fake, pids, environment=environment), "m", tmp_path / "logs") as servers:
            assert asked(servers.urls[0]) == started(pids)[0]
            assert all(map(alive, started(pids)))
            assert servers.command[:2] == [sys.executable, str(fake)]

    asyncio.run(run())
    assert len(started(pids)) == 2
    assert not any(map(alive, started(pids)))
    assert "fake server starts None green" in (tmp_path / "logs" / "server-0.log").read_text()


@pytest.mark.timing
def test_replicas_start_together_each_on_its_gpus(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> float:
        before = time.monotonic()
        async with Servers(
            teacher(fake, pids, "--slow", "1.5", gpus=["0", "2,3"]), "m", tmp_path / "logs"
        ) as servers:
            took_s = time.monotonic() - before
            assert len({asked(url) for url in servers.urls}) == 2
        return took_s

    assert asyncio.run(run()) < 2.9
    logs = [(tmp_path / "logs" / f"server-{number}.log").read_text() for number in (0, 1)]
    assert "starts 0 " in logs[0]
    assert "starts 2,3 " in logs[1]
    assert not any(map(alive, started(pids)))


@pytest.mark.timing
def test_the_loop_goes_on_while_a_server_starts(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> float:
        longest, before = 0.0, time.monotonic()

        async def tick() -> None:
            nonlocal longest, before
            while True:
                await asyncio.sleep(0.01)
                longest, before = max(longest, time.monotonic() - before), time.monotonic()

        ticking = asyncio.create_task(tick())
        async with Servers(teacher(fake, pids, "--slow", "1"), "m", tmp_path):
            ticking.cancel()
        return longest

    assert asyncio.run(run()) < 0.5


def test_a_death_while_starting_shows_the_end_of_the_log(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids, "--die-in", "0.1"), "m", tmp_path / "logs"):
            pytest.fail("must not come up")

    with pytest.raises(TeacherError) as caught:
        asyncio.run(run())
    text = str(caught.value)
    assert "ended with exit code 3 while starting" in text
    assert "ValueError: no such model" in text
    assert "line 20" in text
    assert "line 5" not in text
    assert "    torch.OutOfMemoryError: tried to allocate 20 GiB\n    ...\n" in text, "what came before counts more"
    assert str(tmp_path / "logs" / "server-0.log") in text
    assert gone(started(pids))


def test_a_server_that_is_not_up_in_time_is_ended(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids, "--slow", "60", start_timeout_s=1), "m", tmp_path):
            pytest.fail("must not come up")

    with pytest.raises(TeacherError, match=r"did not answer within start_timeout_s = 1"):
        asyncio.run(run())
    assert gone(started(pids))


def test_when_one_replica_fails_the_others_are_ended(fake: Path, pids: Path, tmp_path: Path) -> None:
    marker = tmp_path / "die"
    marker.touch()

    async def run() -> None:
        async with Servers(
            teacher(fake, pids, "--die-once", str(marker), "--slow", "1", gpus=["0", "1"]), "m", tmp_path
        ):
            pytest.fail("must not come up")

    with pytest.raises(TeacherError, match="exit code 3"):
        asyncio.run(run())
    assert gone(started(pids), 0.1)


def test_a_crashed_server_is_started_once_however_many_ask(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids), "m", tmp_path) as servers:
            url = servers.urls[0]
            first = await crash(url)
            assert await asyncio.gather(*(servers.revive(url) for _ in range(20))) == [True] * 20
            assert asked(url) != first
            assert servers.crashes == 1
            assert len(started(pids)) == 4
            assert not alive(started(pids)[1]), "what the dead server had started is gone before the next one starts"
            assert not await servers.revive(url), "a server that answers is left alone"
            assert servers.crashes == 1

    asyncio.run(run())
    assert not any(map(alive, started(pids)))
    assert (tmp_path / "server-0.log").read_text().count("===") == 2


def test_a_restart_goes_on_when_its_first_caller_gives_up(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids, "--slow", "0.5"), "m", tmp_path) as servers:
            await crash(servers.urls[0])
            first = asyncio.create_task(servers.revive(servers.urls[0]))
            await asyncio.sleep(0.2)
            first.cancel()
            assert await servers.revive(servers.urls[0])
            assert servers.crashes == 1

    asyncio.run(run())


def test_a_restart_that_fails_counts_as_a_crash(fake: Path, pids: Path, tmp_path: Path) -> None:
    marker = tmp_path / "die"

    async def run() -> None:
        async with Servers(teacher(fake, pids, "--die-once", str(marker), restarts=2), "m", tmp_path) as servers:
            marker.touch()
            await crash(servers.urls[0])
            assert await servers.revive(servers.urls[0])
            assert servers.crashes == 2

    asyncio.run(run())


def test_a_server_that_crashes_too_often_is_given_up(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids, restarts=1), "m", tmp_path) as servers:
            url = servers.urls[0]
            await crash(url)
            assert await servers.revive(url)
            await crash(url)
            for _ in range(2):
                with pytest.raises(TeacherError, match=r"exit code 137 \(SIGKILL\)(?s:.*)given up") as caught:
                    await servers.revive(url)
                assert "fake server starts" in str(caught.value)
            assert len(started(pids)) == 4

    asyncio.run(run())
    assert gone(started(pids), 0.1)


def test_a_server_that_hangs_is_ended_and_started_again(
    fake: Path, pids: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teacher.engines.processes.server_process._HEALTH_TIMEOUT_S", 0.5)
    monkeypatch.setattr("teacher.engines.processes.server_process._HUNG_AFTER_S", 2.0)

    async def run() -> None:
        async with Servers(teacher(fake, pids, "--deaf"), "m", tmp_path) as servers:
            first = started(pids)
            await asyncio.sleep(1.1)
            assert await servers.revive(servers.urls[0])
            assert not any(map(alive, first))
            assert len(started(pids)) == 4

    asyncio.run(run())


CLIENT = """\
import asyncio, os, signal, sys, time
from pathlib import Path
from teacher.engines.processes import guarded_process
from teacher.engines.vllm import vllm_server
from distill.recipe import Teacher
guarded_process._GRACE_S = 1.0
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
async def main():
    who = Teacher(name="t", model="m", server={"command": sys.argv[3:5], "extra": sys.argv[6:]})
    async with vllm_server.Servers(who, "m", Path(sys.argv[1])):
        if sys.argv[5] == "fork" and os.fork() == 0:  # a helper that outlives the client and has all that it had open
            time.sleep(30)
            os._exit(0)
        Path(sys.argv[2]).touch()
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("wish", "fork", "extra"),
    [
        (signal.SIGKILL, "", ()),
        (signal.SIGKILL, "", ("--stubborn",)),
        (signal.SIGKILL, "fork", ()),
        (signal.SIGTERM, "", ()),
        (signal.SIGINT, "", ()),
        (signal.SIGINT, "", ("--stubborn",)),
    ],
)
def test_nothing_is_left_however_the_client_ends(
    fake: Path, pids: Path, tmp_path: Path, wish: signal.Signals, fork: str, extra: tuple[str, ...]
) -> None:
    client, log, up = tmp_path / "client.py", tmp_path / "client.log", tmp_path / "up"
    client.write_text(CLIENT)
    root = Path(__file__).resolve().parents[3]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, client, tmp_path, up, sys.executable, fake, fork, "--pids", pids, *extra],
            stderr=output,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
    try:
        deadline = time.monotonic() + 30
        while not up.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert up.exists(), log.read_text()
        assert all(map(alive, started(pids)))
        process.send_signal(wish)
        process.wait(20)
        assert len(started(pids)) == 2
        assert gone(started(pids))
    finally:
        process.kill()
        process.wait()


def test_a_server_is_out_of_reach_of_ctrl_c(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids), "m", tmp_path):
            server = started(pids)[0]
            assert len({os.getsid(pid) for pid in (0, server, parent(server))}) == 3

    asyncio.run(run())


def test_a_killed_guard_takes_its_server_with_it(fake: Path, pids: Path, tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(teacher(fake, pids), "m", tmp_path):
            server = started(pids)[0]
            os.kill(parent(server), signal.SIGKILL)
            assert await asyncio.to_thread(gone, [server])

    asyncio.run(run())
