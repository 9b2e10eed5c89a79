"""Nodes of a Ray cluster train one student together, outlive a killed node, and learn what one process learns."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from worlds import store_worlds
from worlds import student_worlds as worlds

from distill.errors import StaleError
from distill.machine.process_pool import ProcessLost
from distill.object_store.local_store import LocalStore
from distill.placement.node_processes import Ranks
from distill.units.stored_stage import push_stage, stage_counts
from distill.units.unfinished_stage import attempts, pull_newest
from student.train import train

pytest.importorskip("ray", reason="the extra `ray` is not installed; `make scale` installs it and runs these tests")
pytestmark = pytest.mark.slow

STEPS = 40
STAGE = worlds.stage("reason", steps=STEPS, save=2, more="[stages.lora]\nrank = 4\nalpha = 8\n")
MORE = '[eval]\nallow_overlap = true\n[engine]\nkind = "ray"\nscratch = "scratch"\nseal_s = 0.05\nlease_s = 2.0\n'


def started(recipe: Path, address: str, *options: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "distill", "train", str(recipe), "--run", address, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)


def ended(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    try:
        return process.communicate(timeout=900)
    finally:
        process.kill()


def has_checkpoint(store: LocalStore) -> bool:
    return any(b"reason/checkpoints" in store.read(key) for key in attempts(store, "train"))


@pytest.mark.timeout(1800)
def test_nodes_of_which_one_is_killed_learn_what_one_process_learns(
    cluster: Any,
    place: Path,
    tmp_path: Path,
) -> None:
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    recipe, store = worlds.recipe(place, STAGE, more=MORE), LocalStore(place / "store")
    push_stage(store, "filter", place / "run" / "filter")
    process = started(recipe.path, f"file://{place / 'store'}", "--nodes", "2")
    deadline = time.monotonic() + 600
    while not has_checkpoint(store) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    cluster.remove_node(nodes[0], allow_graceful=False)
    out, err = ended(process)
    assert process.returncode == 0, err.decode()
    assert b"training starts again, 99 restarts left" in err and b"train: finished" in out, (out, err)
    assert stage_counts(store, "train") == {"stages": 1, "steps": STEPS} and not attempts(store, "train")
    assert len(list((place / "scratch").glob("*/run/filter"))) == 2, "each machine had a folder of its own"
    pull_newest(store, "train", tmp_path / "train")
    train(recipe, place / "run")
    ours, theirs = store_worlds.losses_of_same_steps(tmp_path / "train", place / "run" / "train")
    apart = [abs(one - two) for one, two in zip(ours, theirs, strict=True)]
    assert max(apart[:10]) < 1e-3 and max(apart) < 0.05, "another order of sums, which later steps amplify"


@pytest.mark.timeout(1800)
def test_an_error_of_the_processes_is_the_error_of_the_command_and_starts_nothing_again(
    cluster: Any,
    place: Path,
) -> None:
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    recipe, store = worlds.recipe(place, STAGE, more=MORE), LocalStore(place / "store")
    process = started(recipe.path, f"file://{place / 'store'}", "--nodes", "2")
    _, err = ended(process)
    assert process.returncode == 2 and b"run `distill filter" in err and b"again, " not in err, err.decode()
    assert b"Traceback" not in err
    left = [each.key for each in store.list_objects() if not each.key.startswith("failures/")]
    assert not left, "a refused training leaves only its reason"


def test_a_loss_without_restarts_is_told_as_a_loss_of_the_training() -> None:
    from distill.placement.ray_cluster import _last_error

    lost = _last_error(ProcessLost("a process on host was killed"), "a node or a process of the training is lost")
    assert str(lost) == (
        "a node or a process of the training is lost and engine.restarts are used up: a process on host was killed; "
        "what is in the store stays: run the same command again"
    )
    refused = StaleError("made from other settings")
    assert _last_error(refused, "no agent is left") is refused


def test_processes_find_their_ranks_as_those_of_a_launcher_do() -> None:
    ranks = Ranks(machine=1, machines=3, processes=4, address="10.0.0.1", port=29500)
    told = [ranks.environment(local) for local in range(4)]
    assert [each["RANK"] for each in told] == ["4", "5", "6", "7"]
    assert told[2] == {
        "RANK": "6",
        "WORLD_SIZE": "12",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
    }
