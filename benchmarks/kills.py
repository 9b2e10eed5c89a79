"""What `kill -9` costs: generate and train of the tiny recipe, killed at random moments, against a run left alone.

    python benchmarks/kills.py [--kills 10] [--steps 20] [--limit 900] [--seed 0]

Prints whether both runs ended with the same trace ids, none missing or doubled, and with the same weights to the bit.
"""

import argparse
import hashlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from distill.artifacts import read_jsonl

STAGES = ("align", "instruct", "reason", "answers_only")


def distill(verb: str, run: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "distill", verb, "tiny", "--run", str(run), *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def finish(verb: str, run: Path, options: Sequence[str]) -> float:
    """Seconds that the verb takes when nobody kills it."""
    started = time.monotonic()
    if code := distill(verb, run, options).wait():
        raise SystemExit(f"distill {verb} {run}: exit code {code}")
    return time.monotonic() - started


def kill(verb: str, run: Path, options: Sequence[str], kills: int, seconds: float, chance: random.Random) -> int:
    """Kill the verb again and again while it is at work; how often it was still alive then.

    An attempt lives until it has written something, and then for a random time that leaves work for the next.
    """
    killed = 0
    for _ in range(kills):
        before = written(run)
        process = distill(verb, run, options)
        while process.poll() is None and written(run) == before:
            time.sleep(0.01)
        try:
            process.wait(timeout=chance.random() * seconds / kills)
        except subprocess.TimeoutExpired:
            process.kill()
            killed += process.wait() == -9
    return killed


def written(run: Path) -> int:
    """Bytes of all files of a run."""
    sizes = []
    for path in run.rglob("*"):
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sum(sizes)


def trace_ids(run: Path) -> list[str]:
    return sorted(line["id"] for path in (run / "generate").glob("*/*.jsonl") for line in read_jsonl(path))


def weights(run: Path) -> dict[str, str]:
    return {
        stage: hashlib.sha256(path.read_bytes()).hexdigest()
        for stage in STAGES
        for path in (run / "train" / stage).rglob("model.safetensors")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=10, help="of each verb")
    parser.add_argument("--steps", type=int, default=20, help="optimisation steps of every stage")
    parser.add_argument("--limit", type=int, default=900, help="questions asked")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    few = [
        f"--set=stages.{stage}.{key}"
        for stage in STAGES
        for key in (f"max_steps={chosen.steps}", "save_every_steps=5")
    ]
    with tempfile.TemporaryDirectory() as name:
        alone, killed = Path(name) / "alone", Path(name) / "killed"
        limit = ["--limit", str(chosen.limit)]
        seconds = finish("generate", alone, limit)
        count = kill("generate", killed, limit, chosen.kills, seconds, chance)
        finish("generate", killed, limit)
        ours, theirs = trace_ids(killed), trace_ids(alone)
        print(
            f"generate: {count} of {chosen.kills} attempts killed, {len(ours)} traces, {len(set(ours))} ids,", end=" "
        )
        print("same ids" if ours == theirs else "OTHER IDS", f"({seconds:.0f} s when left alone)", flush=True)
        # The same traces for both, so that the weights can be compared.
        finish("filter", alone, [])
        shutil.rmtree(killed)
        shutil.copytree(alone, killed)
        seconds = finish("train", alone, few)
        count = kill("train", killed, few, chosen.kills, seconds, chance)
        finish("train", killed, few)
        same = weights(killed) == weights(alone)
        print(f"train: {count} of {chosen.kills} attempts killed, {len(weights(killed))} stages,", end=" ")
        print(
            "same weights to the bit" if same else "OTHER WEIGHTS", f"({seconds:.0f} s when left alone)", flush=True
        )
        if ours != theirs or len(ours) != len(set(ours)) or not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
