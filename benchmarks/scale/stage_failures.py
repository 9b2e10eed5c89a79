"""Lost machines, and a store that is away, while a run in a store is filtered or trained: is the result equal?

    python benchmarks/scale/stage_failures.py [filter train nodes copies] [--moments 20] [--seed 0]

    filter   two processes filter a run; one is killed at a random moment, from its start on, and another takes its
             place: every file of the stage is compared with that of a run in a folder, to the byte
    train    a machine that trains is killed at a random moment after it has joined, and another one goes on, until
             the training ends; another training begins, until there were --moments kills: weights and losses are
             compared with those of a run in a folder, to the bit
    nodes    two machines without a common disk train one student; one of them is killed at a random moment, and both
             begin again with empty disks; compared with two processes of one machine, to the bit
    copies   the store does not answer for some seconds at random moments of a training; compared in the same way

The training is that of the tests, with a pause in each step so that it takes some seconds. Teacher: their stub.
Takes 2 min with `filter --moments 1` (two shared cores).
"""

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import torch
from safetensors.torch import load_file
from servers import store_servers, stub_server
from worlds import student_worlds
from worlds.generate_world import World

from distill.artifacts.files import describe
from distill.artifacts.journal import read_jsonl
from distill.artifacts.manifest import MANIFEST, Manifest
from distill.object_store.interface import ObjectStore
from distill.object_store.local_store import LocalStore
from distill.object_store.recipe_stores import open_run_store
from distill.recipe.recipe import Recipe
from distill.units.stored_run import pull_generate
from distill.units.stored_stage import pull_stage, push_stage
from distill.units.unfinished_stage import pull_newest
from filters.apply import apply
from student.train import train
from teacher.store_run import generate_in_store

QUESTIONS, TRACES, STEPS, LEASE_S, STEP_S = 200, 3, 60, 3.0, 0.2
SLOWLY = f"""
import time
from distill.cli import main
from student.training.loop import trainer
step = trainer.StageTrainer.training_step
def slowly(*arguments, **options):
    time.sleep({STEP_S})
    return step(*arguments, **options)
trainer.StageTrainer.training_step = slowly
main()
"""
Process = subprocess.Popen[bytes]


def start(
    verb: str,
    recipe: Recipe,
    address: str,
    scratch: Path,
    *,
    slowly: bool = False,
    ranks: Mapping[str, str] | None = None,
) -> Process:
    """The command in a process with a scratch folder of its own, as another machine has. `ranks`: its environment
    variables of torch.distributed."""
    code = ["-c", SLOWLY] if slowly else ["-m", "distill"]
    command = [sys.executable, *code, verb, str(recipe.path), "--run", address, "--set", f"engine.scratch={scratch}"]
    with scratch.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | (ranks or {}))


def start_ranks(recipe: Recipe, address: str, scratches: Sequence[Path], *, machines: int) -> list[Process]:
    """`train` in two processes that train together, on as many machines."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": str(2 // machines), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port)}
    return [
        start(
            "train",
            recipe,
            address,
            scratch,
            slowly=machines > 1,
            ranks=common | {"RANK": str(rank), "LOCAL_RANK": str(rank % (2 // machines))},
        )
        for rank, scratch in enumerate(scratches)
    ]


def require_end(process: Process, scratch: Path) -> None:
    if process.wait():
        raise SystemExit(f"a process ended with {process.returncode}:\n{scratch.with_suffix('.log').read_text()}")


def require_ends(processes: Sequence[Process], scratches: Sequence[Path]) -> None:
    for process, scratch in zip(processes, scratches, strict=True):
        require_end(process, scratch)


def filter_row(folder: Path, rng: random.Random, moments: int) -> None:
    with stub_server.serve(latency_s=0.0) as url:
        world = World(folder)
        world.add_rows(QUESTIONS, images=QUESTIONS // 3)
        world.rows = [row | {"answer": None} for row in world.rows]  # the stub knows no right one
        world.add_teacher(url, samples=TRACES, max_in_flight=32)
        world.head = f"[engine]\nunit_rows = 8\nlease_s = {LEASE_S}\n[generate]"
        recipe, began = world.recipe(), time.monotonic()
        generate_in_store(recipe, f"file://{folder / 'generated'}", folder / "scratch")
    pull_generate(LocalStore(folder / "generated"), folder / "plain")
    apply(recipe, folder / "plain")
    wanted, unequal, claims = outputs(folder / "plain"), 0, 0
    undisturbed_s = time_of_filter(folder, recipe)
    for moment in range(moments):
        here = folder / f"moment-{moment}"
        store = LocalStore(Path(shutil.copytree(folder / "generated", here / "store")))
        address, killed_s = f"file://{here / 'store'}", rng.uniform(0.2, 1.0) * undisturbed_s
        scratches = [here / f"machine-{number}" for number in range(3)]
        processes = [start("filter", recipe, address, scratch) for scratch in scratches[:2]]
        time.sleep(killed_s)
        victim = rng.randrange(2)
        processes[victim].kill()
        processes[victim].wait()
        processes[victim], scratches[victim] = start("filter", recipe, address, scratches[2]), scratches[2]
        require_ends(processes, scratches[:2])
        pull_stage(store, "filter", here / "pulled" / "filter")
        unequal += outputs(here / "pulled") != wanted
        claims += len(store.list_objects("claims"))
        shutil.rmtree(here)
    print(
        f"filter: {moments} kills in as many runs of {undisturbed_s:.1f} s undisturbed "
        f"({time.monotonic() - began:.0f} s): results that differ from that of a folder in a byte "
        f"{unequal}, claims left {claims}",
        flush=True,
    )


def outputs(run: Path) -> dict[str, str]:
    """Digests of all that the filter stage says it has written, as the files are."""
    manifest = Manifest.read(run / "filter")
    assert manifest is not None
    return {name: describe(run / "filter" / name).sha256 for name in manifest.outputs}


def time_of_filter(folder: Path, recipe: Recipe) -> float:
    """Seconds that two processes without a kill take."""
    store, began = shutil.copytree(folder / "generated", folder / "undisturbed"), time.monotonic()
    scratches = [folder / f"undisturbed-{number}" for number in range(2)]
    processes = [start("filter", recipe, f"file://{store}", scratch) for scratch in scratches]
    require_ends(processes, scratches)
    return time.monotonic() - began


def student_world(folder: Path, more: str = "") -> Recipe:
    """A student, its rows, and a recipe of two training stages, with dropout."""
    student_worlds.parts(folder)
    student_worlds.data(folder)
    lora = "[stages.lora]\nrank = 4\nalpha = 8\ndropout = 0.2\n"
    stages = (
        student_worlds.stage("align", "questions", train='["projector"]', steps=8, save=2),
        student_worlds.stage("reason", steps=STEPS, save=2, more=lora),
    )
    engine = f"[eval]\nallow_overlap = true\n[engine]\nseal_s = 0.5\nlease_s = {LEASE_S}\n"
    return student_worlds.recipe(folder, *stages, more=engine + more)


def learned(train_folder: Path) -> tuple[dict[str, torch.Tensor], list[tuple[int, float]]]:
    """Weights and losses of both stages."""
    weights, losses = {}, []
    for stage in ("align", "reason"):
        found = load_file(train_folder / stage / "model" / "model.safetensors")
        weights |= {f"{stage}/{name}": weight for name, weight in found.items()}
        losses += [(line["step"], line["loss"]) for line in read_jsonl(train_folder / stage / "metrics.jsonl")]
    return weights, losses


def is_equal(store: ObjectStore, pulled: Path, plain: Path) -> bool:
    pull_newest(store, "train", pulled)
    (ours, our_losses), (theirs, their_losses) = learned(pulled), learned(plain)
    same = ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    return same and our_losses == their_losses and (pulled / MANIFEST).is_file()


def agents(store: ObjectStore) -> set[str]:
    """Keys of all machines that have joined."""
    return {stored.key for stored in store.list_objects("agents")}


def wait_for_agent(store: ObjectStore, known: set[str], processes: Sequence[Process]) -> None:
    """Wait until a machine has joined that is not known, or a process has ended."""
    while not agents(store) - known and all(process.poll() is None for process in processes):
        time.sleep(0.05)  # a busy machine takes seconds to load the libraries


def train_row(folder: Path, rng: random.Random, moments: int) -> None:
    recipe, began, kills, runs, unequal = student_world(folder), time.monotonic(), 0, 0, 0
    train(recipe, folder / "run")
    while kills < moments:
        here, runs = folder / f"store-{runs}", runs + 1
        store = LocalStore(here)
        push_stage(store, "filter", folder / "run" / "filter")
        ended, machines = False, 0
        while not ended:
            scratch, machines = folder / f"machine-{runs}-{machines}", machines + 1
            known = agents(store)
            process = start("train", recipe, f"file://{here}", scratch, slowly=True)
            wait_for_agent(store, known, [process])
            if kills == moments:
                require_end(process, scratch)
            try:
                process.wait(rng.uniform(0.0, 15.0))
                require_end(process, scratch)
                ended = True
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        unequal += not is_equal(store, folder / f"pulled-{runs}", folder / "run" / "train")
    print(
        f"train: {kills} kills in {runs} trainings of two stages ({time.monotonic() - began:.0f} s): trainings "
        f"whose weights or losses differ from those of a folder in a bit {unequal}",
        flush=True,
    )


def nodes_row(folder: Path, rng: random.Random, moments: int) -> None:
    recipe, began, kills, runs, unequal = student_world(folder), time.monotonic(), 0, 0, 0
    plain = [folder / "plain-0", folder / "plain-1"]
    require_ends(start_ranks(recipe, str(folder / "run"), plain, machines=1), plain)
    while kills < moments:
        here, runs = folder / f"store-{runs}", runs + 1
        store = LocalStore(here)
        push_stage(store, "filter", folder / "run" / "filter")
        ended, attempts = False, 0
        while not ended:
            scratches, attempts = [folder / f"machine-{runs}-{attempts}-{rank}" for rank in range(2)], attempts + 1
            known = agents(store)
            processes = start_ranks(recipe, f"file://{here}", scratches, machines=2)
            wait_for_agent(store, known, processes)
            if ended := kills == moments or not kill_one(processes, rng):
                require_ends(processes, scratches)
            kills += not ended
        unequal += not is_equal(store, folder / f"pulled-{runs}", folder / "run" / "train")
    print(
        f"nodes: {kills} kills of one of two machines in {runs} trainings of two stages "
        f"({time.monotonic() - began:.0f} s): trainings whose weights or losses differ from those of two processes "
        f"of one machine in a bit {unequal}",
        flush=True,
    )


def kill_one(processes: Sequence[Process], rng: random.Random) -> bool:
    """SIGKILL one of two at a random moment, and the other one a little later; False where all had ended before."""
    try:
        processes[0].wait(rng.uniform(0.0, 20.0))
    except subprocess.TimeoutExpired:
        victim = rng.randrange(2)
        processes[victim].kill()
        with suppress(subprocess.TimeoutExpired):
            processes[1 - victim].wait(rng.uniform(0.0, 2.0))
        for process in processes:
            process.kill()
            process.wait()
        return True
    return False


def copies_row(folder: Path, rng: random.Random, moments: int) -> None:
    faults, began, outages, runs, unequal = store_servers.StoreFaults(), time.monotonic(), 0, 0, 0
    with store_servers.s3_server() as upstream, store_servers.faulty_proxy(upstream, faults) as endpoint:
        recipe = student_world(folder, f'[store]\nendpoint = "{endpoint}"\nregion = "us-east-1"\nallow_http = true\n')
        train(recipe, folder / "run")
        while outages < moments:
            address, scratch, runs = f"s3://{store_servers.BUCKET}/run-{runs}", folder / f"machine-{runs}", runs + 1
            store = open_run_store(recipe, address)
            push_stage(store, "filter", folder / "run" / "filter")
            process = start("train", recipe, address, scratch, slowly=True)
            while not store.list_objects("run/train/attempts") and process.poll() is None:
                time.sleep(0.1)
            while process.poll() is None:
                time.sleep(rng.uniform(0.2, 3.0))
                faults.away = process.poll() is None
                outages += faults.away
                time.sleep(rng.uniform(1.0, 6.0) * faults.away)
                faults.away = False
            require_end(process, scratch)
            unequal += not is_equal(store, folder / f"pulled-{runs}", folder / "run" / "train")
    print(
        f"copies: {outages} outages of 1 to 6 s in {runs} trainings ({time.monotonic() - began:.0f} s): trainings "
        f"whose weights or losses differ from those of a folder in a bit {unequal}",
        flush=True,
    )


ROWS: dict[str, Callable[[Path, random.Random, int], None]] = {
    "filter": filter_row,
    "train": train_row,
    "nodes": nodes_row,
    "copies": copies_row,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS])
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= store_servers.KEYS
    torch.set_num_threads(1)
    for row in options.rows or ROWS:
        with tempfile.TemporaryDirectory() as name:
            ROWS[row](Path(name), random.Random(f"{options.seed} {row}"), options.moments)


if __name__ == "__main__":
    main()
