"""What `distill filter` costs at scale: traces a second and peak memory of every phase, and how long `explain` takes.

    python benchmarks/filter/filter.py [--traces 10000 100000 1000000] [--words 300] [--folder DIR]

Writes a finished generate stage of so many invented traces (four teachers in three domains, four to eight traces a
question, shared images, some exact and near duplicates, some errors), filters it in a child process with one
worker, asks `distill explain` in fresh processes, and compares other policies on one thread. Memory is flat when the
peak of 1M traces is that of 10k. CPU seconds are the process's: on a shared machine they say more than seconds.
A million traces of 300 words are 4 GB of journals; --words 60 makes it 1.3 GB.
Takes 42 s with `--traces 400 --words 60` (two shared cores).
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from invented_run import write_run, written_recipe

from distill.reports.text_table import table

PHASES = {
    "index": "index",
    "measure.measure": "signals",
    "corpus_duplicates.write": "near duplicates",
    "filters.decisions.decide.decide": "decisions",
    "filters.dataset.writer.write": "dataset",
    "filters.decisions.dataset_checks.measure": "checks",
    "filters.decisions.funnel.measure": "funnel",
    "filters.dataset.ablation_sets.write": "arms",
    "filters.dataset.card_facts.facts": "card",
    "filters.write_result.render_card": "card",
    "filters.report.page.write": "report",
    "filters.dataset.exports.write_stage_exports": "exports",
    "question_duplicates.write": "questions",
    "filters.write_result.describe": "digests",
}
"""What the stage calls, by its name in `filters.apply` or its whole name, and its phase; all else is `other`."""


# --- the child: filter, timed by phase --------------------------------------------------------------------------


class Meter:
    """Seconds and peak memory of each phase of this process."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.peak_mb: dict[str, float] = {}
        self.own_mb: dict[str, float] = {}
        self._inside = "other"
        threading.Thread(target=self._watch, daemon=True).start()

    def timed(self, function: Callable[..., Any], phase: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._inside != "other":
                return function(*arguments, **named)
            self._end()
            started, used, self._inside = time.monotonic(), time.process_time(), phase
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - started
                self.cpu[phase] = self.cpu.get(phase, 0.0) + time.process_time() - used
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
    from functools import reduce

    from distill.recipe.loading import load
    from filters import apply

    meter = Meter()
    for name, phase in PHASES.items():
        module, _, attribute = name.rpartition(".")
        if module.startswith("filters."):
            owner: Any = importlib.import_module(module)
        else:
            owner = reduce(getattr, module.split(".") if module else (), apply)
        setattr(owner, attribute, meter.timed(getattr(owner, attribute), phase))
    started, used = time.monotonic(), time.process_time()
    loaded = load(recipe)
    one_process = loaded.filter.model_copy(update={"workers": 1})
    manifest = apply.apply(loaded.model_copy(update={"filter": one_process}), run)
    total, cpu = time.monotonic() - started, time.process_time() - used
    meter._end()
    meter.cpu["other"] = cpu - sum(meter.cpu.values())
    meter.cpu["all"] = cpu
    meter.seconds["other"] = total - sum(meter.seconds.values())
    meter.seconds["all"] = total
    meter.peak_mb["all"] = max(meter.peak_mb.values())
    meter.own_mb["all"] = max(meter.own_mb.values())
    print(
        json.dumps(
            {
                "seconds": meter.seconds,
                "cpu": meter.cpu,
                "peak_mb": meter.peak_mb,
                "own_mb": meter.own_mb,
                "counts": dict(manifest.counts),
            }
        )
    )


OTHER = """
[filter]
rules = [
    { name = "wrong", drop = "answer_verdict = 'wrong'" },
    { name = "long", drop = "rationale_tokens > 60" },
    { name = "again", drop = "corpus_duplicate" },
]
[filter.select]
per_question = 1
"""
MIX = '[[filter.select.mix]]\nby = "difficulty"\nshares = { hard = 0.1 }\n'


def compare(recipe: str, run: str, other: str) -> None:
    """Compare another policy on one thread and print what that took, as JSON."""
    from distill.recipe.loading import load
    from filters.signals import registry
    from filters.what_if import what_if

    started, used = time.monotonic(), time.process_time()
    what_if(load(recipe).model_copy(update={"filter": load(other).filter}), Path(run), threads=1)
    spent = (time.monotonic() - started, time.process_time() - used)
    print(json.dumps({"spent": spent, "calls": sum(registry.calls.values())}))


# --- the parent -------------------------------------------------------------------------------------------------


def explain_seconds(run: Path, times: int, chance: random.Random) -> list[tuple[float, float]]:
    """Seconds and CPU seconds of whole processes of `distill explain`, imports included."""
    ids = pq.read_table(run / "generate" / "plan.parquet", columns=["id"])["id"]
    seconds = []
    for _ in range(times):
        trace_id = ids[chance.randrange(len(ids))].as_py()
        started, used = time.monotonic(), children_cpu()
        subprocess.run(
            [sys.executable, "-m", "distill", "explain", str(run), trace_id],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        seconds.append((time.monotonic() - started, children_cpu() - used))
    return sorted(seconds)


def print_comparisons(folder: Path, recipe: Path, run: Path) -> None:
    for name, text in (("another policy", OTHER), ("and a mix", OTHER + MIX)):
        other = folder / "other.toml"
        other.write_text(text)
        command = [sys.executable, __file__, "--compare", str(recipe), str(run), str(other)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
        seconds, cpu = found["spent"]
        print(f"what-if, {name}: {seconds:.1f} s, {cpu:.1f} s of CPU, {found['calls']} calls of extractors")


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bench(folder: Path, traces: int, words: int, explained: int, seed: int) -> None:
    run = folder / f"run{traces}"
    shutil.rmtree(run, ignore_errors=True)
    chance = random.Random(seed)
    started = time.monotonic()
    write_run(run, traces, words, chance)
    size = sum(path.stat().st_size for path in (run / "generate").rglob("*") if path.is_file())
    print(f"\n{traces:,} traces of {words} words: {size / 1e9:.2f} GB, {time.monotonic() - started:.0f} s to invent")
    recipe = written_recipe(folder)
    command = [sys.executable, __file__, "--child", str(recipe), str(run)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [
        (
            phase,
            f"{spent:.1f}",
            f"{found['cpu'][phase]:.1f}",
            f"{traces / found['cpu'][phase]:,.0f}" if found["cpu"][phase] > 0.01 else "",
            f"{found['peak_mb'].get(phase, 0):,.0f}",
            f"{found['own_mb'].get(phase, 0):,.0f}",
        )
        for phase, spent in found["seconds"].items()
    ]
    print(table(("phase", "seconds", "CPU s", "traces/CPU s", "peak MB", "of it not files"), rows))
    counts = found["counts"]
    print(f"{counts['input']:,} in, {counts['kept']:,} kept, {counts['selected']:,} selected")
    if explained:
        seconds = explain_seconds(run, explained, chance)
        wall, cpu = seconds[len(seconds) // 2]
        print(f"explain: {wall:.2f} s, {cpu:.2f} s of CPU (median of {explained}; longest {seconds[-1][0]:.2f} s)")
    print_comparisons(folder, recipe, run)
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--words", type=int, default=300, help="of every rationale")
    parser.add_argument("--explained", type=int, default=5, help="traces that `distill explain` is asked about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="work in this folder and leave it")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--compare", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.compare:
        compare(*chosen.compare)
        return
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
