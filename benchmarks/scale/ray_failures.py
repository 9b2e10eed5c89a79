"""Nodes of a Ray cluster, and the command itself, are killed while agents generate: is anything lost or doubled?

    python benchmarks/scale/ray_failures.py [node driver head] [--moments 20] [--questions 300] [--seed 0]

    node     one of two nodes, which each have an agent, is killed at a random moment, and a new one joins
    driver   the command is killed at a random moment, and the same command is started again
    head     the machine of the head is lost with the command; the same command is started on a new cluster, while the
             agents of the old one are still there

The cluster is on this machine. Teacher: the stub of the tests; store: a folder. At the end of each run its traces are
compared with those of a run in a folder that nothing disturbed.
Takes as long as `--moments` losses of a node: not timed here. Needs Ray.
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
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import stub_server
from worlds.generate_world import World, asked_of
from worlds.store_worlds import lines_of

from distill.artifacts.files import file_sha256
from distill.object_store.local_store import LocalStore
from distill.units.stored_run import pull_generate

try:
    from ray.cluster_utils import Cluster
except ModuleNotFoundError:
    Cluster = None
ROOT = Path(__file__).resolve().parents[2]
TRACES, AGENTS, LEASE_S, SEAL_S = 2, 2, 5.0, 0.3
Process = subprocess.Popen[bytes]


class RayRun:
    """The command on a cluster."""

    def __init__(self, world: World, number: str, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.folder = world.folder / number
        self.folder.mkdir()
        self.store = LocalStore(self.folder / "store")
        self.lost: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """A new cluster, and the command on it."""
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(AGENTS)]
        self.process = self.start()

    def start(self) -> Process:
        command = [sys.executable, "-m", "distill", "generate", str(self.world.folder / "recipe.toml")]
        command += ["--engine", "ray", "--run", f"file://{self.folder / 'store'}"]
        with (self.folder / "log").open("ab") as log:
            environment = os.environ | {"RAY_ADDRESS": self.cluster.address}
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def agents(self) -> set[str]:
        return {stored.key for stored in self.store.list_objects("agents")}

    def wait_for_agents(self, known: set[str]) -> None:
        """Wait until an agent has joined that is not known."""
        while self.process.poll() is None and not self.agents() - known:
            time.sleep(0.1)

    def kill_node(self) -> None:
        node = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.cluster.add_node(num_cpus=1))

    def kill_driver(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self.start()

    def kill_head(self) -> None:
        self.process.kill()
        self.process.wait()
        self.cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        self.lost += self.nodes
        self.begin()

    def disturb(self, row: str, moments: int) -> int:
        """Kill until the run has ended. Returns how often."""
        kills, known = 0, set[str]()
        while self.process.poll() is None:
            self.wait_for_agents(known)
            time.sleep(self.rng.uniform(0.0, 6.0))
            if self.process.poll() is None and kills < moments:
                known = self.agents()
                KILLS[row](self)
                kills += 1
            elif kills >= moments:
                self.process.wait()
        if self.process.returncode:
            raise SystemExit(f"{row}: the command ended with an error:\n{(self.folder / 'log').read_text()}")
        return kills

    def end(self) -> None:
        self.process.kill()
        for node in self.lost:
            node.kill_all_processes(check_alive=False, allow_graceful=False)
        self.cluster.shutdown()


KILLS = {"node": RayRun.kill_node, "driver": RayRun.kill_driver, "head": RayRun.kill_head}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], *KILLS])
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if Cluster is None:
        raise SystemExit(f"needs Ray: {sys.executable} -m pip install 'cot-distill[ray]'")
    # Nodes inherit it: their processes import the package and the tests' helpers.
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        stub_server.serve(latency_s=1.0) as url,
    ):  # short, for sockets
        world = World(Path(name))
        world.add_rows(options.questions, images=options.questions // 3)
        world.add_teacher(url, samples=TRACES, max_in_flight=64)
        world.head = f'[engine]\nscratch = "scratch"\nagents = {AGENTS}\nunit_rows = 20\nseal_s = {SEAL_S}\n'
        world.head += f"lease_s = {LEASE_S}\nretries = 20\n[generate]"
        world.generate()
        wanted, lines = set(world.ids()), lines_of(world, world.run)
        plan = file_sha256(world.run / "generate" / "plan.parquet")
        world.teachers[0]["max_in_flight"] = 4
        world.recipe()
        for row in options.rows or KILLS:
            rng, kills, runs, faults, asked = random.Random(f"{options.seed} {row}"), 0, 0, Counter[str](), 0
            began = time.monotonic()
            while kills < options.moments:
                before, run = asked_of(url), RayRun(world, f"{row}-{runs}", rng)
                try:
                    kills += run.disturb(row, options.moments - kills)
                finally:
                    run.end()
                pulled = World(world.folder)
                pulled.run = run.folder / "pulled"
                pull_generate(run.store, pulled.run)
                ids = Counter(pulled.ids())
                equal = lines_of(world, pulled.run) == lines
                equal &= file_sha256(pulled.run / "generate" / "plan.parquet") == plan
                faults += Counter(lost=len(wanted - set(ids)), doubled=sum(ids.values()) - len(ids))
                faults += Counter(unequal=int(not equal), claims=len(run.store.list_objects("claims")))
                runs, asked = runs + 1, asked + asked_of(url) - before
            print(
                f"{row}: {kills} kills in {runs} runs, {time.monotonic() - began:.0f} s: "
                f"lost {faults['lost']} of {runs * len(wanted)}, doubled {faults['doubled']}, "
                f"runs that differ {faults['unequal']}; requests a trace {asked / len(wanted) / runs:.3f}; "
                f"claims left {faults['claims']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
