"""`distill train` beside TRL's own way to train the same student on the same rows: real tokens/s, memory, loss.

    python benchmarks/train/train.py [--preset cpu] [--data short-vqa captions] [--stage 2] [--steps 20] [--rounds 3]
    python benchmarks/train/train.py --ladder                      # what each layer of speed is worth
    python benchmarks/train/train.py --span-weights                # what weighing the parts of a response costs
    python benchmarks/train/train.py --preset 0.5b --batch 64      # on a GPU: bfloat16, CUDA's memory

Contestants, each run in a process of its own, taking turns round by round:

- trl: SFTTrainer as it comes. Columns `images` and `messages`, its collator (every image is decoded and processed
  in the batch that holds it), padding, gradient checkpointing, loss on the assistant alone.
- trl tuned: checkpointing off, rows of like length in a batch, workers with --workers.
- ours: a recipe and `student.train.train`.

Equal for all: start weights, frozen parts, rows, rows a step, steps, optimizer, learning rate, dtype, threads. Every
row is trained on once; trl and ours take the rows in the same order. Every round has rows of its own, made from its
number. Rate: real tokens (padding is none) of the steps after the first few, by the time those steps took, waiting
for data included. CPU time counts the process alone and says more than seconds where others use the machine too.
`whole` is everything up to the last step, preparing the rows included, which ours does before the first step; saving
is left out for all. MFU: the FLOPs that learning needs, checkpointing's second pass left out, as a share of what a
square matrix product reaches here, on a CPU by CPU time. Loss: nats a token of the responses to held-out questions,
by one function. Memory: peak of the process, or of the GPU. Not measured: more than one device.
Takes 3 min with `--data short-vqa --steps 4 --warm-up 1 --rounds 1 --threads 1` (two shared cores).
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import orjson
import torch
import train_world as world
from train_runs import TRAINED, Contestant, Result, TimedRun, measure

HELD_OUT = 64
Found = TypeVar("Found")

PEERS = (
    Contestant(name="trl", trl=True),
    Contestant(name="trl tuned", trl=True, tuned=True),
    Contestant(name="ours"),
)
PLAIN = Contestant(name="plain loss", traces=True)
WEIGHED = {"stage.loss": '{ rationale = 0.5, answer = 2.0, format = 1.0, normalise = "spans" }'}
SPAN_WEIGHTS = (PLAIN, replace(PLAIN, name="spans weighed", keys=WEIGHED))


def ladder(dtype: str) -> tuple[Contestant, ...]:
    """Every rung keeps what the rungs before it brought."""
    small = {
        "stage.gradient_checkpointing": "true",
        "student.attention": '"sdpa"',
        "stage.micro_batch_tokens": "512",
    }
    large = small | {"stage.micro_batch_tokens": "8192"}
    unmasked = large | {"student.attention": '"auto"' if torch.cuda.is_available() else '"packed"'}
    kept = unmasked | {"stage.gradient_checkpointing": "false"}
    rungs = (
        Contestant(name="trl, float32 weights", trl=True, dtype="float32"),
        Contestant(name=f"trl, {dtype} weights", trl=True),
        Contestant(name="ours: rows packed, tower without a graph, head on labels", keys=small),
        Contestant(name="passes of 8,192 instead of 512 tokens", keys=large),
        Contestant(name="attention of each row instead of a mask", keys=unmasked),
        Contestant(name="no checkpointing", keys=kept),
        Contestant(name="layers compiled", keys=kept | {"stage.kernels": '"compile"'}),
    )
    return rungs[1:] if dtype == "float32" else rungs


def main() -> None:
    options = arguments()
    dtype = options.dtype or ("bfloat16" if torch.cuda.is_available() else "float32")
    contestants = SPAN_WEIGHTS if options.span_weights else ladder(dtype) if options.ladder else PEERS
    if options.only:
        contestants = tuple(contestant for contestant in contestants if contestant.name in options.only)
    # Torch's threads spin while they wait, which is what they share the cores for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    found: dict[str, list[list[Result]]] = {}
    with tempfile.TemporaryDirectory() as name:
        shape = world.SHAPES[options.preset]
        student = apart(world.write_student, Path(name), shape, dtype)
        for kind in options.data:
            found[kind] = []
            for number in range(options.rounds):
                folder = Path(name) / f"{kind}-{number}"
                world.write_data(folder, kind, shape, HELD_OUT, seed=-1, name="held_out")
                # Steps are compared one by one where one percent counts, so all rounds have the same.
                seed = 0 if options.span_weights else number
                world.write_data(folder, kind, shape, options.batch * options.steps, seed=seed, name="questions")
                (folder / "student").symlink_to(student)
                job = TimedRun(
                    contestant=contestants[0],
                    folder=folder,
                    stage=options.stage,
                    batch=options.batch,
                    warm_up=options.warm_up,
                    dtype=dtype,
                    learning_rate=options.learning_rate,
                    threads=options.threads,
                    workers=options.workers,
                )
                # Who goes first takes turns, too.
                turns = contestants[number % len(contestants) :] + contestants[: number % len(contestants)]
                results = {turn.name: apart(measure, replace(job, contestant=turn)) for turn in turns}
                found[kind].append([results[contestant.name] for contestant in contestants])
                totals = {result.name: result.tokens for result in found[kind][-1]}
                if len(set(totals.values())) > 1:
                    raise SystemExit(f"not the same rows were trained on; tokens: {totals}")
                if options.json:
                    options.json.write_bytes(orjson.dumps(report(options, dtype, found), option=orjson.OPT_INDENT_2))
            show(kind, found[kind])
            if options.span_weights:
                show_least(found[kind])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=world.SHAPES, default="cpu")
    parser.add_argument("--data", nargs="+", choices=world.KINDS, default=list(world.KINDS))
    parser.add_argument("--stage", type=int, choices=TRAINED, default=2, help="1: projector; 2: language model too")
    parser.add_argument("--batch", type=int, default=16, help="rows a step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=4, help="first steps that are not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), help="default: bfloat16 on a GPU")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--workers", type=int, default=0, help="that decode pictures for trl tuned")
    parser.add_argument("--ladder", action="store_true")
    parser.add_argument("--span-weights", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these contestants alone")
    parser.add_argument("--json", type=Path, help="write everything there, after every round")
    return parser.parse_args()


def apart(function: Callable[..., Found], *values: Any) -> Found:
    """What a function gives back in a process of its own, which says nothing."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(quietly, function, *values).result()


def quietly(function: Callable[..., Found], *values: Any) -> Found:
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        return function(*values)


def show(kind: str, rounds: Sequence[Sequence[Result]]) -> None:
    """Medians over the rounds; ratios are medians of ratios within a round."""
    rate = max(result.matmul_flops for results in rounds for result in results)
    print(f"\n{kind}, {len(rounds)} round(s); matrix product {rate / 1e9:,.0f} GFLOP/s")
    print(
        "| | tokens/s | last / this | tokens/CPU s | last / this | step, s | whole, s | padding | MFU | memory, GiB "
        "| held-out loss |"
    )
    print("|" + " --- |" * 11)
    last = [results[-1] for results in rounds]
    for results in zip(*rounds, strict=True):
        figures = [results[0].name]
        for what in ("tokens_per_s", "tokens_per_cpu_s"):
            ratios = [getattr(mine, what) / getattr(its, what) for mine, its in zip(last, results, strict=True)]
            middle = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            figures += [f"{median(results, what):,.0f}", middle]
        figures += [
            f"{median(results, 'step_s'):.3f}",
            f"{median(results, 'whole_s'):.1f}",
            f"{median(results, 'padding_share'):.1%}",
            f"{median(results, 'flops') / rate:.1%}",
            f"{median(results, 'peak_gib'):.2f}",
            ", ".join(f"{result.loss:.4f}" for result in results),
        ]
        print(f"| {' | '.join(figures)} |", flush=True)


def show_least(rounds: Sequence[Sequence[Result]]) -> None:
    """Every step's least CPU time over the rounds, summed: what is left when others disturb."""
    first, *others = [
        (results[0].name, sum(map(min, zip(*(result.steps_cpu_s for result in results), strict=True))))
        for results in zip(*rounds, strict=True)
    ]
    for name, cpu_s in others:
        print(f"least CPU time: {first[0]} {first[1]:.3f} s, {name} {cpu_s:.3f} s: {cpu_s / first[1] - 1:+.2%}")


def median(results: Sequence[Result], what: str) -> float:
    return statistics.median(getattr(result, what) for result in results)


def report(
    options: argparse.Namespace, dtype: str, found: Mapping[str, Sequence[Sequence[Result]]]
) -> dict[str, Any]:
    from distill.artifacts.manifest import versions

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "device": device,
        "dtype": dtype,
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()},
        "versions": versions("torch", "transformers", "trl", "accelerate"),
        "rounds": {
            kind: [[asdict(result) for result in results] for results in rounds] for kind, rounds in found.items()
        },
    }


if __name__ == "__main__":
    main()
