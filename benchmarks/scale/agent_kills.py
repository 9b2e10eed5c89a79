"""Processes that are killed while they share a run over a store: is anything lost, doubled, or asked without need?

    python benchmarks/scale/agent_kills.py [--kills 20] [--agents 3] [--questions 800] [--lease 3] [--seed 0]

Every process is the same command, `distill generate RECIPE --run s3://...`. Every few seconds one is ended by
SIGKILL and another takes its place: by turns with a scratch folder of its own, as another machine has, and with that
of the killed one. Store: a test server (moto) on this machine. Teacher: the stub of the tests. At the end the run is
compared with one in a folder that nothing disturbed.
"""

import argparse
import os
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
from store_worlds import lines_of

from distill.artifacts.files import file_sha256
from distill.object_store.open_store import open_store
from distill.units.commits import committed_units
from distill.units.stored_run import pull_generate

ROWS, SEAL_S, LATENCY_S, TRACES = 20, 0.3, 1.0, 2


class Processes:
    """The command again and again, in scratch folders of its own."""

    def __init__(self, world: World, address: str) -> None:
        self.started = 0
        self.living: list[tuple[subprocess.Popen[bytes], int]] = []
        self._world, self._address = world, address

    def start(self, machine: int) -> None:
        self.started += 1
        scratch = self._world.folder / f"machine-{machine}"
        command = [sys.executable, "-m", "distill", "generate", str(self._world.folder / "recipe.toml")]
        command += ["--run", self._address, "--set", f"engine.scratch={scratch}"]
        log = (self._world.folder / f"log-{self.started}").open("wb")
        self.living.append((subprocess.Popen(command, stdout=log, stderr=log), machine))

    def kill(self, rng: random.Random) -> int:
        """End one that is at work by SIGKILL. Returns its machine."""
        process, machine = self.living.pop(rng.randrange(len(self.living)))
        process.kill()
        process.wait()
        return machine


def disturb(processes: Processes, options: argparse.Namespace) -> int:
    """Start processes, kill and replace some, wait for the others. Returns the number of kills."""
    rng, kills = random.Random(options.seed), 0
    for number in range(options.agents):
        processes.start(number)
    while processes.living:
        time.sleep(rng.uniform(1.0, options.pause))
        ended = [process.returncode for process, _ in processes.living if process.poll() is not None]
        if any(ended):
            raise SystemExit(f"processes ended with {ended}")
        processes.living = [each for each in processes.living if each[0].poll() is None]
        if processes.living and kills < options.kills:
            machine = processes.kill(rng)
            processes.start(machine if kills % 2 else processes.started)
            kills += 1
    return kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--questions", type=int, default=800)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--pause", type=float, default=12.0, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": store_servers.SECRET}
    with (
        tempfile.TemporaryDirectory() as name,
        store_servers.s3_server() as endpoint,
        stub_server.serve(latency_s=LATENCY_S) as url,
    ):
        world = World(Path(name))
        world.add_rows(options.questions, images=options.questions // 3)
        world.add_teacher(url, samples=TRACES, max_in_flight=4)
        world.head = f"[engine]\nunit_rows = {ROWS}\nseal_s = {SEAL_S}\nlease_s = {options.lease}\n"
        world.head += f'[store]\nendpoint = "{endpoint}"\nregion = "us-east-1"\nallow_http = true\n[generate]'
        recipe, address = world.recipe(), f"s3://{store_servers.BUCKET}/run"
        began, processes = time.monotonic(), Processes(world, address)
        kills = disturb(processes, options)
        seconds, asked = time.monotonic() - began, asked_of(url)
        store = open_store(address, config=recipe.store.client_options())
        units, left = len(committed_units(store)), len(store.list_objects("claims"))
        segments = sum("/segment-" in found.key for found in store.list_objects("generate/p"))
        pulled = World(world.folder)
        pulled.run = world.folder / "pulled"
        pull_generate(store, pulled.run)
        world.generate()
        ids, wanted = Counter(pulled.ids()), set(world.ids())
        plans = {file_sha256(run / "generate" / "plan.parquet") for run in (pulled.run, world.run)}
        equal = lines_of(world, pulled.run) == lines_of(world, world.run) and len(plans) == 1
    print(f"{kills} kills, {processes.started} processes, {options.agents} at once, {units} units, {seconds:.0f} s")
    print(f"traces {len(ids)} of {len(wanted)}: lost {len(wanted - set(ids))}, ", end="")
    print(f"doubled {sum(ids.values()) - len(ids)}, not wanted {len(set(ids) - wanted)}")
    print(f"equal to the undisturbed run (records but for times, plan to the byte): {equal}")
    print(f"requests {asked}, {asked / len(wanted):.2f} a trace; left: {segments} segments, {left} claims")


if __name__ == "__main__":
    main()
