"""What `kill -9` costs: generate and train, killed at random moments, against a run left alone.

    python benchmarks/crashes/kills.py [--verb generate|train|both] [--kills 100] [--requests 10000] [--seed 0]

generate asks a stub server that it starts itself; the client, the server or both are killed while traces are being
written. Prints how many acknowledged traces were lost, doubled or corrupted (none may be), and whether the ids and
texts are those of a run left alone. train runs the tiny recipe and ends with the same weights to the bit or fails.
Takes 12 s with `--verb generate --kills 1 --requests 300`, 4 min with `--verb train --kills 1 --limit 40 --steps 4`
(two shared cores).
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from students import tiny_models

from distill.artifacts.journal import read_jsonl

STUB = Path(__file__).resolve().parents[2] / "tests" / "support" / "servers" / "stub_server.py"
MARK = "DISTILL_KILLS"
"""Environment variable by which the servers of one benchmark are known, whoever their parent is now."""
STAGES = ("reason", "answers_only")
PACKED = ("batch_tokens=6000", "micro_batch_tokens=2000", "micro_batch_images=24")
MIXED = (
    "replay={instruct=0.1}",
    "teachers={structured=2,analyst=1,reader=1}",
    "lora={rank=8,alpha=16,dropout=0.1}",
    "loss={normalise='spans',answer=2.0}",
)


def distill(verb: str, recipe: str, run: Path, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "distill", verb, recipe, "--run", str(run), *options]
    with (run.parent / f"{run.name}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def finish(verb: str, recipe: str, run: Path, options: Sequence[str] = ()) -> float:
    """Seconds that the verb takes when nobody kills it."""
    started = time.monotonic()
    if code := distill(verb, recipe, run, options).wait():
        log = (run.parent / f"{run.name}.log").read_text(errors="replace")
        raise SystemExit(f"distill {verb} {run}: exit code {code}\n{log[-3000:]}")
    return time.monotonic() - started


# --- generate ---------------------------------------------------------------------------------------------------


def written_recipe(folder: Path, requests: int, samples: int = 2) -> Path:
    """A recipe of so many requests whose server the run starts itself."""
    for number in range(100):
        tiny_models.make_image(folder / f"{number}.png", number, size=32)
    rows = [{"image": f"{n % 100}.png", "question": f"How many dots? {n}"} for n in range(requests // samples)]
    (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    command = [sys.executable, str(STUB), "--latency-s=0.05"]
    (folder / "recipe.toml").write_text(
        '[data.questions]\nsource = "rows.jsonl"\n'
        f'[[teachers]]\nname = "stub"\nmodel = "stub"\nbackend = "vllm"\nsamples = {samples}\nmax_in_flight = 32\n'
        f"[teachers.server]\ncommand = {orjson.dumps(command).decode()}\n"
        f"environment = {{{MARK} = {orjson.dumps(str(folder)).decode()}}}\nrestarts = 1000\n"
    )
    return folder / "recipe.toml"


def servers(folder: Path, *, guards: bool = True) -> list[int]:
    """Process ids of the servers, and the guards over them, that runs of this recipe have started and not ended."""
    mark = f"{MARK}={folder}".encode()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                arguments = (process / "cmdline").read_bytes()
                if mark in (process / "environ").read_bytes().split(b"\0") and (
                    guards or b"guard.py" not in arguments
                ):
                    found.append(int(process.name))
    return sorted(found)


def kill_now(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def parts(run: Path) -> list[Path]:
    return sorted(run.glob("generate/*/part-*.jsonl"))


def journal_bytes(run: Path) -> int:
    sizes = []
    for part in parts(run):
        with suppress(FileNotFoundError):
            sizes.append(part.stat().st_size)
    return sum(sizes)


@dataclass(slots=True)
class Acknowledged:
    """What was on disk when a client died, and what became of it."""

    lines: dict[str, bytes] = field(default_factory=dict)
    lost: int = 0
    changed: int = 0
    doubled: int = 0
    corrupt: int = 0
    torn: int = 0
    errors: int = 0

    def look(self, run: Path) -> None:
        """Compare the whole lines on disk with those of the last look, and remember them."""
        found: dict[str, bytes] = {}
        self.errors = 0
        for part in parts(run):
            *whole, rest = part.read_bytes().split(b"\n")
            self.torn += bool(rest)
            for line in whole:
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError:
                    self.corrupt += 1
                    continue
                if record["outcome"] == "error":
                    self.errors += 1
                    continue
                self.doubled += record["id"] in found
                found[record["id"]] = line
        for name, line in self.lines.items():
            if name not in found:
                self.lost += 1
            elif found[name] != line:
                self.changed += 1
        self.lines = found

    @property
    def well(self) -> bool:
        return not (self.lost or self.changed or self.doubled or self.corrupt)


def kill_generate(folder: Path, run: Path, kills: int, requests: int, chance: random.Random) -> bool:
    """Kill client, server or both again and again, let the run finish, and say what was lost."""
    alone = folder / "alone"
    recipe = str(written_recipe(folder, requests))
    seconds = finish("generate", recipe, alone)
    bytes_each = journal_bytes(alone) / requests
    killed: Counter[str] = Counter()
    seen = Acknowledged()
    late = 0
    client: subprocess.Popen[bytes] | None = None
    for number in range(kills):
        if client is None or client.poll() is not None:
            client = distill("generate", recipe, run)
        victim = chance.choice(("client", "server", "both"))
        before = journal_bytes(run)
        share = (requests * bytes_each - before) / (kills - number + 1)
        goal = before + chance.uniform(0.02, 1.9) * share
        while client.poll() is None and journal_bytes(run) < goal:
            time.sleep(0.001)
        if client.poll() == 0:
            break  # it was faster than this process looked
        if client.returncode is not None:
            said = (run.parent / f"{run.name}.log").read_text(errors="replace")[-2000:]
            raise SystemExit(f"the client ended by itself: {client.returncode}; it says:\n{said}")
        if victim in ("server", "both"):
            late += sum(kill_now(pid) for pid in servers(folder, guards=victim == "both")) == 0
        if victim in ("client", "both"):
            client.kill()
            client.wait()
            seen.look(run)
        killed[victim] += 1
    if client is not None and client.poll() is None and client.wait():
        print(f"the last client ended with {client.returncode}")
    finish("generate", recipe, run)
    seen.look(run)
    left = servers(folder)
    whole = Acknowledged()
    whole.look(alone)
    same_ids = seen.lines.keys() == whole.lines.keys()
    texts = [{name: orjson.loads(line)["text"] for name, line in each.lines.items()} for each in (seen, whole)]
    victims = ", ".join(f"{name} {count}" for name, count in sorted(killed.items()))
    print(
        f"generate: {killed.total()} kills ({victims}; {late} with no server to kill), {len(seen.lines)} traces: "
        f"{seen.lost} lost, {seen.changed} changed, "
        f"{seen.doubled} doubled, {seen.corrupt} corrupt lines, {seen.torn} torn ones cut off, {seen.errors} errors, "
        f"{len(left)} servers left behind, {'same ids' if same_ids else 'OTHER IDS'}, "
        f"{'same texts' if texts[0] == texts[1] else 'OTHER TEXTS'} as a run left alone ({seconds:.0f} s)",
        flush=True,
    )
    return seen.well and same_ids and texts[0] == texts[1] and len(seen.lines) == requests and not left


# --- train ------------------------------------------------------------------------------------------------------


def kill_verb(verb: str, run: Path, options: Sequence[str], kills: int, seconds: float, chance: random.Random) -> int:
    """Kill a verb of the tiny recipe again and again while it is at work; how often it was still alive then.

    An attempt lives until it has written something, and then for a random time that leaves work for the next.
    """
    killed = 0
    for _ in range(kills):
        before = written(run)
        process = distill(verb, "tiny", run, options)
        while process.poll() is None and written(run) == before:
            time.sleep(0.01)
        try:
            process.wait(timeout=chance.random() * seconds / kills)
        except subprocess.TimeoutExpired:
            process.kill()
            killed += process.wait() == -signal.SIGKILL
    return killed


def written(run: Path) -> int:
    """Bytes of all files of a run; files and folders may come and go meanwhile."""
    sizes = []
    for folder, _, names in os.walk(run):
        for name in names:
            with suppress(FileNotFoundError):
                sizes.append(Path(folder, name).stat().st_size)
    return sum(sizes)


def weights(run: Path) -> dict[str, str]:
    return {
        stage: hashlib.sha256(path.read_bytes()).hexdigest()
        for stage in STAGES
        for path in (run / "train" / stage).rglob("model.safetensors")
    }


def losses(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Step and loss of every line of every stage's metrics."""
    return {
        stage: [(line["step"], line["loss"]) for line in read_jsonl(run / "train" / stage / "metrics.jsonl")]
        for stage in STAGES
    }


def kill_train(folder: Path, kills: int, steps: int, limit: int, chance: random.Random) -> bool:
    """Train on the same traces left alone and killed, and compare the weights and every logged loss.

    Rows are packed to token budgets; the stages mix three teachers at other shares than they have, replay a
    source and train adapters with dropout.
    """
    common = [f"max_steps={steps}", "save_every_steps=5", "log_every_steps=1", *PACKED]
    few = [f"--set=stages.{stage}.{key}" for stage in STAGES for key in common]
    few += [f"--set=stages.{stage}.{key}" for stage in ("reason", "answers_only") for key in MIXED]
    alone, killed = folder / "train-alone", folder / "train-killed"
    finish("generate", "tiny", alone, ["--limit", str(limit)])
    finish("filter", "tiny", alone)
    shutil.copytree(alone, killed)
    seconds = finish("train", "tiny", alone, few)
    count = kill_verb("train", killed, few, kills, seconds, chance)
    finish("train", "tiny", killed, few)
    same = weights(killed) == weights(alone)
    traced = losses(killed) == losses(alone)
    print(
        f"train: {count} of {kills} attempts killed, {len(weights(killed))} stages, "
        f"{'same weights to the bit' if same else 'OTHER WEIGHTS'}, "
        f"{'same losses' if traced else 'OTHER LOSSES'} at {sum(map(len, losses(killed).values()))} steps "
        f"({seconds:.0f} s when left alone)",
        flush=True,
    )
    return same and traced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verb", choices=("generate", "train", "both"), default="both")
    parser.add_argument("--kills", type=int, help="of each verb; default: 100 of generate, 10 of train")
    parser.add_argument("--requests", type=int, default=10_000, help="of generate")
    parser.add_argument("--steps", type=int, default=20, help="optimisation steps of every stage of train")
    parser.add_argument("--limit", type=int, default=900, help="questions whose traces train learns from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        well = True
        if chosen.verb != "train":
            well &= kill_generate(folder, folder / "killed", chosen.kills or 100, chosen.requests, chance)
        if chosen.verb != "generate":
            well &= kill_train(folder, chosen.kills or 10, chosen.steps, chosen.limit, chance)
    raise SystemExit(not well)


if __name__ == "__main__":
    main()
