"""Requests a second of N agents that share a run over a store, against N times one agent.

    python benchmarks/scale/agents.py [--agents 1 2 4 8] [--requests 384] [--latency 5] [--slots 16] [--units 16]
                                      [--s3]

Every agent is the command `distill generate RECIPE --run ADDRESS` with a scratch folder of its own. The teacher is
the stub of the tests: it answers each request after the same time, so that time and slots are the limit and the
processor is not (its share is printed). Each agent has the same number of requests and units, so every N should take
as long.

rate: requests that are answered between the moment when all agents have a unit and the last answer, and the seconds
between; loading Python, which one machine does for all agents, is before it. The end of the run, at which units are
shared, is within. ideal: slots / latency for each agent. A store of the tests (a folder, or moto with --s3).
Takes `--requests` / `--slots` * `--latency` seconds for each N, and the start of the agents.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import store_servers, stub_server
from worlds.generate_world import World, asked_of

from distill.object_store.interface import ObjectStore
from distill.object_store.recipe_stores import open_run_store
from distill.units.agent_record import AGENTS
from distill.units.commits import committed_units
from distill.units.stored_run import pull_generate

LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run: requests and seconds of the window, CPU seconds of all agents, requests asked in all, and wanted."""

    agents: int
    requests: int
    seconds: float
    cpu_s: float
    asked: int
    wanted: int
    units: int

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def working(store: ObjectStore) -> int:
    """Agents that have a unit."""
    facts = []
    for stored in store.list_objects(AGENTS):
        try:
            facts.append(orjson.loads(store.read(stored.key)))
        except FileNotFoundError:
            continue
    return sum(bool(each.get("units")) for each in facts)


def measure(agents: int, options: argparse.Namespace) -> Result:
    """Start the agents of one run, and watch the teacher until they end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(stub_server.serve(latency_s=options.latency))
        questions = options.requests * agents
        world = World(folder)
        world.add_rows(questions, images=questions)
        world.add_teacher(url, samples=1, max_in_flight=options.slots, timeout_s=600.0)
        rows = max(1, options.requests // options.units)
        world.head = f"[engine]\nunit_rows = {rows}\nseal_s = {options.seal}\nlease_s = 20\n"
        address = f"file://{folder / 'store'}"
        if options.s3:
            endpoint = stack.enter_context(store_servers.s3_server())
            world.head += f'[store]\nendpoint = "{endpoint}"\nregion = "us-east-1"\nallow_http = true\n'
            address = f"s3://{store_servers.BUCKET}/run"
        world.head += "[generate]\npatience_s = 600"
        recipe = world.recipe()
        store = open_run_store(recipe, address)
        processes = [start(world, address, number) for number in range(agents)]
        while working(store) < agents:
            if any(process.poll() is not None for process in processes):
                raise SystemExit("an agent ended before all had a unit: give more --requests")
            time.sleep(LOOK_S)
        time.sleep(options.latency)
        began, before, last, answered, cpu = time.monotonic(), asked_of(url), 0.0, 0, Counter[int]()
        answered = before
        while any(process.poll() is None for process in processes):
            time.sleep(LOOK_S)
            for process in processes:
                if process.poll() is None:
                    times = psutil.Process(process.pid).cpu_times()
                    cpu[process.pid] = times.user + times.system
            if (now := asked_of(url)) != answered:
                answered, last = now, time.monotonic()
        if answered == before:
            raise SystemExit("all was answered before all agents had a unit: give more --requests or --latency")
        if failed := [process.returncode for process in processes if process.returncode]:
            raise SystemExit(f"agents ended with {failed}")
        pull_generate(store, folder / "pulled")
        pulled = World(folder)
        pulled.run = folder / "pulled"
        ids = Counter(pulled.ids())
        if len(ids) != questions or set(ids.values()) != {1}:
            raise SystemExit(f"{len(ids)} ids of {questions}, {ids.total()} records")
        return Result(
            agents=agents,
            requests=answered - before,
            seconds=last - began,
            cpu_s=sum(cpu.values()),
            asked=answered,
            wanted=questions,
            units=len(committed_units(store)),
        )


def start(world: World, address: str, number: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "distill", "generate", str(world.folder / "recipe.toml"), "--run", address]
    command += ["--set", f"engine.scratch={world.folder / f'machine-{number}'}"]
    log = (world.folder / f"log-{number}").open("wb")
    return subprocess.Popen(command, stdout=log, stderr=log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--requests", type=int, default=384, help="of each agent")
    parser.add_argument("--latency", type=float, default=5.0, help="seconds of each request")
    parser.add_argument("--slots", type=int, default=16, help="requests in flight of each agent")
    parser.add_argument("--units", type=int, default=16, help="of each agent")
    parser.add_argument("--seal", type=float, default=2.0, help="engine.seal_s")
    parser.add_argument("--s3", action="store_true", help="moto in the place of a folder")
    options = parser.parse_args()
    os.environ |= store_servers.KEYS
    one = 0.0
    print("agents  units  requests/s  of ideal  of N x one  asked/wanted  CPU ms a request  load", flush=True)
    for agents in options.agents:
        result = measure(agents, options)
        one = one or result.rate / agents
        ideal = agents * options.slots / options.latency
        print(
            f"{agents:6}  {result.units:5}  {result.rate:10.2f}  {result.rate / ideal:8.1%}  "
            f"{result.rate / agents / one:10.1%}  {result.asked / result.wanted:12.3f}  "
            f"{1000 * result.cpu_s / result.wanted:16.1f}  {os.getloadavg()[0]:4.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
