"""Checks that train: losses by attention and kind of stage, whole graphs, the same result twice."""

import json
import sys
import traceback
from typing import Any

from gpu_checks.common import Ground, Wrong
from gpu_checks.training_runs import MISSING, train_tiny

CLOSE = {"float32": 2e-3, "bfloat16": 3e-2}
"""Largest relative difference of a loss; TF32 products and bfloat16 round that much."""
LORA = "{ rank = 8, alpha = 16 }"


def packing(ground: Ground) -> tuple[str, dict[str, Any]]:
    """The losses of eight steps, packed by every attention there is, against a line a row."""
    found: dict[str, list[float]] = {}
    for dtype in ("float32", "bfloat16") if ground.device == "cuda" else ("float32",):
        for name in ("sdpa, a line a row", "packed", "sdpa", "auto", "flash_attention_2", "flex_attention"):
            keys = {"student.attention": json.dumps(name.partition(",")[0])}
            if "row" in name:
                keys["stage.line_tokens"] = "1"
            try:
                found[f"{name} {dtype}"] = train_tiny(ground, f"{name} {dtype}", dtype=dtype, keys=keys).losses
            except MISSING as error:
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


def _kinds(ground: Ground, kinds: dict[str, tuple[int, dict[str, str]]]) -> tuple[str, dict[str, Any]]:
    """Stages by their number and keys: each ends and learns."""
    problems, ran, skipped = [], [], []
    for name, (stage, keys) in kinds.items():
        try:
            losses = train_tiny(ground, f"stage {name}", stage=stage, keys=keys).losses
            if not losses[-1] < losses[0]:
                problems.append(f"{name}: the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
            ran.append(name)
            print(f"{name}: {losses}", file=sys.stderr, flush=True)
        except MISSING as error:
            skipped.append(f"{name} ({str(error).splitlines()[0][:80]})")
        except Exception as error:
            traceback.print_exc()
            problems.append(f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
    if problems:
        raise Wrong("; ".join(problems))
    return f"end and learn: {', '.join(ran)}{'; left out: ' + ', '.join(skipped) if skipped else ''}", {}


def stages(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Stages by what they train and how they weigh tokens."""
    kinds = {
        "projector": (1, {}),
        "full": (2, {}),
        "checkpointing": (2, {"stage.gradient_checkpointing": "true"}),
        "spans": (2, {"stage.loss": '{ answer = 2.0, normalise = "spans" }'}),
        "no image memory": (2, {"student.image_memory_gb": "0", "student.image_disk_gb": "0"}),
        "images on disk": (2, {"student.image_memory_gb": "0"}),
    }
    return _kinds(ground, kinds)


def adapters(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Stages that train adapters."""
    kinds = {
        "lora": (3, {"stage.lora": LORA}),
        "dora": (3, {"stage.lora": "{ rank = 8, alpha = 16, dora = true }"}),
        "dropout": (3, {"stage.lora": "{ rank = 8, alpha = 16, dropout = 0.05 }"}),
        "lora, checkpointing": (3, {"stage.gradient_checkpointing": "true", "stage.lora": LORA}),
        "lora, liger": (3, {"stage.kernels": '"liger"', "stage.lora": LORA}),
        "lora and projector": (2, {"stage.lora": LORA}),
    }
    return _kinds(ground, kinds)


def layers(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Stages with faster layers."""
    kinds = {
        "liger": (2, {"stage.kernels": '"liger"'}),
        "compile, sdpa": (2, {"stage.kernels": '"compile"', "student.attention": '"sdpa"'}),
        "lora, compile": (3, {"stage.kernels": '"compile"', "stage.lora": LORA}),
    }
    return _kinds(ground, kinds)


def chosen(ground: Ground) -> tuple[str, dict[str, Any]]:
    """A stage that chooses the fastest layers by a trial."""
    return _kinds(ground, {"auto": (2, {"stage.kernels": '"auto"'})})


def compiled(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Compiled layers are whole graphs, and learn what layers that are not compiled learn."""
    from torch._dynamo.utils import counters

    plain = train_tiny(ground, "compiled none").losses
    counters.clear()
    losses = train_tiny(ground, "compiled compile", keys={"stage.kernels": '"compile"'}).losses
    breaks = sum(counters["graph_break"].values())
    if breaks:
        raise Wrong(f"{breaks} breaks of graphs: {'; '.join(counters['graph_break'])[:300]}")
    worst = max(abs(a / b - 1) for a, b in zip(losses, plain, strict=True))
    if not worst < CLOSE["bfloat16"]:
        raise Wrong(f"losses differ from layers that are not compiled by {worst:.1e}")
    return f"{counters['stats']['unique_graphs']} graphs, 0 breaks; losses equal within {worst:.1e}", {}


def again(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Two runs of the same stage give the same losses."""
    first, second = (train_tiny(ground, f"again {number}").losses for number in range(2))
    worst = max(abs(a - b) for a, b in zip(first, second, strict=True))
    if worst > 1e-3:
        raise Wrong(f"losses of two runs with one seed differ by up to {worst:.1e}")
    return f"two runs with one seed differ by {worst:.1e} in their losses", {}
