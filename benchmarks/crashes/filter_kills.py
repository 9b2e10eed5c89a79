"""What `kill -9` costs the filter stage: killed at random moments and resumed, against a run left alone.

    python benchmarks/crashes/filter_kills.py [--kills 20] [--traces 300] [--partition-rows 15] [--workers 2]

Every attempt lives until it has written something, and then for a random share of the time that the stage takes from
its first write to its end; when one gets to the end all the same, its results are compared and the next run begins.
Every file of the stage must be that of the run left alone, to the byte, no temporary file may be left, and every
trace must be kept or dropped for reasons.
Takes 25 s with `--kills 1 --traces 60` (two shared cores).
"""

import argparse
import hashlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1] / "filter"))

from forked_commands import Forked
from invented_run import write_run, written_recipe
from kills import written

from distill.artifacts.manifest import Manifest

SHOWN = 8
REACHED = {
    "report.html": "report",
    "dataset": "report",
    ".dataset.tmp": "dataset",
    "decisions.parquet": "decisions",
    "corpus/part-00000.parquet": "decisions",
    "corpus": "near duplicates",
    "signals": "signals",
}
"""What a run that has got so far was doing last, by the files that lie in its filter folder."""


def results(run: Path) -> dict[str, str]:
    """Digests of all files of a finished stage, by name."""
    manifest = Manifest.read(run / "filter")
    if manifest is None:
        raise SystemExit(f"{run}: the stage is not finished; see {run}.log")
    return {name: hashlib.sha256((run / "filter" / name).read_bytes()).hexdigest() for name in manifest.outputs}


def problems(run: Path, alone: Path) -> list[str]:
    """What is wrong with a finished run."""
    found = []
    own, expected = results(run), results(alone)
    for name in sorted(own.keys() | expected.keys()):
        if own.get(name) != expected.get(name):
            found.append(f"{name} differs")
    found += [f"{path.relative_to(run)} is left behind" for path in (run / "filter").rglob(".*.tmp")]
    decisions = pq.read_table(run / "filter/decisions.parquet").to_pylist()
    dropped = [row for row in decisions if not row["kept"]]
    planned = pq.read_metadata(run / "generate/plan.parquet").num_rows
    counts = Manifest.read(run / "filter").counts  # type: ignore[union-attr]
    if not len(decisions) == planned == counts["kept"] + counts["dropped"]:
        found.append(f"{len(decisions)} decisions of {planned} traces")
    if not all(row["reasons"] for row in dropped):
        found.append("a trace is dropped for no reason")
    return found


def reached(run: Path) -> str:
    return next((phase for name, phase in REACHED.items() if (run / "filter" / name).exists()), "index")


def begin(folder: Path, number: int) -> Path:
    """A new run of the same generate stage."""
    run = folder / f"killed{number}"
    run.mkdir()
    (run / "generate").symlink_to(folder / "alone" / "generate")
    return run


def begin_work(settings: Path, run: Path) -> Forked:
    """The stage, once it has written something."""
    before = written(run)
    process = Forked(["filter", str(settings), "--run", str(run)], run.parent / f"{run.name}.log")
    while process.running and written(run) == before:
        time.sleep(0.002)
    return process


def kill(folder: Path, settings: Path, kills: int, seconds: float, chance: random.Random) -> bool:
    """Kill runs of the stage until it has been done so often; whether all of them ended well."""
    alone = folder / "alone"
    run = begin(folder, 0)
    runs: list[Path] = [run]
    killed: Counter[str] = Counter()
    bad: list[str] = []
    while killed.total() < kills:
        if (run / "filter" / "manifest.json").exists():
            bad += problems(run, alone)
            run = begin(folder, len(runs))
            runs.append(run)
        process = begin_work(settings, run)
        code = process.wait(chance.uniform(0, seconds))
        if code:
            raise SystemExit(f"the stage ended with {code}; see {run}.log")
        if code is None:
            process.signal(signal.SIGKILL)
            killed[reached(run)] += process.wait() == -signal.SIGKILL
            print(f"{killed.total()} kills of {len(runs)} runs, {len(bad)} problems", flush=True)
    if code := begin_work(settings, run).wait():
        raise SystemExit(f"the stage ended with {code}; see {run}.log")
    bad += problems(run, alone)
    where = ", ".join(f"{phase} {count}" for phase, count in sorted(killed.items()))
    verdict = f"{len(bad)} problems: {'; '.join(bad[:SHOWN])}" if bad else "the same bytes"
    print(f"{killed.total()} kills ({where}) of {len(runs)} runs: {verdict}", flush=True)
    return not bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--traces", type=int, default=300)
    parser.add_argument("--partition-rows", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        write_run(folder / "alone", chosen.traces, 60, chance)
        text = f"[filter]\npartition_rows = {chosen.partition_rows}\nworkers = {chosen.workers}\n"
        settings = written_recipe(folder, text)
        process = begin_work(settings, folder / "alone")
        started = time.monotonic()
        if code := process.wait():
            raise SystemExit(f"the stage ended with {code}; see {folder}/alone.log")
        seconds = time.monotonic() - started
        print(f"{chosen.traces:,} traces, left alone: {seconds:.1f} s from the first write on", flush=True)
        well = kill(folder, settings, chosen.kills, seconds, chance)
    raise SystemExit(not well)


if __name__ == "__main__":
    main()
