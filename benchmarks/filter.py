"""What `distill filter` costs at scale: traces a second and peak memory of every phase, and how long `explain` takes.

    python benchmarks/filter.py [--traces 10000 100000 1000000] [--words 300] [--folder DIR]

Writes a finished generate stage of so many invented traces (four teachers in three domains, four to eight traces a
question, shared pictures, some exact and near duplicates, some errors), filters it in a child process with one
worker, and asks `distill explain` in fresh processes. Memory is flat when the peak of 1M traces is that of 10k.
A million traces of 300 words are 4 GB of journals; --words 60 makes it 1.3 GB.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import run_fixtures

from distill.arrow import table_of
from distill.artifacts import Manifest, atomic_path, describe, fingerprint
from distill.data import sample_id, write_samples
from distill.tables import table
from distill.types import ImageRef, Sample

TEACHERS = ("structured", "reader", "analyst", "brief")
PICTURES = 64
QUESTIONS_AT_ONCE = 2048
NAMES = "apple pear plum cherry lemon quince medlar olive fig date sloe damson".split()
PLACES = "left right top bottom middle front back corner edge shade".split()
VERBS = "count see read compare add take weigh find mark check".split()
PLAN = pa.schema(
    [
        ("id", pa.string()),
        ("sample_id", pa.string()),
        ("teacher", pa.string()),
        ("k", pa.int32()),
        ("attempt", pa.int32()),
        ("hinted", pa.bool_()),
    ]
)
PHASES = {
    "index": "index",
    "measure.measure": "signals",
    "corpus.write": "near duplicates",
    "policy.decide": "decisions",
    "policy.write": "decisions",
    "dataset.write": "dataset",
    "funnel.measure": "funnel",
    "report.write": "report",
    "artifacts.describe": "digests",
}
"""What the stage calls, by its name in `filters.apply`, and the phase it belongs to; all else is `other`."""


# --- a finished generate stage ----------------------------------------------------------------------------------


def write_run(run: Path, traces: int, words: int, chance: random.Random) -> None:
    """`<run>/generate` with exactly so many traces."""
    folder = run / "generate"
    pictures = [run_fixtures.picture(run / "pictures", number) for number in range(PICTURES)]
    sentences = [sentence(chance) for _ in range(4096)]
    for teacher in TEACHERS:
        (folder / teacher).mkdir(parents=True)
    journals = {teacher: (folder / teacher / "part-00000.jsonl").open("wb") for teacher in TEACHERS}

    def samples(plan: pq.ParquetWriter) -> Iterator[Sample]:
        left = traces
        before = "I see nothing yet."
        rows: list[dict[str, Any]] = []
        while left:
            number = traces - left
            count = min(left, chance.randint(4, 8))
            asked = question(number, pictures, chance)
            for place in range(count):
                before = rationale(before, sentences, words, chance)
                row = write_trace(asked, place, before, journals, chance)
                rows.append(row)
            left -= count
            if len(rows) >= QUESTIONS_AT_ONCE or not left:
                plan.write_table(table_of(rows, PLAN))
                rows.clear()
            yield asked

    with (
        atomic_path(folder / "plan.parquet") as path,
        pq.ParquetWriter(path, PLAN, compression="zstd") as plan,
    ):
        write_samples(folder / "samples.parquet", samples(plan))
    for journal in journals.values():
        journal.close()
    fields = {"teachers": list(TEACHERS), "traces": traces, "words": words}
    outputs = {f"{name}/part-00000.jsonl": describe(folder / name / "part-00000.jsonl") for name in TEACHERS}
    Manifest(
        stage="generate",
        fingerprint=fingerprint(fields),
        fields=fields,
        counts={"planned": traces},
        outputs=outputs,
    ).write(folder)


def question(number: int, pictures: list[ImageRef], chance: random.Random) -> Sample:
    ref = chance.choice(pictures)
    domain = ("scenes", "charts", "documents")[number % 3]
    bars = {name: chance.randint(1, 90) for name in chance.sample(NAMES, 4)}
    name, gold = next(iter(bars.items()))
    text = f"Question {number}: how many boxes of {name} are there?"
    return Sample(
        id=sample_id(text, [ref.sha256]),
        images=(ref,),
        question=text,
        answers=(str(gold),),
        domain=domain,
        meta={"bars": bars} if domain == "charts" else {},
    )


def sentence(chance: random.Random) -> str:
    return (
        f"I {chance.choice(VERBS)} the {chance.choice(NAMES)} at the {chance.choice(PLACES)} and "
        f"{chance.choice(VERBS)} {chance.randint(1, 999)} of them,"
    )


def rationale(before: str, sentences: list[str], words: int, chance: random.Random) -> str:
    """A text of so many words; some repeat the last one, exactly or but for its end."""
    kind = chance.random()
    if kind < 0.02:
        return before
    if kind < 0.06:
        return f"{before} {chance.choice(sentences)}"
    return " ".join(chance.choices(sentences, k=max(1, words // 12)))


def write_trace(
    asked: Sample, place: int, text: str, journals: dict[str, IO[bytes]], chance: random.Random
) -> dict[str, Any]:
    """Journal one attempt; its row of the plan."""
    teacher, k = TEACHERS[place % len(TEACHERS)], place // len(TEACHERS)
    gold = int(asked.answers[0])
    answer = str(gold if chance.random() < 0.7 else gold + chance.randint(1, 9))
    outcome = "complete" if chance.random() < 0.95 else "truncated_thinking"
    if outcome != "complete":
        answer = ""
    row = {"sample_id": asked.id, "teacher": teacher, "k": k, "attempt": 0, "hinted": False}
    row["id"] = fingerprint(row)[:32]
    record = row | {
        "seed": k,
        "reasoning": text,
        "answer": answer,
        "text": f"<think>\n{text}\n</think>\n\n{answer}",
        "outcome": outcome,
        "finish_reason": "stop" if answer else "length",
        "usage": {"prompt": 300, "image": 256, "reasoning": len(text) // 4, "answer": 1, "cached": None},
        "params": {"temperature": 0.8, "top_p": 0.95, "max_tokens": 2048},
        "model": f"teachers/{teacher}",
        "revision": "r1",
        "engine": {"name": "vllm", "version": "0.11"},
        "prompt_sha": "p",
        "latency_s": 0.5,
        "created": "2026-01-01T00:00:00+00:00",
        "draft": "",
        "stop_reason": "",
        "error": "",
        "logprobs": None,
    }
    journals[teacher].write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SORT_KEYS))
    return row


# --- the child: filter, timed by phase --------------------------------------------------------------------------


class Meter:
    """Seconds and peak memory of each phase of this process."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peak_mb: dict[str, float] = {}
        self.own_mb: dict[str, float] = {}
        self._inside = "other"
        threading.Thread(target=self._watch, daemon=True).start()

    def timed(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._inside != "other":
                return function(*arguments, **named)
            self._end()
            started, self._inside = time.monotonic(), phase
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - started
                self._end()
                self._inside = "other"

        return call

    def _end(self) -> None:
        """Note the peak since the last call, and begin a new one."""
        peak = status("VmHWM")
        self.peak_mb[self._inside] = max(self.peak_mb.get(self._inside, 0.0), peak)
        Path("/proc/self/clear_refs").write_text("5")

    def _watch(self) -> None:
        # Memory of files that are mapped counts in the peak, too, but the system may take it back at any time.
        while True:
            phase = self._inside
            self.own_mb[phase] = max(self.own_mb.get(phase, 0.0), status("RssAnon"))
            time.sleep(0.02)


def status(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith(f"{name}:"))


def child(recipe: str, run: str) -> None:
    """Filter a run and print what each phase cost, as JSON."""
    import importlib

    from distill.recipe import load
    from filters import apply as stage

    meter = Meter()
    importlib.import_module("filters.report")
    for name, phase in PHASES.items():
        owner: Any = stage
        *modules, attribute = name.split(".")
        for module in modules:
            owner = getattr(stage, module, None) or importlib.import_module(f"filters.{module}")
        if hasattr(owner, attribute):
            setattr(owner, attribute, meter.timed(getattr(owner, attribute), phase))
    started = time.monotonic()
    manifest = stage.apply(load(recipe), run)
    total = time.monotonic() - started
    meter._end()
    meter.seconds["other"] = total - sum(meter.seconds.values())
    meter.seconds["all"] = total
    meter.peak_mb["all"] = max(meter.peak_mb.values())
    meter.own_mb["all"] = max(meter.own_mb.values())
    print(
        json.dumps(
            {
                "seconds": meter.seconds,
                "peak_mb": meter.peak_mb,
                "own_mb": meter.own_mb,
                "counts": dict(manifest.counts),
            }
        )
    )


# --- the parent -------------------------------------------------------------------------------------------------


def explain_seconds(run: Path, times: int, chance: random.Random) -> list[float]:
    """Whole processes of `distill explain`, imports included."""
    ids = pq.read_table(run / "generate" / "plan.parquet", columns=["id"])["id"]
    seconds = []
    for _ in range(times):
        trace_id = ids[chance.randrange(len(ids))].as_py()
        started = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "distill", "explain", str(run), trace_id],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )
        seconds.append(time.monotonic() - started)
    return sorted(seconds)


def bench(folder: Path, traces: int, words: int, explained: int, seed: int) -> None:
    run = folder / f"run{traces}"
    shutil.rmtree(run, ignore_errors=True)
    chance = random.Random(seed)
    started = time.monotonic()
    write_run(run, traces, words, chance)
    size = sum(path.stat().st_size for path in (run / "generate").rglob("*") if path.is_file())
    print(f"\n{traces:,} traces of {words} words: {size / 1e9:.2f} GB, {time.monotonic() - started:.0f} s to invent")
    recipe = run_fixtures.recipe(folder)
    command = [sys.executable, __file__, "--child", str(recipe.path), str(run)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [
        (
            phase,
            f"{spent:.1f}",
            f"{traces / spent:,.0f}" if spent > 0.001 else "",
            f"{found['peak_mb'].get(phase, 0):,.0f}",
            f"{found['own_mb'].get(phase, 0):,.0f}",
        )
        for phase, spent in found["seconds"].items()
    ]
    print(table(("phase", "seconds", "traces/s", "peak MB", "of it not files"), rows))
    counts = found["counts"]
    print(f"{counts['input']:,} in, {counts['kept']:,} kept, {counts['selected']:,} selected")
    if explained:
        seconds = explain_seconds(run, explained, chance)
        print(f"explain: {seconds[len(seconds) // 2]:.2f} s (median of {explained}, longest {seconds[-1]:.2f} s)")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--words", type=int, default=300, help="of every rationale")
    parser.add_argument("--explained", type=int, default=5, help="traces that `distill explain` is asked about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="work in this folder and leave it")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(*chosen.child)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for traces in chosen.traces:
            bench(folder, traces, chosen.words, chosen.explained, chosen.seed)


if __name__ == "__main__":
    main()
