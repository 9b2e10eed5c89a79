"""At the end of a run an agent without a unit shares the work on one of another agent, and nothing is asked twice."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import stub_server
from worlds.generate_world import World, asked_of, set_mode
from worlds.store_worlds import lines_of, small_world

from distill.object_store.local_store import LocalStore
from distill.types import Progress
from distill.units.commits import committed_units
from distill.units.stored_run import pull_generate
from teacher.store_run import generate_in_store

HEAD = '[engine]\nscratch = "scratch"\nunit_rows = 64\nseal_s = 0.1\nlease_s = 10.0\n[generate]\npatience_s = 2.0'
"""A lease that a busy machine keeps: an agent that is only slow is not taken for lost."""


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.3) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    world = small_world(tmp_path, url)
    world.head = HEAD
    return world


def made_here(world: World, address: str, scratch: Path, seen: list[Progress]) -> threading.Thread:
    recipe = world.recipe()
    thread = threading.Thread(
        target=lambda: generate_in_store(recipe, address, scratch, on_progress=seen.append), daemon=True
    )
    thread.start()
    return thread


def require_whole(world: World, store: LocalStore, pulled: Path) -> None:
    """Each trace is there once, as a plain run makes it."""
    pull_generate(store, pulled)
    ids = Counter(str(record["id"]) for record in lines_of(world, pulled))
    assert set(ids.values()) == {1}
    world.generate()
    assert lines_of(world, pulled) == lines_of(world, world.run)


def test_two_agents_share_the_only_unit_of_a_run(world: World, url: str, tmp_path: Path) -> None:
    store, address = LocalStore(tmp_path / "store"), f"file://{tmp_path / 'store'}"
    reports: tuple[list[Progress], list[Progress]] = [], []
    threads = [made_here(world, address, tmp_path / f"{number}", reports[number]) for number in range(2)]
    for thread in threads:
        thread.join(100)
    assert len(committed_units(store)) == 1
    segments = Counter(stored.key for stored in store.list_objects("generate"))
    assert not any("segment" in key or "agent-" in key for key in segments), "the winner removes what is left over"
    assert not store.list_objects("claims") and not store.list_objects("agents")
    asked = asked_of(url)
    assert 90 <= asked <= 150, "what both have drawn within one look is asked twice at most, and not all"
    require_whole(world, store, tmp_path / "pulled")
    shares = [max((report.facts.get("tokens_per_s", 0) for report in seen), default=0) for seen in reports]
    assert all(shares), "both agents made traces"


def started(world: World, address: str, number: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "distill", "generate", str(world.folder / "recipe.toml"), "--run", address]
    command += ["--set", f"engine.scratch={world.folder / f'machine-{number}'}"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def attempts(store: LocalStore) -> set[str]:
    return {stored.key.rpartition("/")[0] for stored in store.list_objects("generate") if "/agent-" in stored.key}


@pytest.mark.slow
@pytest.mark.parametrize(("agents", "victim"), [(2, 0), (3, 2)])
def test_a_kill_of_one_of_several_that_share_a_unit_loses_and_doubles_nothing(
    world: World, url: str, tmp_path: Path, agents: int, victim: int
) -> None:
    world.recipe()
    store, chance = LocalStore(tmp_path / "store"), random.Random(victim)
    set_mode(url, "hold")
    processes = [started(world, f"file://{tmp_path / 'store'}", number) for number in range(agents)]
    deadline = time.monotonic() + 100
    while len(attempts(store)) < agents and time.monotonic() < deadline:
        time.sleep(0.002)
    assert len(attempts(store)) == agents, "the other agents joined the unit of the first one"
    set_mode(url, "")
    time.sleep(chance.uniform(0, 0.6))
    processes[victim].send_signal(signal.SIGKILL)
    outputs = [process.communicate(timeout=200) for process in processes]
    assert [process.returncode for process in processes].count(0) == agents - 1, outputs
    assert asked_of(url) <= 100 + 25 * agents, "what the lost one has not sealed, and what all drew in one look"
    require_whole(world, store, tmp_path / "pulled")
