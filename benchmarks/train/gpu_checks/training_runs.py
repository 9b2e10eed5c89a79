"""Short training runs of made students, for the checks that train."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_checks.common import Ground

from distill.errors import ModelError

MISSING = (ModelError,)
"""Errors that say that this machine lacks a library for a setting."""


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
    from train_runs import Contestant, TimedRun

    return TimedRun(
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


def train_tiny(
    ground: Ground, name: str, *, dtype: str | None = None, stage: int = 2, keys: dict[str, str] | None = None
) -> Run:
    """Eight steps of the tiny shape."""
    from train_runs import ours

    dtype = dtype or ("bfloat16" if ground.device == "cuda" else "float32")
    job = _job(ground, name, preset="tiny", dtype=dtype, stage=stage, keys=keys or {}, rows=128, batch=16, warm_up=1)
    torch.manual_seed(0)
    trained = ours(job)
    return Run(losses=[tick.loss for tick in trained.ticks], peak_bytes=trained.peak_bytes)


def measure_speed(ground: Ground, name: str, *, stage: int, keys: dict[str, str]) -> dict[str, float]:
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

    from distill.recipe.sections.stages import Stage
    from student.models.siq_vl import parts
    from student.training.cost import memory

    tokens = (last.tokens - first.tokens) / steps
    section = Stage(name="stage", data="questions", train=TRAINED[stage])
    found = memory.of_stage(trained.model, parts(trained.model), section)
    return found.needed(tokens=tokens, patches=100 * 196, checkpointing=False)
