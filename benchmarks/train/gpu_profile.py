"""Where a GPU spends the time of a training step: seconds by kind of kernel, launches, and the MFU that comes out.

    python benchmarks/train/gpu_profile.py                              # on a GPU
    python benchmarks/train/gpu_profile.py --settings compile none --rows short-vqa
    python benchmarks/train/gpu_profile.py --preset tiny --device cpu   # tries this script; says nothing about speed

Each setting is a stage of `distill train` on a student of random weights: the published 0.5B shape, projector and
language model trained, 131,072 tokens a step. The steps after the first few are timed; then two more run under
torch's profiler. MFU: of the maker's bfloat16 rate, as in metrics.jsonl. Kernels are told apart by their names.
Takes about 40 s a setting on an H100, 20 s on two CPU cores with `--preset tiny --device cpu`.
"""

import argparse
import json
import re
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import train_world as world
from gpu_checks.speed import WIDE
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from train_runs import Contestant, TimedRun, ours, slug

SETTINGS: dict[str, dict[str, str]] = {
    "none": {},
    "compile": {"stage.kernels": '"compile"'},
    "liger": {"stage.kernels": '"liger"'},
    "compile, passes of 8,192": {"stage.kernels": '"compile"', "stage.micro_batch_tokens": "8192"},
    "compile, passes of 65,536": {"stage.kernels": '"compile"', "stage.micro_batch_tokens": "65536"},
}
TOKENS = {"short-vqa": 95, "captions": 125, "rationales": 480}
"""About so many tokens a row."""
KINDS: tuple[tuple[str, str], ...] = (
    ("optimizer", r"_update_kernel|multi_tensor"),
    ("softmax of the head", r"_slopes_kernel"),
    ("attention", r"flash|fmha|attention"),
    ("matrix products", r"gemm|nvjet|cutlass|xmma|splitK|cublas|gemv"),
    ("compiled pointwise", r"^triton_"),
    ("copies", r"Memcpy|Memset"),
    ("look-ups", r"embedding|index|gather|scatter"),
    ("eager pointwise", r""),
)


@dataclass
class Profiler:
    """Profiles two steps of a stage, counted from the start of the process that trains."""

    first: int
    profiler: Any = None
    seconds: float = 0.0
    made: int = 0

    def around(self, training_step: Any) -> Any:
        """`StageTrainer.training_step`, with the profiler on for the two steps."""

        def step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if self.made == self.first:
                _wait()
                activities = [ProfilerActivity.CPU]
                activities += [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
                self.profiler = profile(activities=activities)
                self.profiler.__enter__()
                self.seconds = time.perf_counter()
            if self.made == self.first + 2:
                _wait()
                self.seconds = (time.perf_counter() - self.seconds) / 2
                self.profiler.__exit__(None, None, None)
            self.made += 1
            return training_step(trainer, *args, **kwargs)

        return step

    def kernels(self) -> dict[str, tuple[float, int]]:
        """Seconds and launches of one step by the name of a kernel."""
        found: dict[str, tuple[float, int]] = {}
        for event in self.profiler.key_averages():
            if torch.cuda.is_available() and event.device_type != DeviceType.CUDA:
                continue
            micros = event.self_device_time_total if torch.cuda.is_available() else event.self_cpu_time_total
            found[event.key] = micros / 2e6, event.count // 2
        return found


def kind_of(name: str) -> str:
    return next(kind for kind, pattern in KINDS if re.search(pattern, name))


def measure(name: str, keys: dict[str, str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One stage: its rates, and the time of a step by kind of kernel."""
    from student.training.loop.trainer import StageTrainer

    profiler = Profiler(options.warm_up + options.steps)
    own = StageTrainer.training_step
    StageTrainer.training_step = profiler.around(own)  # type: ignore[method-assign]
    wide = WIDE if options.preset != "tiny" else {"stage.batch_tokens": "4096", "stage.micro_batch_tokens": "1024"}
    job = TimedRun(
        contestant=Contestant(name=f"{options.rows} {name}", keys=wide | keys),
        folder=folder,
        stage=options.stage,
        batch=None,
        warm_up=options.warm_up,
        dtype="bfloat16" if torch.cuda.is_available() else "float32",
        learning_rate=1e-4,
        threads=torch.get_num_threads(),
        workers=0,
    )
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        trained = ours(job)
    finally:
        StageTrainer.training_step = own  # type: ignore[method-assign]
    first, last = trained.ticks[options.warm_up - 1], trained.ticks[options.warm_up + options.steps - 1]
    lines = (folder / f"run-{slug(job.contestant.name)}" / "train" / "stage" / "metrics.jsonl").read_text()
    logs = [json.loads(line) for line in lines.splitlines()][options.warm_up : options.warm_up + options.steps]
    kernels = profiler.kernels()
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for kernel, (seconds, count) in kernels.items():
        kinds[kind_of(kernel)][0] += seconds
        kinds[kind_of(kernel)][1] += count
    return {
        "tokens_per_s": round((last.tokens - first.tokens) / (last.seconds - first.seconds)),
        "step_s": round((last.seconds - first.seconds) / options.steps, 4),
        "mfu": round(sum(log["mfu"] for log in logs) / len(logs), 4),
        "mfu_measured": round(sum(log["mfu_measured"] for log in logs) / len(logs), 4),
        "waiting": round(sum(log["waiting_share"] for log in logs) / len(logs), 4),
        "peak_gib": round(trained.peak_bytes / 2**30, 2),
        "device_s": round(sum(seconds for seconds, _ in kernels.values()), 4),
        "profiled_s": round(profiler.seconds, 4),
        "kinds": {
            kind: (round(seconds, 4), count)
            for kind, (seconds, count) in sorted(kinds.items(), key=lambda item: -item[1][0])
        },
        "kernels": sorted(
            ((round(seconds, 5), count, kernel[:110]) for kernel, (seconds, count) in kernels.items()), reverse=True
        )[: options.most],
        "losses": [tick.loss for tick in trained.ticks],
        "whole_s": round(trained.ticks[-1].seconds, 1),
    }


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["none", "compile"], metavar="SETTING")
    parser.add_argument("--rows", choices=TOKENS, default="rationales")
    parser.add_argument("--preset", choices=world.SHAPES, default="0.5b")
    parser.add_argument("--stage", type=int, choices=(1, 2), default=2, help="1: projector; 2: language model, too")
    parser.add_argument("--steps", type=int, default=6, help="timed ones")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--most", type=int, default=25, help="kernels to print")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--world", type=Path, help="a folder to keep student and rows in")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-profile.json"))
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --device cpu --preset tiny tries the script")
    shape = world.SHAPES[options.preset]
    tokens = 4096 if options.preset == "tiny" else 131_072
    rows = round((options.steps + options.warm_up + 3.5) * tokens / TOKENS[options.rows])
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = options.world or Path(made)
        if not (folder / "student").exists():
            world.write_student(folder, shape, "bfloat16" if torch.cuda.is_available() else "float32")
        world.write_data(folder, options.rows, shape, rows, seed=0, name="questions", images=256)
        for name in options.settings:
            try:
                found[name] = measure(name, SETTINGS[name], folder, options)
            except Exception as error:
                traceback.print_exc()
                found[name] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(found, indent=1))
            _print(name, found[name])
    raise SystemExit(any("failed" in result for result in found.values()))


def _print(name: str, result: dict[str, Any]) -> None:
    print(f"## {name}", flush=True)
    if "failed" in result:
        print(result["failed"], flush=True)
        return
    print(
        f"{result['tokens_per_s']:,} tokens/s, {result['step_s']} s a step, MFU {result['mfu']:.1%} of nominal, "
        f"{result['mfu_measured']:.1%} of the measured rate, waiting {result['waiting']:.1%}, peak "
        f"{result['peak_gib']} GiB; device {result['device_s']} s of {result['profiled_s']} s a profiled step; "
        f"whole {result['whole_s']} s",
        flush=True,
    )
    for kind, (seconds, count) in result["kinds"].items():
        print(f"  {seconds:8.4f} s {count:6} {kind}")
    for seconds, count, kernel in result["kernels"]:
        print(f"    {seconds:8.5f} s {count:6} {kernel}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
