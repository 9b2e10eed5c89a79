"""Latency and throughput of an object store, and whether it can hold a run.

    python benchmarks/scale/store.py s3://bucket/folder [--requests 200] [--at-once 8] [--mb 8]
    python benchmarks/scale/store.py FOLDER             # the same on a disk
    python benchmarks/scale/store.py --server moto      # on a test server of this machine; or ceph, a real store

Credentials and endpoint come from the environment (docs/scale.md). Objects are written below ADDRESS/probe and
deleted again. The first lines are for one request at a time, the last ones for `--at-once` requests. Every race lets
`--at-once` writers create one object at the same moment; one of them has to win.
Takes 2 s for a folder and 6 s for moto with `--requests 20 --mb 1` (two shared cores).
"""

import argparse
import os
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distill.errors import DistillError
from distill.object_store.interface import ObjectStore
from distill.object_store.open_store import PROBE_FOLDER, open_store

SMALL = 1000


@contextmanager
def local_server(name: str) -> Iterator[ObjectStore]:
    os.environ["S3_SERVER"] = name
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
    from servers import store_servers

    with store_servers.s3_server() as endpoint:
        yield open_store(f"s3://{store_servers.BUCKET}/run", config=store_servers.config(endpoint))


def timed(call: Callable[[int], object], count: int, at_once: int) -> tuple[list[float], float]:
    """Seconds of each of `count` calls, and of all."""

    def one(number: int) -> float:
        began = time.perf_counter()
        call(number)
        return time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        seconds = list(pool.map(one, range(count)))
    return seconds, time.perf_counter() - began


def show(name: str, seconds: list[float], total: float, bytes_each: int = 0) -> None:
    ordered = sorted(seconds)
    line = f"{name:<34}{1000 * statistics.median(ordered):>8.1f}{1000 * ordered[int(0.95 * len(ordered))]:>8.1f}"
    rate = f"{len(seconds) * bytes_each / total / 1e6:>10.1f} MB/s" if bytes_each >= 1e6 else ""
    print(f"{line}{len(seconds) / total:>10.1f}{rate}")


def race(store: ObjectStore, key: str, writers: int) -> int:
    """How many of some writers at once were told that they created an object."""
    start = threading.Barrier(writers)

    def write(number: int) -> bool:
        start.wait()
        return store.create(key, b"writer %d" % number)

    with ThreadPoolExecutor(writers) as pool:
        return sum(pool.map(write, range(writers)))


def measure(store: ObjectStore, requests: int, at_once: int, mb: int) -> None:
    folder = f"{PROBE_FOLDER}/{secrets.token_hex(8)}"
    small, large, rounds = b"x" * SMALL, secrets.token_bytes(mb * 1_000_000), max(4, requests // 20)
    print(f"{'':<34}{'p50 ms':>8}{'p95 ms':>8}{'requests/s':>12}")
    try:
        for workers in (1, at_once):
            suffix = f", {workers} at once"
            kind = f"{folder}/{workers}"
            steps: list[tuple[str, Callable[[int], object], int, int]] = [
                ("put 1 kB", lambda n, kind=kind: store.put(f"{kind}/put/{n:06d}", small), requests, 0),
                ("create 1 kB", lambda n, kind=kind: store.create(f"{kind}/new/{n:06d}", small), requests, 0),
                ("create, key is taken", lambda n, kind=kind: store.create(f"{kind}/new/{n:06d}", b"y"), requests, 0),
                ("get 1 kB", lambda n, kind=kind: store.read(f"{kind}/put/{n:06d}"), requests, 0),
                (f"list {requests}", lambda _, kind=kind: store.list_objects(f"{kind}/put"), rounds, 0),
                (f"put {mb} MB", lambda n, kind=kind: store.put(f"{kind}/large/{n}", large), rounds, len(large)),
                (f"get {mb} MB", lambda n, kind=kind: store.read(f"{kind}/large/{n}"), rounds, len(large)),
                (
                    "get a range of 64 kB",
                    lambda n, kind=kind: store.read(f"{kind}/large/{n % rounds}", 100_000, 165_536),
                    requests,
                    0,
                ),
            ]
            for name, call, count, size in steps:
                show(name + suffix, *timed(call, count, workers), size)
        winners = [race(store, f"{folder}/race/{number}", at_once) for number in range(rounds)]
        right = sum(each == 1 for each in winners)
        print(f"{right} of {rounds} races of {at_once} writers had one winner")
    finally:
        store.delete(found.key for found in store.list_objects(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--server", choices=["moto", "ceph"])
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--mb", type=int, default=8)
    options = parser.parse_args()
    if not options.address and not options.server:
        parser.error("name an address or a folder, or --server")
    with ExitStack() as stack:
        try:
            named = options.server
            store = stack.enter_context(local_server(named)) if named else open_store(options.address)
            print(f"{store.address}: keeps what commits need")
            measure(store, options.requests, options.at_once, options.mb)
        except DistillError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
