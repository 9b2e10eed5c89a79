"""`distill train` beside LLaMA-Factory and ms-swift: the same loss step by step? Seconds, CPU, memory.

    python benchmarks/train/peers.py --environments .peers [--preset cpu] [--steps 20] [--rounds 3] [--threads 1]

Each peer is called by its command line alone, in an environment of its own with the torch of this one (for a machine
without GPU: torch, torchvision and torchaudio of the same build for CPUs), and is left out where that is missing:

    python3.11 -m venv .peers/llamafactory; .peers/llamafactory/bin/pip install torch torchvision torchaudio
    .peers/llamafactory/bin/pip install llamafactory
    python3.11 -m venv .peers/swift; .peers/swift/bin/pip install torch torchvision
    .peers/swift/bin/pip install ms-swift "qwen_vl_utils>=0.0.14"

Equal for all: a random Qwen3-VL, rows with one image, question and trace (the peers read our own export of them),
tower and projector frozen, float32, AdamW, a constant learning rate, threads. Ways:

- as it comes: steps of --batch rows in the order of the data. The peers checkpoint gradients, which is their default.
- kept: the same, without checkpointing of gradients. Ours decides this itself; on a CPU it keeps.
- packed: rows fill steps of --packed-tokens tokens, in an order of each tool's own; LLaMA-Factory: `neat_packing`,
  without checkpointing. ms-swift packs with flash attention only, so it has no such line on a CPU.

Losses: the log of each tool against a loop of plain torch whose labels are the reply and its end token, or the line
feed after it, too. Cost of a step: mean from the first step in the tool's own log to the last one, without start,
preparation of the rows (ms-swift does it in the steps) and saving; `whole` is the command from start to end. Tools
take turns; ratios are medians of ratios within a round, with their range. Memory: the largest sum over all processes
of a command, looked at twice a second. Other work on the machine changes seconds more than CPU seconds.
Takes 20 min (two shared cores); 2 min with `--preset tiny --steps 4 --rounds 1` where no peer is installed.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import peer_world
import plain_loop
import torch
import train_world as world
from trainers import Trainer, TrainingJob, changed_weights, read_losses, trainers
from watched import Watched, watch


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    spent: Watched
    losses: list[float]
    changed: list[str]
    """The weights that training changed."""


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    environment = {"OMP_NUM_THREADS": str(options.threads), "OMP_WAIT_POLICY": "PASSIVE"}
    everyone = trainers(options.environments.absolute())
    if options.only:
        everyone = [trainer for trainer in everyone if trainer.name in options.only]
    found: dict[str, list[PeerRun]] = {trainer.name: [] for trainer in everyone}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, rate = folder / "rows", options.learning_rate
        student = peer_world.write_student(folder / "student", world.SHAPES[options.preset])
        peer_world.write_rows(rows, world.SHAPES[options.preset], options.batch * options.steps)
        peer_world.export(rows)
        must = [
            plain_loop.losses(student, rows, options.batch, options.steps, rate, newline=newline)
            for newline in (False, True)
        ]
        for number in range(options.rounds):
            turn = number % max(len(everyone), 1)
            for trainer in everyone[turn:] + everyone[:turn]:
                out = folder / f"{number}-{everyone.index(trainer)}"
                out.mkdir()
                job = TrainingJob(
                    student=student,
                    rows=rows,
                    out=out,
                    batch=options.batch,
                    packed_tokens=options.packed_tokens,
                    rate=rate,
                )
                call, losses = trainer.call(job), partial(read_losses, trainer.tool, out)
                spent = watch(
                    call.command, out / "log", {**environment, **call.environment}, lambda read=losses: len(read())
                )
                found[trainer.name].append(
                    PeerRun(spent=spent, losses=losses(), changed=changed_weights(student, out))
                )
                print(trainer.name, spent, file=sys.stderr, flush=True)
    show_losses(everyone, found, must)
    show_costs(everyone, found)
    print(f"\nWhole benchmark: {time.monotonic() - began:.0f} s.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=Path(".peers"))
    parser.add_argument("--preset", choices=world.SHAPES, default="cpu", help="widths of the student")
    parser.add_argument("--batch", type=int, default=8, help="rows of a step")
    parser.add_argument("--packed-tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these lines of the table alone")
    return parser.parse_args()


def show_losses(
    everyone: Sequence[Trainer], found: Mapping[str, Sequence[PeerRun]], must: Sequence[Sequence[float]]
) -> None:
    """The largest difference of any step of any round from the loop of plain torch with either labels."""
    print(f"\n### Loss of {len(must[0])} steps against plain torch, largest difference\n")
    labels = "labels: reply, end token | and the line feed after it"
    print(f"| trainer | {labels} | first loss | last loss | changed weights | below visual |")
    print(f"|{'---|' * 7}")
    for trainer in everyone:
        if trainer.packed:
            continue
        runs = found[trainer.name]
        apart = [
            max(abs(one - other) for run in runs for one, other in zip(run.losses, plain, strict=True))
            for plain in must
        ]
        cells = [f"{largest:.1e}" for largest in apart]
        cells += [f"{runs[0].losses[step]:.4f}" for step in (0, -1)]
        cells += [f"{len(runs[0].changed)}", f"{sum('visual' in name for name in runs[0].changed)}"]
        print(f"| {trainer.name} | {' | '.join(cells)} |")


def show_costs(everyone: Sequence[Trainer], found: Mapping[str, Sequence[PeerRun]]) -> None:
    """Medians over the rounds."""
    print("\n### 100 steps, and the whole command\n")
    costs = "s | CPU s | times ours: s | CPU s"
    print(f"| trainer | steps | 100 steps: {costs} | whole: {costs} | peak MB |")
    print(f"|{'---|' * 11}")
    for trainer in everyone:
        runs = found[trainer.name]
        ours = found.get("ours, packed" if trainer.packed else "ours") or runs
        cells = [f"{len(runs[0].losses)}"]
        for scale, names in ((100, ("step_s", "step_cpu_s")), (1, ("wall_s", "cpu_s"))):
            times = {name: [scale * getattr(run.spent, name) for run in runs] for name in names}
            base = {name: [scale * getattr(run.spent, name) for run in ours] for name in names}
            cells += [f"{statistics.median(times[name]):.1f}" for name in names]
            cells += [spread([its / our for its, our in zip(times[name], base[name], strict=True)]) for name in names]
        cells.append(f"{statistics.median(run.spent.peak_mb for run in runs):.0f}")
        print(f"| {trainer.name} | {' | '.join(cells)} |")


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
