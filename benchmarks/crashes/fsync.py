"""What a power cut would cost: how long a finished trace waits for its fsync.

    python benchmarks/crashes/fsync.py [--rows 10000] [--in-flight 256] [--latency-s 0.05]

Runs generate against the stub server of the tests and takes the time from the moment at which a trace is handed to
its journal to the end of the fsync that makes it durable. Writes and fsyncs themselves are the real ones.
Takes 4 s with `--rows 300` (two shared cores).
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from servers import stub_server
from students import tiny_models

from distill.artifacts.journal import Journal
from distill.recipe.loading import load
from teacher.generate import generate

LIMIT_MS = 200


@contextmanager
def watched(exposed: list[float], fsyncs: list[float]) -> Iterator[None]:
    """Collect how long each record of a journal was not durable, and how long each fsync of one took."""
    append, fsync = Journal.append, os.fsync
    open_since: dict[int, list[float]] = {}

    def watched_append(journal: Journal, record: Any, **more: Any) -> Any:
        open_since.setdefault(journal._file.fileno(), []).append(time.monotonic())
        return append(journal, record, **more)

    def watched_fsync(descriptor: Any) -> None:
        began = time.monotonic()
        fsync(descriptor)
        waiting = open_since.pop(descriptor, None)
        if waiting is not None:
            ended = time.monotonic()
            fsyncs.append(ended - began)
            exposed.extend(ended - since for since in waiting)

    Journal.append, os.fsync = watched_append, watched_fsync  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Journal.append, os.fsync = append, fsync  # type: ignore[method-assign, assignment]
    if any(open_since.values()):
        raise SystemExit(f"{sum(map(len, open_since.values()))} records were never made durable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--latency-s", type=float, default=0.05, help="of one answer")
    chosen = parser.parse_args()
    exposed: list[float] = []
    fsyncs: list[float] = []
    with tempfile.TemporaryDirectory() as name, stub_server.serve(latency_s=chosen.latency_s) as url:
        folder = Path(name)
        for number in range(100):
            tiny_models.make_image(folder / f"{number}.png", number, size=32)
        rows = [{"image": f"{number % 100}.png", "question": f"How many? {number}"} for number in range(chosen.rows)]
        (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        (folder / "recipe.toml").write_text(
            '[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "stub"\nmodel = "stub"\n'
            f'base_url = "{url}"\nmax_in_flight = {chosen.in_flight}\n'
        )
        with watched(exposed, fsyncs):
            generate(load(folder / "recipe.toml"), folder / "run")
    waits = [1000 * wait for wait in sorted(exposed)]
    print(
        f"{len(waits)} traces, {len(fsyncs)} fsyncs (longest {1000 * max(fsyncs):.0f} ms); from append to durable: "
        f"median {statistics.median(waits):.0f} ms, 99 % within {waits[int(0.99 * len(waits))]:.0f} ms, "
        f"longest {waits[-1]:.0f} ms (the promise: {LIMIT_MS} ms)"
    )
    if waits[-1] > LIMIT_MS or len(waits) != chosen.rows:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
