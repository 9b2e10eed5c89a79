"""Whether everything that trains and writes traces on a GPU is right and fast on this one: a verdict a line.

    make gpu-check                                   # all checks, at most ten minutes
    python benchmarks/train/gpu_check.py --only attention   # some of them
    python benchmarks/train/gpu_check.py --dry-run          # the same on a CPU, small shapes, to test this script

Every check runs in a process of its own, so that one that fails, or loses the device, ends no other. Correctness is
held against float32 on the same device. Speed: real tokens a second of the published shapes with random weights
(benchmarks/train/train_world.py). Needs no network and no checkpoint. Does not cover more than one GPU, or servers.
"""

import argparse
import json
import os
import sys
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

CLOSE = {"float32": 2e-3, "bfloat16": 3e-2}
"""Largest relative difference of a loss; TF32 products and bfloat16 round that much."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line: `state` is ok, problem or skipped."""

    check: str
    state: str
    text: str
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


class Skip(Exception):
    """A check that this machine has nothing for; the text says what is missing."""


class Wrong(Exception):
    """A check that ran and found a difference."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where checks run: device, folder of the made students and data, sizes."""

    device: str
    folder: Path
    small: bool


# ---------------------------------------------------------------------------------------------------------- checks


def card(ground: Ground) -> tuple[str, dict[str, Any]]:
    """The card as planning knows it, its measured product rate and copy bandwidth."""
    from distill.hardware import gpu_of_device
    from student.models.flops import matmul_rate

    if ground.device == "cpu":
        return f"CPU, torch {torch.__version__}, {matmul_rate('cpu', torch.float32) / 1e9:,.0f} GFLOP/s", {}
    properties = torch.cuda.get_device_properties(0)
    known = gpu_of_device(properties.name, properties.total_memory / 2**30)
    rate = matmul_rate("cuda", torch.bfloat16)
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    copied = 2 * source.numel() / _seconds(lambda: target.copy_(source))
    if known is None:
        raise Wrong(f"{properties.name} is not in the table of distill/hardware.py")
    free, total = torch.cuda.mem_get_info()
    return (
        f"{properties.name}, torch {torch.__version__}: bf16 {rate / 1e12:,.0f} TFLOP/s "
        f"({rate / known.bf16:.0%} of nominal), {copied / 1e12:.2f} TB/s, "  # type: ignore[operator]
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
        {"rate": rate, "bandwidth": copied, "context_bytes": total - free},
    )


def attention(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Packed rows, forward and backward, against each row alone in float32; a changed row moves no other."""
    from student.models.attention import attend

    lengths = [5, 130, 1, 64, 300] if ground.small else [5, 700, 1, 64, 2048, 300]
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=ground.device)
    worst, module = 0.0, torch.nn.Module()
    for heads, key_heads, width in ((4, 4, 32), (14, 2, 64), (12, 2, 128)):
        module.num_key_value_groups = heads // key_heads  # type: ignore[assignment]
        generator = torch.Generator(ground.device).manual_seed(heads)

        def states(count: int, width: int = width, generator: torch.Generator = generator) -> torch.Tensor:
            made = torch.randn(1, count, sum(lengths), width, device=ground.device, generator=generator)
            return made.to(torch.bfloat16)

        query, key, value, slope = states(heads), states(key_heads), states(key_heads), states(heads).transpose(1, 2)
        results = []
        for dtype in (torch.bfloat16, torch.float32):
            leaves = [part.detach().to(dtype, copy=True).requires_grad_() for part in (query, key, value)]
            out, _ = attend(module, *leaves, None, cu_seq_lens_q=bounds, max_length_q=max(lengths))
            out.backward(slope.to(dtype))
            results.append([out.detach().float(), *(leaf.grad.float() for leaf in leaves)])  # type: ignore[union-attr]
        worst = max(worst, *(_difference(ours, theirs) for ours, theirs in zip(*results, strict=True)))
        with torch.no_grad():
            before, _ = attend(module, query, key, value, None, cu_seq_lens_q=bounds, max_length_q=max(lengths))
            value[:, :, : lengths[0] + lengths[1]] += 7
            after, _ = attend(module, query, key, value, None, cu_seq_lens_q=bounds, max_length_q=max(lengths))
        rest = slice(lengths[0] + lengths[1], None)
        if not torch.equal(before[:, rest], after[:, rest]):
            raise Wrong(f"a changed row moved its neighbours ({heads} heads, {key_heads} key heads)")
    if not worst < 2e-2:
        raise Wrong(f"packed rows differ from rows one by one by {worst:.1e} (relative)")
    return f"packed rows equal rows one by one within {worst:.1e}; a changed row moves the others by 0", {}


def head(ground: Ground) -> tuple[str, dict[str, Any]]:
    """The loss head against plain cross-entropy in float32, and its speed."""
    from student.loss.training_loss import score

    tokens, width, words = (64, 32, 500) if ground.small else (4096, 896, 151_936)
    layer = torch.nn.Linear(width, words, bias=False, device=ground.device, dtype=torch.bfloat16)
    hidden = torch.randn(tokens, width, device=ground.device).to(torch.bfloat16).requires_grad_()
    labels = torch.randint(words, (tokens,), device=ground.device)
    weights = torch.full((tokens,), 1 / tokens, device=ground.device)

    def ours() -> torch.Tensor:
        layer.weight.grad = hidden.grad = None
        loss = score(layer, hidden, labels, weights).loss
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    loss = ours()
    plain = hidden.detach().float().requires_grad_()
    weight = layer.weight.detach().float().requires_grad_()
    expected = torch.nn.functional.cross_entropy(plain @ weight.T, labels)
    expected.backward()
    differences = [
        _difference(loss, expected.detach()),
        _difference(hidden.grad, plain.grad),  # type: ignore[arg-type]
        _difference(layer.weight.grad, weight.grad),  # type: ignore[arg-type]
    ]
    if not max(differences) < 2e-2:
        raise Wrong(f"loss, state and weight gradients differ by {differences} (relative)")
    del plain, weight, expected
    seconds = _seconds(ours)
    flops = 6 * tokens * width * words
    return (
        f"equals plain cross-entropy within {max(differences):.1e}; {tokens} positions x {words:,} words in "
        f"{seconds * 1e3:.1f} ms, {flops / seconds / 1e12:.0f} TFLOP/s",
        {"seconds": seconds, "flops": flops},
    )


def optimizer(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Updates of bfloat16 weights against float64, and the time for the layers of the 0.5B decoder."""
    from student.training.optimizer.compensated_adamw import CompensatedAdamW

    weights = [torch.randn(64, 64, device=ground.device).to(torch.bfloat16).requires_grad_() for _ in range(3)]
    reference = [weight.detach().double().clone().requires_grad_() for weight in weights]
    ours, theirs = CompensatedAdamW(weights, lr=1e-4), torch.optim.AdamW(reference, lr=1e-4, weight_decay=0.0)
    for _ in range(50):
        for weight, twin in zip(weights, reference, strict=True):
            weight.grad = torch.randn(64, 64, device=ground.device).to(torch.bfloat16)
            twin.grad = weight.grad.double()
        ours.step()
        theirs.step()
    kept = [weight.double() + ours.state[weight]["lost"].double() for weight in weights]
    worst = max(float((left - right).detach().abs().max()) for left, right in zip(kept, reference, strict=True))
    if not worst < 1e-4:
        raise Wrong(f"after 50 steps of 1e-4 weights differ from float64 AdamW by {worst:.1e}")
    layers = 2 if ground.small else 24
    shapes = [(896, 896), (896, 128), (896, 128), (896, 896), (4864, 896), (4864, 896), (896, 4864), (896,), (896,)]
    many = [
        torch.zeros(shape, device=ground.device, dtype=torch.bfloat16).requires_grad_()
        for _ in range(layers)
        for shape in shapes
    ]
    for weight in many:
        weight.grad = torch.ones_like(weight)
    big = CompensatedAdamW(many, lr=1e-4)
    seconds = _seconds(big.step)
    numbers = sum(weight.numel() for weight in many)
    return (
        f"50 updates equal float64 AdamW within {worst:.1e}; {numbers / 1e6:,.0f} M weights in "
        f"{seconds * 1e3:.1f} ms ({26 * numbers / seconds / 1e12:.2f} TB/s)",
        {"seconds": seconds},
    )


def packing(ground: Ground) -> tuple[str, dict[str, Any]]:
    """The losses of eight steps, packed by every attention there is, against a line a row."""
    found: dict[str, list[float]] = {}
    for dtype in ("float32", "bfloat16") if ground.device == "cuda" else ("float32",):
        for name in ("sdpa, a line a row", "packed", "sdpa", "auto", "flash_attention_2", "flex_attention"):
            keys = {"student.attention": json.dumps(name.partition(",")[0])}
            if "row" in name:
                keys["stage.line_tokens"] = "1"
            try:
                found[f"{name} {dtype}"] = _train(ground, f"{name} {dtype}", dtype=dtype, keys=keys).losses
            except _missing() as error:
                found[f"{name} {dtype}"] = []
                print(f"{name}: {error}", file=sys.stderr)
    problems = []
    for name, losses in found.items():
        dtype = name.rpartition(" ")[2]
        expected = found[f"sdpa, a line a row {dtype}"]
        worst = max((abs(a / b - 1) for a, b in zip(losses, expected, strict=False)), default=0.0)
        if not worst < CLOSE[dtype]:
            problems.append(f"{name}: {worst:.1e}")
    if problems:
        raise Wrong(f"losses differ from unpacked rows: {'; '.join(problems)}")
    ran = [name for name, losses in found.items() if losses]
    return f"{len(ran)} ways give the losses of unpacked rows: {', '.join(ran)}", {"losses": found}


def stages(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Every kind of stage, by parts, adapters, kernels, checkpointing: it ends, learns, and frozen parts stay."""
    lora = "{ rank = 8, alpha = 16 }"
    kinds: dict[str, tuple[int, dict[str, str]]] = {
        "projector": (1, {}),
        "full": (2, {}),
        "lora": (2, {"stage.lora": lora}),
        "dora": (2, {"stage.lora": "{ rank = 8, alpha = 16, dora = true }"}),
        "checkpointing": (2, {"stage.gradient_checkpointing": "true"}),
        "lora, checkpointing": (2, {"stage.gradient_checkpointing": "true", "stage.lora": lora}),
        "compile": (2, {"stage.kernels": '"compile"'}),
        "lora, compile": (2, {"stage.kernels": '"compile"', "stage.lora": lora}),
        "compile, sdpa": (2, {"stage.kernels": '"compile"', "student.attention": '"sdpa"'}),
        "auto": (2, {"stage.kernels": '"auto"'}),
        "liger": (2, {"stage.kernels": '"liger"'}),
        "lora, liger": (2, {"stage.kernels": '"liger"', "stage.lora": lora}),
        "spans": (2, {"stage.loss": '{ answer = 2.0, normalise = "spans" }'}),
        "no image memory": (2, {"student.image_memory_gb": "0", "student.image_disk_gb": "0"}),
        "images on disk": (2, {"student.image_memory_gb": "0"}),
    }
    problems, ran, skipped = [], [], []
    for name, (stage, keys) in kinds.items():
        try:
            losses = _train(ground, f"stage {name}", stage=stage, keys=keys).losses
            if not losses[-1] < losses[0]:
                problems.append(f"{name}: the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
            ran.append(name)
        except _missing() as error:
            skipped.append(f"{name} ({str(error).splitlines()[0][:80]})")
        except Exception as error:
            traceback.print_exc()
            problems.append(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
    if problems:
        raise Wrong("; ".join(problems))
    return f"{len(ran)} kinds of stage end and learn{'; left out: ' + ', '.join(skipped) if skipped else ''}", {}


def compiled(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Compiled layers are whole graphs, and learn what layers that are not compiled learn."""
    from torch._dynamo.utils import counters

    plain = _train(ground, "compiled none").losses
    counters.clear()
    losses = _train(ground, "compiled compile", keys={"stage.kernels": '"compile"'}).losses
    breaks = sum(counters["graph_break"].values())
    if breaks:
        raise Wrong(f"{breaks} breaks of graphs: {'; '.join(counters['graph_break'])[:300]}")
    worst = max(abs(a / b - 1) for a, b in zip(losses, plain, strict=True))
    if not worst < CLOSE["bfloat16"]:
        raise Wrong(f"losses differ from layers that are not compiled by {worst:.1e}")
    return f"{counters['stats']['unique_graphs']} graphs, 0 breaks; losses equal within {worst:.1e}", {}


def checkpoint(ground: Ground) -> tuple[str, dict[str, Any]]:
    """A copy of weights and states does not change while the next step is made and the copy is written."""
    from functools import partial

    from safetensors.torch import load_file

    from student.training.checkpoints.checkpoint_files import OPTIMIZER, WEIGHTS, write_checkpoint
    from student.training.checkpoints.checkpoint_writer import CheckpointWriter
    from student.training.optimizer.compensated_adamw import CompensatedAdamW

    size, count = (256, 8) if ground.small else (2048, 128)
    made = [torch.randn(size, size, device=ground.device).to(torch.bfloat16) for _ in range(count)]
    named = [(str(number), torch.nn.Parameter(weight)) for number, weight in enumerate(made)]
    optimizer = CompensatedAdamW([weight for _, weight in named], lr=1e-2)
    writer, times = CheckpointWriter(), []
    for step in range(3):
        for _, weight in named:
            weight.grad = torch.randn_like(weight)
        optimizer.step()
        writer.wait()
        begun = time.perf_counter()
        weights, states = writer.weights(named), writer.optimizer(optimizer)
        times.append(time.perf_counter() - begun)
        expected = {name: weight.detach().cpu().clone() for name, weight in named}
        folder = ground.folder / "checkpoints" / f"checkpoint-{step}"
        begun = time.perf_counter()
        writer.start(partial(write_checkpoint, folder, {WEIGHTS: weights, OPTIMIZER: states}, []))
        optimizer.step()
        writer.wait()
        written = time.perf_counter() - begun
        saved = load_file(folder / WEIGHTS)
        if not all(torch.equal(saved[name], value) for name, value in expected.items()):
            raise Wrong("a checkpoint holds weights of the step after it")
    stored = sum(file.stat().st_size for file in folder.iterdir())
    return (
        f"{stored / 1e9:.2f} GB copied in {times[-1]:.2f} s ({stored / times[-1] / 1e9:.1f} GB/s; "
        f"{times[0]:.2f} s the first time) and written beside the next step in {written:.2f} s",
        {"copy_s": times, "write_s": written, "bytes": stored},
    )


def again(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Two runs of the same stage give the same losses."""
    first, second = (_train(ground, f"again {number}").losses for number in range(2))
    worst = max(abs(a - b) for a, b in zip(first, second, strict=True))
    if worst > 1e-3:
        raise Wrong(f"losses of two runs with one seed differ by up to {worst:.1e}")
    return f"two runs with one seed differ by {worst:.1e} in their losses", {}


def embedded(ground: Ground) -> tuple[str, dict[str, Any]]:
    """An embedded teacher writes traces on this device."""
    from distill.recipe import loading
    from teacher.generate import generate

    loaded = loading.load("tiny")
    begun = time.perf_counter()
    manifest = generate(loaded, ground.folder / "embedded", limit=20 if ground.small else 120)
    seconds = time.perf_counter() - begun
    complete = manifest.counts.get("complete", 0)
    if complete < 0.8 * manifest.counts["traces"]:
        raise Wrong(f"only {complete} of {manifest.counts['traces']} traces are complete")
    return f"{manifest.counts['traces']} traces, {complete} complete, in {seconds:.1f} s", {}


def speed(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Real tokens a second of the published 0.5B student, by stage and setting, and its MFU."""
    rows: dict[str, Any] = {}
    settings: dict[str, dict[str, str]] = {
        "default": {},
        "masked lines": {"student.attention": '"sdpa"'},
        "compile": {"stage.kernels": '"compile"'},
        "liger": {"stage.kernels": '"liger"'},
        "auto": {"stage.kernels": '"auto"'},
    }
    for stage in (2, 1):
        for name, keys in settings.items():
            try:
                result = _measure(ground, f"speed {stage} {name}", stage=stage, keys=keys)
            except _missing() as error:
                print(f"stage {stage}, {name}: left out, {error}", file=sys.stderr)
                continue
            except Exception as error:
                traceback.print_exc()
                rows[f"stage {stage}, {name}"] = (
                    f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
                )
                continue
            rows[f"stage {stage}, {name}"] = result
            print(f"stage {stage}, {name}: {rows[f'stage {stage}, {name}']}", file=sys.stderr, flush=True)
    best = {
        stage: max(
            (r for n, r in rows.items() if n.startswith(f"stage {stage}") and isinstance(r, dict)),
            key=lambda r: r["tokens_per_s"],
            default=None,
        )
        for stage in (1, 2)
    }
    failed = [f"{name}: {row}" for name, row in rows.items() if isinstance(row, str)]
    text = "; ".join(
        f"stage {stage}: {row['tokens_per_s']:,} tokens/s, MFU {row['mfu']:.0%}" for stage, row in best.items() if row
    )
    if failed:
        raise Wrong(f"{text}; failed: {'; '.join(failed)}")
    return text, rows


# --------------------------------------------------------------------------------------------------------- helpers


def _missing() -> tuple[type[Exception], ...]:
    from distill.errors import ModelError

    return (ModelError,)


@dataclass(frozen=True, slots=True)
class Run:
    losses: list[float]
    peak_bytes: int


def _world(ground: Ground, preset: str, dtype: str, rows: int) -> Path:
    """A folder with a student of that shape and rows to train on, made once."""
    import train_world as world

    shape = world.SHAPES[preset]
    folder = ground.folder / f"{preset}-{dtype}-{rows}"
    if not folder.exists():
        world.write_student(folder, shape, dtype)
        world.write_data(folder, "short-vqa", shape, rows, seed=0, name="questions", pictures=256)
        world.write_data(folder, "short-vqa", shape, 8, seed=-1, name="held_out")
    return folder


def _job(
    ground: Ground,
    name: str,
    *,
    preset: str,
    dtype: str,
    stage: int,
    keys: dict[str, str],
    rows: int,
    batch: int,
    warm_up: int,
) -> Any:
    from train_runs import Contestant, Job

    return Job(
        contestant=Contestant(name=name, keys=keys),
        folder=_world(ground, preset, dtype, rows),
        stage=stage,
        batch=batch,
        warm_up=warm_up,
        dtype=dtype,
        learning_rate=1e-3,
        threads=torch.get_num_threads(),
        workers=0,
    )


def _train(
    ground: Ground, name: str, *, dtype: str | None = None, stage: int = 2, keys: dict[str, str] | None = None
) -> Run:
    """Eight steps of the tiny shape."""
    from train_runs import ours

    dtype = dtype or ("bfloat16" if ground.device == "cuda" else "float32")
    job = _job(ground, name, preset="tiny", dtype=dtype, stage=stage, keys=keys or {}, rows=128, batch=16, warm_up=1)
    torch.manual_seed(0)
    trained = ours(job)
    return Run(losses=[tick.loss for tick in trained.ticks], peak_bytes=trained.peak_bytes)


def _measure(ground: Ground, name: str, *, stage: int, keys: dict[str, str]) -> dict[str, float]:
    """Rates of the steps after the first few, and the most memory held."""
    from train_runs import ours, slug

    preset, dtype, rows, batch, warm_up = (
        ("tiny", "float32", 96, 16, 2) if ground.small else ("0.5b", "bfloat16", 2048, 128, 6)
    )
    job = _job(
        ground, name, preset=preset, dtype=dtype, stage=stage, keys=keys, rows=rows, batch=batch, warm_up=warm_up
    )
    trained = ours(job)
    first, last = trained.ticks[warm_up - 1], trained.ticks[-1]
    seconds, steps = last.seconds - first.seconds, len(trained.ticks) - warm_up
    lines = (job.folder / f"run-{slug(name)}" / "train" / "stage" / "metrics.jsonl").read_text().splitlines()
    logs = [json.loads(line) for line in lines][warm_up:]
    return {
        "tokens_per_s": round((last.tokens - first.tokens) / seconds),
        "step_s": round(seconds / steps, 4),
        "mfu": round(sum(log["mfu"] for log in logs) / len(logs), 4),
        "waiting": round(sum(log["waiting_share"] for log in logs) / len(logs), 4),
        "peak_gib": round(trained.peak_bytes / 2**30, 2),
        "planned_gib": round(_planned(trained, stage, keys, first, last, steps) / 2**30, 2),
        "whole_s": round(last.seconds, 1),
    }


def _planned(trained: Any, stage: int, keys: dict[str, str], first: Any, last: Any, steps: int) -> float:
    """What `distill plan` says such a step needs, all of it in one pass."""
    from train_runs import TRAINED

    from distill.recipe.stages import Stage
    from student.models.siq_vl import parts
    from student.training.cost import memory

    tokens = (last.tokens - first.tokens) / steps
    section = Stage(name="stage", data="questions", train=TRAINED[stage])
    found = memory.of_stage(trained.model, parts(trained.model), section)
    return found.needed(tokens=tokens, patches=100 * 196, checkpointing=False)


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def _seconds(function: Callable[[], Any], repeats: int = 10) -> float:
    """The median of some calls after three to warm up."""
    times = []
    for _ in range(3 + repeats):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return sorted(times[3:])[repeats // 2]


_ALL = (card, attention, head, optimizer, packing, stages, compiled, checkpoint, again, embedded, speed)
CHECKS: dict[str, Callable[[Ground], tuple[str, dict[str, Any]]]] = {check.__name__: check for check in _ALL}


def verdict(name: str, ground: Ground, log: Path) -> Verdict:
    """One check, in this process; what it prints goes to `log`."""
    begun = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        text, details = CHECKS[name](ground)
        state = "ok"
    except Skip as error:
        state, text, details = "skipped", str(error), {}
    except Wrong as error:
        state, text, details = "problem", str(error), {}
    except Exception as error:
        traceback.print_exc()
        state, text, details = "problem", f"{type(error).__name__}: {error}"[:400], {}
    return Verdict(name, state, text, round(time.perf_counter() - begun, 1), details)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
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
