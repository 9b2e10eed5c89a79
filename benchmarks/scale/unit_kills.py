"""Machines that are killed while they share a run over a store: is anything lost, doubled, or asked without need?

    python benchmarks/scale/unit_kills.py [--kills 20] [--workers 3] [--questions 240] [--seed 0]

Workers are processes that go through the units of one run, each in an order of its own, so several attempts at one
unit run at once; every second or so one is ended by SIGKILL and another takes its place. Store: a test server (moto)
on this machine. Teacher: the stub of the tests. At the end the units are collected and `generate` has to find every
trace there.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import store_servers
import stub_server
from generate_world import World, asked_of

from distill.data import reader
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import open_store
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.types import Sample
from distill.units.commits import Unit, committed_units
from distill.units.partitions import key_histogram, plan_partitions
from teacher.generate import generate
from teacher.generate_unit import collect_units, generate_unit

ROWS, SEAL_S, LATENCY_S = 20, 0.3, 0.3


def store_at(endpoint: str) -> ObjectStore:
    return open_store(f"s3://{store_servers.BUCKET}/run", config=store_servers.config(endpoint))


def units_of(recipe: Recipe) -> dict[Unit, list[Sample]]:
    samples = list(reader.samples(recipe, "questions", on_bad=lambda _: None))
    partitions = plan_partitions(key_histogram(samples), rows=ROWS)
    found: dict[Unit, list[Sample]] = {}
    for sample in samples:
        found.setdefault(Unit(round=0, partition=partitions.partition_of(sample)), []).append(sample)
    return found


def work(folder: Path, endpoint: str, number: int) -> None:
    """One machine: every unit that is not done, until all are."""
    recipe, store = load(folder / "recipe.toml"), store_at(endpoint)
    units = list(units_of(recipe).items())
    random.Random(number).shuffle(units)
    for unit, samples in units:
        generate_unit(recipe, samples, store, unit, folder / f"scratch-{number}" / unit.partition, seal_s=SEAL_S)


def run_workers(folder: Path, endpoint: str, options: argparse.Namespace) -> tuple[int, float]:
    """Start workers, kill and replace some. Returns the number of kills, and the seconds until all units are done."""
    rng, started, kills = random.Random(options.seed), 0, 0
    began, workers = time.monotonic(), list[subprocess.Popen[bytes]]()

    def start() -> None:
        nonlocal started
        started += 1
        command = [sys.executable, __file__, "--work", str(folder), endpoint, str(started)]
        workers.append(subprocess.Popen(command))

    for _ in range(options.workers):
        start()
    while any(worker.poll() is None for worker in workers):
        time.sleep(rng.uniform(1.0, 4.0))
        living = [worker for worker in workers if worker.poll() is None]
        if living and kills < options.kills:
            rng.choice(living).kill()
            kills += 1
            start()
    if failed := [worker.returncode for worker in workers if worker.returncode not in (0, -9)]:
        raise SystemExit(f"workers ended with {failed}")
    return kills, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--questions", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(Path(options.work[0]), options.work[1], int(options.work[2]))
        return
    with (
        tempfile.TemporaryDirectory() as name,
        store_servers.s3_server() as endpoint,
        stub_server.serve(latency_s=LATENCY_S) as url,
    ):
        world = World(Path(name))
        world.add_rows(options.questions, images=options.questions // 3)
        world.add_teacher(url, samples=2, max_in_flight=4)
        recipe, store = world.recipe(), store_at(endpoint)
        units = units_of(recipe)
        kills, seconds = run_workers(world.folder, endpoint, options)
        asked, wanted = asked_of(url), 2 * options.questions
        collect_units(store, committed_units(store), recipe, world.run)
        manifest = generate(recipe, world.run)
        ids, planned = Counter(world.ids()), world.planned()
        done = len(committed_units(store))
        again = asked_of(url) - asked
        left = sum("/segment-" in found.key for found in store.list_objects("generate/p"))
    print(f"{kills} kills of {options.workers} workers in {seconds:.0f} s; commits {done} of {len(units)} units")
    print(f"traces {manifest.counts['traces']} of {wanted}, lost {len(set(planned) - set(ids))}, ", end="")
    print(f"doubled {sum(ids.values()) - len(ids)}, asked when collected {again}")
    print(f"requests {asked}, {asked / wanted:.2f} a trace; segments left {left}")


if __name__ == "__main__":
    main()
