"""What outages cost: runs of generate during which images, key, quota, server, replica, proxy or disk are away.

    python benchmarks/crashes/outages.py [--draws 100] [--first 0] [--seed 0] [--rows 120] [--jobs 4] [--backend vllm]
                                           [--keep DIR]

Each draw takes one thing away at a random moment for a random time, shorter or longer than the patience, while
`distill generate` asks two stub servers. In some, `distill` stands still (SIGSTOP) while the outage ends and its
patience too: it has to ask once more. A run that stops is started again once all is well. Counted over all draws:
traces lost, doubled or different from those of an undisturbed run; rows with an error; wrong exit codes (0 after an
outage that was waited for, 3 after one that lasted, 1 for a full disk).
Draws mostly wait, so `--jobs` of them run side by side, each with its own servers and images. Every run is forked
from one process that has loaded the program, which saves most of its processor time. What a draw does depends on the
seed and its number only.
Takes 16 s with `--draws 2 --rows 40`, 9 min with `--draws 100 --rows 80` (two shared cores).
"""

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from forked_commands import Forked
from servers import stub_server
from students import tiny_models

KINDS = ("images", "key", "quota", "server", "replica", "proxy", "disk")
_MODES = {
    "key": ("401", "403", "404"),
    "quota": ("quota", "402", "limit"),
    "proxy": ("html", "login", "408", "inner", "away"),
}
PATIENCE_S = 4.0


class Stub:
    """A server that can be stopped and started again at its address."""

    def __init__(self) -> None:
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.prepare()
        self.start()

    def prepare(self) -> None:
        """Load a server that does not listen yet: its start, seconds on a busy machine, is no part of an outage."""
        command = [sys.executable, stub_server.__file__, f"--port={self.port}", "--latency-s=0.03", "--wait=1"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self) -> None:
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.port = int(self.process.stdout.readline())
        urllib.request.urlopen(f"{self.url}/models").read()  # it listens, and is given processor time

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def leave(self) -> None:
        self.stop()
        self.prepare()

    def mode(self, name: str) -> None:
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}/mode?{name}").read()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@dataclass(slots=True)
class World:
    """A data set, its recipe and the two servers that answer for it."""

    folder: Path
    rows: int
    backend: str
    servers: list[Stub] = field(default_factory=lambda: [Stub(), Stub()])

    def write(self) -> None:
        (self.folder / "images").mkdir(parents=True)
        for number in range(40):
            tiny_models.make_image(self.folder / "images" / f"{number}.png", number, size=24)
        rows = [{"image": f"{number % 40}.png", "question": f"How many? {number}"} for number in range(self.rows)]
        (self.folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        urls = orjson.dumps([server.url for server in self.servers]).decode()
        (self.folder / "recipe.toml").write_text(
            f'[data.questions]\nsource = "rows.jsonl"\nimages_root = "images"\n'
            f"[generate]\npatience_s = {PATIENCE_S}\n"
            f'[[teachers]]\nname = "stub"\nmodel = "stub"\nbackend = "{self.backend}"\nbase_url = {urls}\n'
            'max_in_flight = 4\ntimeout_s = 5.0\nimages = "base64"\n'
        )

    def start(self, run: Path, *, most_bytes: int = 0) -> Forked:
        log = self.folder / f"{run.name}.log"
        return Forked(["generate", str(self.folder / "recipe.toml"), "--run", str(run)], log, most_bytes)

    def away(self, kind: str, rng: random.Random) -> tuple[Callable[[], object], Callable[[], object], str]:
        """How something is taken away and brought back, and what exactly it is."""
        images, gone = self.folder / "images", self.folder / "away"
        if kind == "images":
            return lambda: images.rename(gone), lambda: gone.rename(images), "folder"
        if kind in _MODES:
            name = rng.choice(_MODES[kind])
            everybody = self.servers
            return (
                lambda: [each.mode(name) for each in everybody],
                lambda: [each.mode("") for each in everybody],
                name,
            )
        chosen = self.servers if kind == "server" else [rng.choice(self.servers)]
        return lambda: [each.leave() for each in chosen], lambda: [each.start() for each in chosen], "killed"


def lines(run: Path) -> list[dict[str, object]]:
    parts = sorted(run.glob("generate/*/part-*.jsonl"))
    return [orjson.loads(line) for part in parts for line in part.read_bytes().splitlines()]


def journal_bytes(run: Path) -> int:
    sizes = []
    with suppress(FileNotFoundError):  # the folder of a plan that is being made goes away, too
        sizes += [part.stat().st_size for part in run.glob("generate/*/part-*.jsonl")]
    return sum(sizes)


def digest(run: Path) -> str:
    """What later stages see: the traces' ids and texts, whatever their order."""
    kept = sorted(f"{record['id']} {record['outcome']} {record['text']}" for record in lines(run))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def drawn(world: World, number: int, kind: str, whole: int, expected: str, rng: random.Random) -> Counter[str]:
    """One draw, its counts."""
    counts: Counter[str] = Counter()
    run = world.folder / f"run-{number}"
    # Before the first request, amid the run, or near its end.
    grown = round(whole * rng.choice((0.0, rng.random(), 0.95)))
    length_s = rng.choice((rng.uniform(0.05, 0.6 * PATIENCE_S), rng.uniform(0.05, 0.6 * PATIENCE_S), 3 * PATIENCE_S))
    stands_still = rng.random() < 0.3 and length_s < PATIENCE_S
    if kind == "disk":
        process, what, codes = world.start(run, most_bytes=max(400, grown)), "full", {1}
        lasting = True
        back: Callable[[], object] = lambda: None  # noqa: E731
    else:
        leave, back, what = world.away(kind, rng)
        lasting = length_s > PATIENCE_S
        codes = {0} if not lasting or kind == "replica" else {3}
        process = world.start(run)
        while process.running and (journal_bytes(run) < grown or not (run / "generate" / "plan.json").exists()):
            time.sleep(0.005)
        late = not process.running
        left = time.monotonic()
        leave()
        ends = time.monotonic() + length_s
        if stands_still and not late:
            time.sleep(length_s / 2)
            process.signal(signal.SIGSTOP)
            counts["stood still"] += 1
        while time.monotonic() < ends and (process.running or not lasting):
            time.sleep(0.01)
        if late:
            codes = {0}
        elif lasting and kind != "replica":
            process.wait()
        back()
        if stands_still and not late:
            time.sleep(max(0.0, left + 1.5 * PATIENCE_S - time.monotonic()))
            process.signal(signal.SIGCONT)
        elif not lasting and time.monotonic() - left > PATIENCE_S:
            codes = {0, 3}  # a busy machine took so long to start the server again
            counts["longer than drawn"] += 1
        counts["too late"] += late
    code = process.wait()
    # A run that had sent its last request before the outage began may end well.
    ended_well = code == 0 and lasting and len(lines(run)) == world.rows
    counts["wrong exit codes"] += code not in codes and not ended_well
    if code not in codes and not ended_well:
        print(f"draw {number}: {kind} ({what}) for {length_s:.1f} s: exit {code}, expected {codes}", flush=True)
    before = lines(run)
    counts["rows blamed"] += sum(bool(record["error"]) for record in before)
    second = world.start(run).wait()
    counts["wrong second exit codes"] += second != 0
    after = lines(run)
    ids = [record["id"] for record in after]
    counts["traces lost"] += len({record["id"] for record in before} - set(ids)) + max(0, world.rows - len(set(ids)))
    counts["traces doubled"] += len(ids) - len(set(ids))
    counts["rows with an error at the end"] += sum(bool(record["error"]) for record in after)
    counts["other final states"] += digest(run) != expected
    counts["stopped" if code else "waited for"] += 1
    return counts


def campaign(worlds: Sequence[World], options: argparse.Namespace) -> tuple[Counter[str], Counter[str]]:
    """The counts of all draws, and how many draws took away what."""
    alone = worlds[0].folder / "alone"
    for world in worlds:
        world.write()
    if code := worlds[0].start(alone).wait():
        log = (worlds[0].folder / "alone.log").read_text()
        raise SystemExit(f"the undisturbed run ended with {code}: {log[-2000:]}")
    whole, expected = journal_bytes(alone), digest(alone)
    free: SimpleQueue[World] = SimpleQueue()
    for world in worlds:
        free.put(world)

    def draw(number: int) -> tuple[str, Counter[str]]:
        world, kind = free.get(), KINDS[number % len(KINDS)]
        try:
            return kind, drawn(world, number, kind, whole, expected, random.Random(f"{options.seed} {number}"))
        finally:
            free.put(world)

    totals: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with ThreadPoolExecutor(len(worlds)) as pool:
        numbers = range(options.first, options.first + options.draws)
        for done, (kind, counts) in enumerate(pool.map(draw, numbers), start=1):
            totals += counts
            kinds[kind] += 1
            if done % 10 == 0:
                print(f"{done} draws: {dict(totals)}", flush=True)
    return totals, kinds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=4, help="draws side by side")
    parser.add_argument("--backend", choices=["vllm", "openai"], default="vllm", help="of the teacher")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folders = [(options.keep or Path(name)) / f"world-{job}" for job in range(options.jobs)]
        worlds = [World(folder, options.rows, options.backend) for folder in folders]
        try:
            totals, kinds = campaign(worlds, options)
        finally:
            for world in worlds:
                for server in world.servers:
                    server.stop()
    wrong = ("wrong exit codes", "wrong second exit codes", "rows blamed", "traces lost", "traces doubled")
    wrong += ("rows with an error at the end", "other final states")
    print(", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    print(
        "; ".join(
            f"{name}: {totals[name]}"
            for name in ("waited for", "stopped", "too late", "stood still", "longer than drawn", *wrong)
        ),
        flush=True,
    )
    raise SystemExit(any(totals[name] for name in wrong))


if __name__ == "__main__":
    main()
