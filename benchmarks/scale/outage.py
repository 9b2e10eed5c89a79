"""A store that is away for minutes while several processes generate: is anything lost, doubled or asked twice?

    python benchmarks/scale/outage.py [--minutes 10] [--agents 3] [--questions 600] [--lease 60]

Every process is the same command, `distill generate RECIPE --run s3://...`. When a third of the traces is there, a
proxy before the store (a test server, moto) ends every connection without an answer. Teacher: the stub of the tests.
Printed: traces lost and doubled, requests beyond one a trace, what the processes said, and how long after the end of
the outage the first unit was committed.
Takes 100 s with `--minutes 0.1 --agents 2 --questions 100 --lease 10` (two shared cores).
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import store_servers, stub_server
from worlds.generate_world import World, asked_of
from worlds.store_worlds import lines_of

from distill.object_store.recipe_stores import open_run_store
from distill.units.commits import committed_units
from distill.units.stored_run import pull_generate

TRACES = 2
_WAITS = re.compile(r"waiting for the store since \d+ s")


def start(world: World, address: str, number: int) -> "subprocess.Popen[bytes]":
    """One process, with a scratch folder of its own as another machine has."""
    command = [sys.executable, "-m", "distill", "generate", str(world.folder / "recipe.toml"), "--run", address]
    command += ["--set", f"engine.scratch={world.folder / f'machine-{number}'}"]
    with (world.folder / f"log-{number}").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def wait_until(reached: Callable[[], bool], processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Wait until `reached` returns true. Raises SystemExit when a process has ended with an error."""
    while not reached():
        if any(process.poll() for process in processes):
            raise SystemExit(f"processes ended with {[process.returncode for process in processes]}")
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--questions", type=int, default=600)
    parser.add_argument("--lease", type=float, default=60.0)
    options = parser.parse_args()
    os.environ |= store_servers.KEYS
    faults = store_servers.StoreFaults()
    with (
        tempfile.TemporaryDirectory() as name,
        store_servers.s3_server() as upstream,
        store_servers.faulty_proxy(upstream, faults) as endpoint,
        stub_server.serve(latency_s=1.0) as url,
    ):
        world = World(Path(name))
        world.add_rows(options.questions, images=options.questions // 3)
        world.add_teacher(url, samples=TRACES, max_in_flight=4)
        world.head = f"[engine]\nunit_rows = 20\nseal_s = 5.0\nlease_s = {options.lease}\n"
        world.head += f'[store]\nendpoint = "{endpoint}"\nregion = "us-east-1"\nallow_http = true\n[generate]'
        recipe, address = world.recipe(), f"s3://{store_servers.BUCKET}/run"
        processes = [start(world, address, number) for number in range(options.agents)]
        wait_until(lambda: asked_of(url) > options.questions * TRACES / 3, processes)
        store = open_run_store(recipe, address)
        asked, units = asked_of(url), len(committed_units(store))
        faults.away, began = True, time.monotonic()
        wait_until(lambda: time.monotonic() - began > options.minutes * 60, processes)
        meanwhile = asked_of(url) - asked
        faults.away, ended = False, time.monotonic()
        wait_until(lambda: len(committed_units(store)) > units, processes)
        first_s = time.monotonic() - ended
        codes = [process.wait() for process in processes]
        asked = asked_of(url)
        logs = [(world.folder / f"log-{number}").read_text() for number in range(options.agents)]
        pulled = World(world.folder)
        pulled.run = world.folder / "pulled"
        pull_generate(store, pulled.run)
        world.generate()
        ids, wanted = Counter(pulled.ids()), set(world.ids())
        equal = lines_of(world, pulled.run) == lines_of(world, world.run)
    print(
        f"{options.agents} processes, lease {options.lease:g} s, store away for {options.minutes:g} minutes: {codes}"
    )
    print(
        f"traces {len(ids)} of {len(wanted)}: lost {len(wanted - set(ids))}, doubled {sum(ids.values()) - len(ids)}"
    )
    print(f"equal to the undisturbed run but for times: {equal}; requests beyond one a trace: {asked - len(wanted)}")
    print(f"answered during the outage: {meanwhile}; first commit {first_s:.0f} s after its end")
    for number, log in enumerate(logs):
        said = _WAITS.findall(log)
        print(f"process {number} said {len(said)} times that it waits, last: {said[-1] if said else 'never'}")


if __name__ == "__main__":
    main()
