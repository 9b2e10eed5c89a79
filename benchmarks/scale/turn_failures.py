"""Agents that are killed while teachers take turns or answer by batch files: is anything lost, doubled or paid twice?

    python benchmarks/scale/turn_failures.py [turns batch] [--moments 20] [--agents 2] [--questions 200] [--seed 0]

    turns    two teachers, each behind a server that the run starts, the second of which follows the first
    batch    a teacher with the backend `batch`; the stand-in of the API counts how often each request is paid

Processes, store and kills are those of `failures.py`: SIGKILL at random moments, another process takes the place.
Each finished run is compared with one in a folder that nothing disturbed.
Takes 80 s with `--moments 1 --questions 40` (two shared cores).
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from failures import Run, kill

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import batch_server, store_servers, stub_server
from worlds.generate_world import World
from worlds.store_worlds import lines_of

from distill.artifacts.files import file_sha256
from distill.units.stored_run import pull_generate

HEAD = "[engine]\nunit_rows = {rows}\nseal_s = 0.3\nlease_s = {lease}\n"
WRONG = ("lost", "doubled", "not wanted", "unequal", "unequal plans", "claims left", "paid twice")
STORE = '[store]\nregion = "us-east-1"\nallow_http = true\n[generate]\npatience_s = 30.0'


def turns(world: World, _: ExitStack, __: Path) -> Counter[str]:
    server = {"server.command": [sys.executable, stub_server.__file__], "server.extra": ["--latency-s=0.5"]}
    world.add_teacher(None, "small", model="small", samples=2, max_in_flight=4, **server)
    world.add_teacher(None, "large", model="large", after="small", when="unsure", max_in_flight=4, **server)
    return Counter()


def batch(world: World, stack: ExitStack, folder: Path) -> Counter[str]:
    server = stack.enter_context(batch_server.serve(folder / "api"))
    server.looks_until_done = 10
    world.add_teacher(server.url, backend="batch", samples=3, **{"until.agree": 2, "batch.poll_s": 0.1})
    paid: Counter[str] = server.paid
    return paid


def lines(world: World, run: Path) -> list[dict[str, Any]]:
    """The records of a run without what depends on the port of a server."""
    records = lines_of(world, run)
    for record in records:
        record["engine"].pop("facts", None)
    return records


def campaign(name: str, folder: Path, endpoint: str, options: argparse.Namespace) -> bool:
    """Kill agents until it has happened often enough. Returns whether all runs are right."""
    faults, started, moments, runs, began = Counter[str](), 0, 0, 0, time.monotonic()
    with ExitStack() as stack:
        world = World(folder)
        world.head = HEAD.format(rows=20 if name == "turns" else 8, lease=options.lease) + STORE
        world.add_rows(options.questions, images=options.questions // 3)
        world.rows = [row | {"answer": None} for row in world.rows]
        paid = {"turns": turns, "batch": batch}[name](world, stack, folder)
        world.generate()
        wanted, plan = lines(world, world.run), file_sha256(world.run / "generate" / "plan.parquet")
        while moments < options.moments:
            paid.clear()
            with Run(name, world, world.recipe(), endpoint, options, runs) as run:
                run.disturb(kill, options.moments - moments)
                runs, moments, started = runs + 1, moments + run.moments, started + run.started
                pull_generate(run.store(), run.folder / "pulled")
                faults += compare(wanted, lines(world, run.folder / "pulled"))
                faults["unequal plans"] += file_sha256(run.folder / "pulled" / "generate" / "plan.parquet") != plan
                faults["claims left"] += len(run.store().list_objects("claims"))
            faults["paid twice"] += sum(paid.values()) - len(paid)
    counts = ", ".join(f"{what} {faults[what]}" for what in WRONG)
    print(
        f"{name}: {moments} kills in {runs} runs, {started} processes, {time.monotonic() - began:.0f} s: "
        f"traces {runs * len(wanted)}; {counts}",
        flush=True,
    )
    return not any(faults.values())


def compare(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> Counter[str]:
    """What is wrong with the records of a run."""
    ids, there = ({str(record["id"]): record for record in records} for records in (wanted, found))
    return Counter(
        {
            "lost": len(ids.keys() - there.keys()),
            "doubled": len(found) - len(there),
            "not wanted": len(there.keys() - ids.keys()),
            "unequal": sum(ids[each] != there[each] for each in ids.keys() & there.keys()),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", choices=[[], "turns", "batch"])
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--pause", type=float, default=6.0, help="most seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ |= store_servers.KEYS
    with tempfile.TemporaryDirectory() as folder, store_servers.s3_server() as endpoint:
        right = []
        for name in options.rows or ["turns", "batch"]:
            (Path(folder) / name).mkdir()
            right.append(campaign(name, Path(folder) / name, endpoint, options))
    if not all(right):
        raise SystemExit("some runs are not as they should be")


if __name__ == "__main__":
    main()
