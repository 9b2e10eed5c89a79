"""Jobs of a real Slurm on this machine give what a run in a folder gives, whatever ends them on the way."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import slurm_cluster, stub_server
from servers.slurm_cluster import SlurmCluster
from typer.testing import CliRunner
from worlds import store_worlds, student_worlds
from worlds.generate_world import World

from distill.cli import app
from distill.errors import StaleError
from distill.object_store.local_store import LocalStore
from distill.object_store.open_store import open_store
from distill.units.run_state import read_run_state
from distill.units.stored_run import pull_generate
from distill.units.stored_stage import push_stage, stage_counts
from distill.units.unfinished_stage import attempts, pull_newest
from student.train import train

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        bool(slurm_cluster.missing()) or not os.environ.get("DISTILL_REAL_SLURM"),
        reason="takes minutes and needs Slurm; `make scale` installs it and sets DISTILL_REAL_SLURM=1",
    ),
]
ODD = "100%j od\\d %% ü 'q#\""
"""A name of a folder with all that Slurm, its scripts or a shell may read in another way."""
AGENTS = 5
ENGINE = f"""[engine]
scratch = "scratch"
unit_rows = 4
seal_s = 0.5
lease_s = 3.0
agents = {AGENTS}
slurm = {{ cpus-per-task = "2", time = "1:00:00" }}
[generate]"""
"""An agent takes all CPUs of a node, so more agents than nodes wait."""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster.running(3) as cluster:
        yield cluster


@pytest.fixture
def folder(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the commands and their runs; they find the cluster."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / ODD
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def submitted(verb: str, recipe: Path, *options: str) -> str:
    """The number of the job of a command."""
    address = (recipe.parent / "store").as_uri()
    done = CliRunner().invoke(app, [verb, str(recipe), "--run", address, "--engine", "slurm", *options])
    assert done.exit_code == 0, done.output
    found = re.search(r"job (\d+): ", done.output)
    assert found, done.output
    return found[1]


def logs(folder: Path) -> str:
    return "\n".join(f"{path.name}\n{path.read_text()}" for path in folder.glob("runs/*/slurm/*.log"))


def wait_until_queued_again(slurm: SlurmCluster, job: str, *, times: int = 1) -> None:
    """Until Slurm has queued a job, or `times` elements, again. It starts them two minutes later.

    That is no waste: what it still sends to end the first start would end a second one of the same number.
    """

    def is_queued() -> bool:
        lines = slurm.run("scontrol", "--oneliner", "show", "job", job).splitlines()
        return sum("Restarts=1 " in line and "JobState=PENDING " in line for line in lines) == times

    slurm.wait_until(is_queued)


def world_of(folder: Path, url: str) -> World:
    world = store_worlds.small_world(folder, url)
    world.head = ENGINE
    world.recipe()
    return world


def answered(folder: Path) -> int:
    try:
        return read_run_state(LocalStore(folder / "store")).traces
    except StaleError:  # the source is still read
        return 0


def assert_same_as_in_a_folder(world: World) -> None:
    """Traces of the run in the store are those of a run in a folder: none lost, none twice."""
    pulled = world.folder / "pulled"
    pull_generate(open_store(store_worlds.address(world)), pulled)
    world.generate()
    ours, theirs = store_worlds.lines_of(world, pulled), store_worlds.lines_of(world, world.run)
    assert len(theirs) == 90
    assert [record["id"] for record in ours] == [record["id"] for record in theirs]
    for one, two in zip(ours, theirs, strict=True):
        assert one == two


def test_arrays_with_more_elements_than_nodes_generate_and_filter(slurm: SlurmCluster, folder: Path) -> None:
    with stub_server.serve(latency_s=0.1) as url:
        world = world_of(folder, url)
        job = submitted("generate", folder / "recipe.toml")
        assert slurm.wait_for_job(job) == {"COMPLETED"}, logs(folder)
        assert len(list(folder.glob(f"runs/*/slurm/{job}_*.log"))) == AGENTS
        job = submitted("filter", folder / "recipe.toml")
        assert slurm.wait_for_job(job) == {"COMPLETED"}, logs(folder)
        assert_same_as_in_a_folder(world)
    store_worlds.assert_filtered_as_in_a_folder(world)


def test_a_lost_node_a_time_limit_and_a_drained_node_lose_and_double_nothing(
    slurm: SlurmCluster, folder: Path
) -> None:
    with stub_server.serve(latency_s=3.0) as url:
        world = world_of(folder, url)
        job = submitted("generate", folder / "recipe.toml", "--set", "engine.agents=2")
        slurm.wait_until(lambda: answered(folder) > 0)
        first, second = (slurm.node_of(f"{job}_{element}") for element in range(2))
        slurm.run("scontrol", "update", f"NodeName={second}", "State=DRAIN", "Reason=test")
        slurm.run("scancel", "--batch", "--signal=USR1", f"{job}_1")  # what Slurm sends before the time limit
        slurm.kill_node(first)
        wait_until_queued_again(slurm, job, times=2)
        assert answered(folder) < 90, "no element works, and something is left to do"
        slurm.start_node(first)
        assert slurm.wait_for_job(job) == {"COMPLETED"}, logs(folder)
        assert second not in {slurm.node_of(f"{job}_{element}") for element in range(2)}
        slurm.run("scontrol", "update", f"NodeName={second}", "State=RESUME")
        assert_same_as_in_a_folder(world)


def test_a_run_that_is_cancelled_and_submitted_again_twice_loses_and_doubles_nothing(
    slurm: SlurmCluster, folder: Path
) -> None:
    with stub_server.serve(latency_s=1.0) as url:
        world = world_of(folder, url)
        job = submitted("generate", folder / "recipe.toml")
        slurm.wait_until(lambda: answered(folder) > 0)
        slurm.run("scancel", job)
        assert slurm.wait_for_job(job) == {"CANCELLED"}
        # As a user does it who was told that sbatch is not on this machine.
        (script,) = folder.glob("runs/*/slurm/array.sh")
        jobs = [submitted("generate", folder / "recipe.toml"), slurm.run("sbatch", "--parsable", str(script))]
        assert [slurm.wait_for_job(each) for each in jobs] == [{"COMPLETED"}] * 2, logs(folder)
        assert_same_as_in_a_folder(world)


def test_what_slurm_refuses_and_a_wrong_address_end_the_command(slurm: SlurmCluster, folder: Path) -> None:
    world_of(folder, "http://127.0.0.1:9/v1")
    command = ["generate", "recipe.toml", "--engine", "slurm", "--run"]
    partition = ["--set", 'engine.slurm={partition = "none"}']
    done = CliRunner().invoke(app, [*command, (folder / "store").as_uri(), *partition])
    assert done.exit_code == 1 and "invalid partition specified: none" in done.output, done.output
    done = CliRunner().invoke(app, [*command, f"file://{folder}/store#2"])
    assert done.exit_code == 2 and "comes after # or ?" in done.output, done.output
    assert not slurm.run("squeue", "--noheader")


STEPS = 40
STAGE = student_worlds.stage("reason", steps=STEPS, save=2, more="[stages.lora]\nrank = 4\nalpha = 8\n")
MORE = '[eval]\nallow_overlap = true\n[engine]\nscratch = "scratch"\nseal_s = 0.05\nlease_s = 3.0\n'


@pytest.mark.parametrize("lost", [None, "cot-node1", "cot-node2"])
def test_two_nodes_of_which_one_is_lost_learn_what_one_process_learns(
    slurm: SlurmCluster, folder: Path, world: Path, lost: str | None
) -> None:
    place = folder / "w"
    shutil.copytree(world, place)
    recipe, store = student_worlds.recipe(place, STAGE, more=MORE), LocalStore(place / "store")
    push_stage(store, "filter", place / "run" / "filter")
    job = submitted("train", recipe.path, "--nodes", "2")
    if lost:
        slurm.wait_until(
            lambda: any(b"reason/checkpoints" in store.read(key) for key in attempts(store, "train")), limit_s=300
        )
        slurm.kill_node(lost)
        wait_until_queued_again(slurm, job)
        slurm.start_node(lost)
    assert slurm.wait_for_job(job) == {"COMPLETED"}, logs(folder)
    assert stage_counts(store, "train") == {"stages": 1, "steps": STEPS} and not attempts(store, "train")
    assert len(list((place / "scratch").glob("*/run/filter"))) >= 2, "each machine had a folder of its own"
    pull_newest(store, "train", folder / "train")
    train(recipe, place / "run")
    ours, theirs = store_worlds.losses_of_same_steps(folder / "train", place / "run" / "train")
    apart = [abs(one - two) for one, two in zip(ours, theirs, strict=True)]
    assert max(apart[:10]) < 1e-3 and max(apart) < 0.05, "another order of sums, which later steps amplify"
