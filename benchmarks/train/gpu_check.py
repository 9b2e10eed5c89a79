"""Whether everything that trains and writes traces on a GPU is right and fast on this one: a verdict a line.

    make gpu-check                                   # all checks, at most ten minutes
    python benchmarks/train/gpu_check.py --only attention   # some of them
    python benchmarks/train/gpu_check.py --dry-run          # the same on a CPU, small shapes, to test this script

Every check runs in a process of its own, so that one that fails, or loses the device, ends no other; those that time
nothing run `--jobs` at a time. Correctness is held against float32 on the same device. Speed: real tokens a second of
the published shapes with random weights (benchmarks/train/train_world.py). Needs no network and no checkpoint. Does
not cover more than one GPU, or servers.
Takes at most ten minutes on a GPU; `--dry-run` on two shared cores takes more than 7 min.
"""

import argparse
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from gpu_checks.common import Ground, Wrong
from gpu_checks.operations import attention, card, checkpoint, head, optimizer
from gpu_checks.speed import embedded, speed
from gpu_checks.stages import adapters, again, compiled, layers, packing, stages
from gpu_checks.student_classes import classes

Check = Callable[[Ground], tuple[str, dict[str, Any]]]
TOGETHER: tuple[Check, ...] = (layers, packing, adapters, stages, classes, compiled, attention, again)
"""Checks whose time says nothing; those that take long are first."""
ALONE: tuple[Check, ...] = (card, head, optimizer, checkpoint, embedded, speed)
CHECKS = {check.__name__: check for check in (*TOGETHER, *ALONE)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line: `state` is ok or problem."""

    check: str
    state: str
    text: str
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


def verdict(name: str, ground: Ground, log: Path) -> Verdict:
    """One check, in this process; what it prints goes to `log`."""
    begun = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        text, details = CHECKS[name](ground)
        state = "ok"
    except Wrong as error:
        state, text, details = "problem", str(error), {}
    except Exception as error:
        traceback.print_exc()
        state, text, details = "problem", f"{type(error).__name__}: {error}"[:400], {}
    return Verdict(name, state, text, round(time.perf_counter() - begun, 1), details)


def in_a_process(name: str, ground: Ground, out: Path) -> Verdict:
    """The verdict of a check, also where its process dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(verdict, name, ground, out / f"{name}.log").result()
        except BrokenProcessPool:
            return Verdict(name, "problem", "the process died; see its log")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, small shapes")
    jobs = min(4, max(1, (os.cpu_count() or 1) // 3))
    parser.add_argument("--jobs", type=int, default=jobs, help="checks at a time, of those that time nothing")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"), help="logs and verdicts.json")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --dry-run goes through the same checks on a CPU")
    options.out.mkdir(parents=True, exist_ok=True)
    verdicts = []

    def note(found: Verdict) -> None:
        verdicts.append(found)
        print(f"{found.state:8} {found.check:10} {found.seconds:6.1f} s  {found.text}", flush=True)
        (options.out / "verdicts.json").write_text(json.dumps([asdict(each) for each in verdicts], indent=2))

    with tempfile.TemporaryDirectory() as folder:
        ground = Ground("cpu" if options.dry_run else "cuda", Path(folder), options.dry_run)
        asked = [check.__name__ for check in TOGETHER if check.__name__ in (options.only or CHECKS)]
        with ThreadPoolExecutor(options.jobs) as threads:
            done = [threads.submit(in_a_process, name, ground, options.out) for name in asked]
            for future in as_completed(done):
                note(future.result())
        for check in ALONE:
            if check.__name__ in (options.only or CHECKS):
                note(in_a_process(check.__name__, ground, options.out))
    raise SystemExit(any(each.state == "problem" for each in verdicts))


if __name__ == "__main__":
    main()
