"""Agents on the nodes of a Ray cluster share a run as processes do, and outlive a killed node."""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import stub_server
from worlds.generate_world import World, asked_of, set_mode
from worlds.store_worlds import dataset, lines_of, small_world

from distill.artifacts.files import file_sha256
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.units.run_state import read_run_state
from distill.units.stored_run import pull_generate
from distill.units.stored_stage import pull_stage
from filters.apply import apply
from teacher.store_run import generate_in_store

pytest.importorskip("ray", reason="the extra `ray` is not installed; `make scale` installs it and runs these tests")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def url() -> Iterator[str]:
    with stub_server.serve(latency_s=0.5) as url:
        yield url


@pytest.fixture
def world(tmp_path: Path, url: str) -> World:
    world = small_world(tmp_path, url)
    world.head = '[engine]\nscratch = "scratch"\nunit_rows = 4\nseal_s = 0.2\nlease_s = 10.0\n'
    world.head += 'agents = 2\nkind = "ray"\n[generate]'
    world.recipe()
    return world


def started(world: World, address: str, verb: str = "generate") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "distill", verb, str(world.folder / "recipe.toml"), "--run", address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_requests(url: str, count: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 300
    while asked_of(url) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert asked_of(url) >= count, process.communicate(timeout=5)


def test_agents_on_a_cluster_of_which_a_node_is_killed_give_what_a_plain_run_gives(
    cluster: Any, world: World, url: str, tmp_path: Path
) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    address = f"file://{tmp_path / 'store'}"
    set_mode(url, "hold")
    process, store, deadline = started(world, address), open_store(address), time.monotonic() + 300
    while len(store.list_objects("agents")) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    set_mode(url, "")
    wait_for_requests(url, 20, process)
    cluster.remove_node(nodes[0], allow_graceful=False)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err.decode()
    assert b"starts again" in err and b"generate: traces" in out, (out, err)
    pull_generate(store, tmp_path / "pulled")
    ids = Counter(str(record["id"]) for record in lines_of(world, tmp_path / "pulled"))
    assert len(ids) == 90 and set(ids.values()) == {1}
    world.generate()
    assert lines_of(world, tmp_path / "pulled") == lines_of(world, world.run)
    for name in ("plan.parquet", "samples.parquet"):
        assert file_sha256(tmp_path / "pulled" / "generate" / name) == file_sha256(world.run / "generate" / name)
    for run in (tmp_path / "pulled", world.run):
        apply(world.recipe(), run)
    assert dataset(tmp_path / "pulled") == dataset(world.run) != {}


def test_a_stopped_command_ends_its_agents_which_seal_their_work_and_end_their_claims(
    cluster: Any, world: World, url: str, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=2)
    address = f"file://{tmp_path / 'store'}"
    process = started(world, address)
    wait_for_requests(url, 20, process)
    set_mode(url, "hold")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=400)
    assert process.returncode == 143
    assert not open_store(address).list_objects("agents"), "agents ended in order"
    asked = asked_of(url)
    set_mode(url, "")
    done = started(world, address)
    out, err = done.communicate(timeout=600)
    assert done.returncode == 0, (out, err)
    assert asked_of(url) < 90 + 2 * asked // 3, "what was sealed is not asked again"


def test_an_error_of_every_agent_is_the_error_of_the_command(cluster: Any, world: World, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=2)
    (tmp_path / "rows.jsonl").unlink()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("unit_rows", "ray = { num_cpus = 1 }\nrestarts = 0\nunit_rows"))
    process = started(world, f"file://{tmp_path / 'store'}")
    _, err = process.communicate(timeout=400)
    assert process.returncode == 2 and b"Traceback" not in err, err.decode()


def test_agents_on_a_cluster_filter_and_outlive_a_killed_node(cluster: Any, world: World, tmp_path: Path) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    address, store = f"file://{tmp_path / 'store'}", LocalStore(tmp_path / "store")
    early = started(world, address, "filter")
    _, err = early.communicate(timeout=400)
    assert early.returncode == 2 and b"run `distill generate` first" in err, err.decode()
    generate_in_store(world.recipe(), address, tmp_path / "first")
    process = started(world, address, "filter")
    deadline = time.monotonic() + 300
    while len(store.list_objects("agents")) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    cluster.remove_node(nodes[0], allow_graceful=False)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0 and b"dataset: file://" in out, err.decode()
    state = read_run_state(store)
    assert state.measured == state.units > 4 and not store.list_objects("claims")
    pull_generate(store, tmp_path / "plain")
    pull_stage(store, "filter", tmp_path / "pulled" / "filter")
    apply(world.recipe(), tmp_path / "plain")
    assert dataset(tmp_path / "pulled") == dataset(tmp_path / "plain") != {}
