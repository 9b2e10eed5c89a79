"""A generate stage that is killed, interrupted, or meets a full disk loses and doubles no trace."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import stub_server
from worlds.generate_world import World

from distill.errors import StorageError


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with stub_server.serve() as url:
        yield url


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


SCRIPT = """
import signal, sys
from distill.recipe import load
from teacher.generate import generate
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job would ignore it
generate(load(sys.argv[1]), sys.argv[2])
"""


def start(world: World, run: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(world.folder / "recipe.toml"), str(run)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def journal_bytes(run: Path) -> int:
    # Not .pending, which may go while it is listed.
    return sum(part.stat().st_size for part in run.glob("generate/[!.]*/part-*.jsonl"))


def test_ten_kills_at_random_moments_lose_and_double_nothing(world: World) -> None:
    chance = random.Random(7)
    world.add_rows(400)
    with stub_server.serve(latency_s=0.01) as url:
        world.add_teacher(url, samples=2, max_in_flight=4)
        world.recipe()
        kept: dict[str, dict[str, Any]] = {}
        killed = 0
        for attempt in range(10):
            process = start(world, world.run)
            if attempt % 5 == 0:
                time.sleep(chance.uniform(0.1, 0.9))  # while it plans
            else:
                grown = journal_bytes(world.run) + chance.randrange(60_000)
                while process.poll() is None and journal_bytes(world.run) < grown:
                    time.sleep(0.001)
                time.sleep(chance.uniform(0, 0.02))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
            found = {record["id"]: record for record in world.records()}
            assert kept.items() <= found.items()
            kept = found
        assert killed == 10 and 50 < len(kept) < 800
        finished = start(world, world.run)
        assert finished.communicate()[1] == ""
        assert kept.items() <= {record["id"]: record for record in world.records()}.items()
        whole = World(world.folder)
        whole.run = world.folder / "uninterrupted"
        assert start(world, whole.run).wait() == 0
    assert world.ids() == whole.ids() and len(set(world.ids())) == 800
    texts = {record["id"]: record["text"] for record in whole.records()}
    assert {record["id"]: record["text"] for record in world.records()} == texts


def test_ctrl_c_leaves_whole_lines_and_the_run_goes_on(world: World) -> None:
    world.add_rows(200)
    with stub_server.serve(latency_s=0.05) as url:
        world.add_teacher(url, max_in_flight=4)
        world.recipe()
        process = start(world, world.run)
        while process.poll() is None and journal_bytes(world.run) < 10_000:
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1]
        assert process.returncode != 0 and error.rstrip().endswith("KeyboardInterrupt")
        before = world.records()
        assert 0 < len(before) < 200
        assert all(part.read_bytes().endswith(b"\n") for part in world.run.glob("generate/*/part-*.jsonl"))
        world.generate()
        assert world.records()[: len(before)] == before
    assert world.ids() == world.planned()


def test_a_full_disk_is_one_message_and_the_run_goes_on_afterwards(world: World, url: str) -> None:
    world.add_rows(300)
    world.add_teacher(url)
    world.recipe()
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n{SCRIPT}"
    command = [sys.executable, "-c", script, str(world.folder / "recipe.toml"), str(world.run)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{StorageError.__module__}.StorageError") and "finished work is intact" in last
    kept = world.records()
    assert 0 < len(kept) < 300
    world.generate()
    assert world.records()[: len(kept)] == kept
    assert world.ids() == world.planned()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 60_000


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_a_run_whose_output_is_closed_or_lost_goes_on(world: World, url: str, closed: tuple[int, ...]) -> None:
    world.add_rows(20)
    world.add_teacher(url)
    world.recipe()
    command = [sys.executable, "-m", "distill", "generate", str(world.folder / "recipe.toml"), "--run"]
    done = subprocess.run([*command, str(world.run)], preexec_fn=lambda: [os.close(number) for number in closed])
    assert done.returncode == 0
    before = world.ids()
    assert before == world.planned()
    with Path("/dev/full").open("w") as full:  # a log whose disk is full
        lost = subprocess.run([*command, str(world.folder / "lost")], stderr=full, stdout=subprocess.PIPE)
        told = subprocess.run([*command, str(world.run)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert lost.returncode == 0
    assert told.returncode == 1
    assert "stdout cannot be written" in told.stderr and "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("number", "ignored"), [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGHUP, False)]
)
def test_sigterm_and_sighup_end_a_run_as_ctrl_c_does(world: World, number: int, ignored: bool) -> None:
    world.add_rows(200)
    with stub_server.serve(latency_s=0.1) as url:
        world.add_teacher(url, max_in_flight=4)
        world.recipe()
        command = [sys.executable, "-m", "distill", "generate", str(world.folder / "recipe.toml"), "--run"]

        def background() -> None:
            if ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        process = subprocess.Popen(
            [*command, str(world.run)], stderr=subprocess.PIPE, text=True, preexec_fn=background, env=os.environ
        )
        while process.poll() is None and not list(world.run.glob("generate/stub/part-*.jsonl")):
            time.sleep(0.02)
        process.send_signal(number)
        error = process.communicate()[1]
    assert process.returncode == 128 + number
    assert "Unclosed" not in error and "Traceback" not in error and "run the same command again" in error
