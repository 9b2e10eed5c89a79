"""Whether everything that trains and writes traces on a GPU is right and fast on this one: a verdict a line.

    make gpu-check                                   # all checks, at most ten minutes
    python benchmarks/train/gpu_check.py --only attention   # some of them
    python benchmarks/train/gpu_check.py --dry-run          # the same on a CPU, small shapes, to test this script

Every check runs in a process of its own, so that one that fails, hangs or loses the device ends no other; those that
time nothing run `--jobs` at a time. What has not ended after `--minutes` is a problem. Correctness is held against
float32 on the same device. Speed: real tokens a second of the published shapes with random weights
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from gpu_checks.common import Ground, Wrong
from gpu_checks.operations import attention, card, checkpoint, head, optimizer
from gpu_checks.speed import SPEEDS, embedded, speed
from gpu_checks.stages import adapters, again, chosen, compiled, layers, packing, stages
from gpu_checks.student_classes import classes

Check = Callable[[Ground], tuple[str, dict[str, Any]]]
TOGETHER: tuple[Check, ...] = (chosen, layers, packing, adapters, stages, classes, compiled, attention, again)
"""Checks whose time says nothing; those that take long are first."""
ALONE: tuple[Check, ...] = (card, head, optimizer, checkpoint, embedded)
CHECKS: dict[str, list[tuple[str, Check]]] = {
    **{check.__name__: [(check.__name__, check)] for check in (*TOGETHER, *ALONE)},
    "speed": [(f"speed, {name}", partial(speed, name=name)) for name in SPEEDS],
}
"""By the name that `--only` takes: the lines of its verdicts, and what finds them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line: `state` is ok or problem."""

    check: str
    state: str
    text: str
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


def find(check: Check, ground: Ground, log: Path, answer: Connection) -> None:
    """Send state, text and details of one check, in a process of its own; what it prints goes to `log`."""
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        answer.send(("ok", *check(ground)))
    except Wrong as error:
        answer.send(("problem", str(error), {}))
    except Exception as error:
        traceback.print_exc()
        answer.send(("problem", f"{type(error).__name__}: {error}"[:400], {}))


def verdict(name: str, check: Check, ground: Ground, out: Path, until: float) -> Verdict:
    """The verdict of a check, also where its process dies, or has not ended at `until` (of time.monotonic)."""
    begun = time.monotonic()
    context = get_context("spawn")
    answers, answer = context.Pipe(duplex=False)
    log = out / f"{name.replace(', ', '-').replace(' ', '-')}.log"
    process = context.Process(target=find, args=(check, ground, log, answer))
    process.start()
    answer.close()
    try:
        state, text, details = "problem", f"did not end in time; see {log}", {}
        if answers.poll(max(0.0, until - begun)):
            state, text, details = answers.recv()
            process.join(10)
    except EOFError:
        text = f"the process died; see {log}"
    process.kill()
    process.join()
    return Verdict(name, state, text, round(time.monotonic() - begun, 1), details)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=", ".join(CHECKS))
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, small shapes")
    jobs = min(4, max(1, (os.cpu_count() or 1) // 3))
    parser.add_argument("--jobs", type=int, default=jobs, help="checks at a time, of those that time nothing")
    parser.add_argument("--minutes", type=float, help="time for all checks: 10, with --dry-run 60")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"), help="logs and verdicts.json")
    options = parser.parse_args()
    if not options.dry_run and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --dry-run goes through the same checks on a CPU")
    minutes = options.minutes if options.minutes is not None else (60 if options.dry_run else 10)
    until = time.monotonic() + 60 * minutes
    options.out.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []
    asked = options.only or list(CHECKS)
    side_by_side = [check.__name__ for check in TOGETHER if check.__name__ in asked]
    printing = Lock()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground("cpu" if options.dry_run else "cuda", Path(folder), options.dry_run)

        def run(name: str) -> None:
            for line, check in CHECKS[name]:
                found = verdict(line, check, ground, options.out, until)
                with printing:
                    verdicts.append(found)
                    print(f"{found.state:8} {found.check:36} {found.seconds:6.1f} s  {found.text}", flush=True)
                    (options.out / "verdicts.json").write_text(json.dumps(list(map(asdict, verdicts)), indent=2))

        with ThreadPoolExecutor(options.jobs) as threads:
            list(threads.map(run, side_by_side))
        for name in CHECKS:
            if name in asked and name not in side_by_side:
                run(name)
    raise SystemExit(any(each.state == "problem" for each in verdicts))


if __name__ == "__main__":
    main()
