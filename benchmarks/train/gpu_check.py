"""Whether everything that trains and writes traces on a GPU is right and fast on this one: a verdict a line.

    make gpu-check                                   # all checks, at most ten minutes
    python benchmarks/train/gpu_check.py --only attention   # some of them
    python benchmarks/train/gpu_check.py --dry-run          # the same on a CPU, small shapes, to test this script

Every check runs in a process of its own, so that one that fails, or loses the device, ends no other. Correctness is
held against float32 on the same device. Speed: real tokens a second of the published shapes with random weights
(benchmarks/train/train_world.py). Needs no network and no checkpoint. Does not cover more than one GPU, or servers.
Takes at most ten minutes on a GPU; `--dry-run` on two shared cores takes more than 7 min.
"""

import argparse
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from gpu_checks.common import Ground, Wrong
from gpu_checks.operations import attention, card, checkpoint, head, optimizer
from gpu_checks.speed import embedded, speed
from gpu_checks.stages import again, compiled, packing, stages
from gpu_checks.student_classes import classes

_ALL = (card, attention, head, optimizer, classes, packing, stages, compiled, checkpoint, again, embedded, speed)
CHECKS: dict[str, Callable[[Ground], tuple[str, dict[str, Any]]]] = {check.__name__: check for check in _ALL}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, small shapes")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"), help="logs and verdicts.json")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --dry-run goes through the same checks on a CPU")
    options.out.mkdir(parents=True, exist_ok=True)
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground("cpu" if options.dry_run else "cuda", Path(folder), options.dry_run)
        for name in options.only or CHECKS:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                try:
                    found = pool.submit(verdict, name, ground, options.out / f"{name}.log").result()
                except BrokenProcessPool:
                    found = Verdict(name, "problem", "the process died; see its log")
            verdicts.append(found)
            print(f"{found.state:8} {name:10} {found.seconds:6.1f} s  {found.text}", flush=True)
            (options.out / "verdicts.json").write_text(json.dumps([asdict(each) for each in verdicts], indent=2))
    raise SystemExit(any(each.state == "problem" for each in verdicts))


if __name__ == "__main__":
    main()
