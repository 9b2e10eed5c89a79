"""Short training runs of made students, for the checks that train."""

import json
import tomllib
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from gpu_checks.common import Ground
from train_runs import TRAINED, Contestant, TimedRun, ours, slug

from distill.errors import ModelError
from distill.recipe.sections.stages import Stage
from student.models import siq_vl
from student.models.parts import find_parts
from student.training.cost import memory

MISSING = (ModelError,)
"""Errors that say that this machine lacks a library for a setting."""


@dataclass(frozen=True, slots=True)
class Run:
    losses: list[float]
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A stage of the published 0.5B shape whose steps are timed."""

    stage: int = 2
    keys: dict[str, str] = field(default_factory=dict)
    data: str = "short-vqa"
    rows: int = 1280
    batch: int | None = 128
    """Rows a step; None: the keys say how many tokens."""


def _world(ground: Ground, preset: str, dtype: str, data: str, rows: int) -> Path:
    """A folder with a student of that shape and rows to train on, made by the first that asks."""
    import train_world as world

    shape = world.SHAPES[preset]
    folder = ground.folder / f"{preset}-{dtype}-{data}-{rows}"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            student = ground.folder / f"{preset}-{dtype}"
            if not student.exists():
                world.write_student(student, shape, dtype)
            folder.mkdir()
            (folder / "student").symlink_to(student / "student")
            world.write_data(folder, data, shape, rows, seed=0, name="questions", images=256)
            world.write_data(folder, data, shape, 8, seed=-1, name="held_out")
    return folder


def train_tiny(
    ground: Ground, name: str, *, dtype: str | None = None, stage: int = 2, keys: dict[str, str] | None = None
) -> Run:
    """Eight steps of the tiny shape."""
    dtype = dtype or ("bfloat16" if ground.device == "cuda" else "float32")
    speed = Speed(stage=stage, keys=keys or {}, rows=128, batch=16)
    torch.manual_seed(0)
    trained = ours(_job(ground, name, "tiny", dtype, speed, warm_up=1))
    return Run(losses=[tick.loss for tick in trained.ticks], peak_bytes=trained.peak_bytes)


def measure_speed(ground: Ground, name: str, speed: Speed) -> dict[str, float]:
    """Rates of the steps after the first few, and the most memory held."""
    preset, dtype, warm_up = "0.5b", "bfloat16", 3
    if ground.small:
        preset, dtype, warm_up = "tiny", "float32", 2
        small = {"stage.batch_tokens": "2048", "stage.micro_batch_tokens": "1024"} if speed.batch is None else {}
        speed = replace(speed, rows=96, batch=speed.batch and 16, keys=speed.keys | small)
    job = _job(ground, name, preset, dtype, speed, warm_up=warm_up)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trained = ours(job)
    first, last = trained.ticks[warm_up - 1], trained.ticks[-1]
    seconds, steps = last.seconds - first.seconds, len(trained.ticks) - warm_up
    folder = job.folder / f"run-{slug(name)}" / "train" / "stage"
    logs = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    tokens, images = ((logs[-1][key] - logs[warm_up - 1][key]) / steps for key in ("tokens", "images"))
    passes = ceil(tokens / json.loads((folder / "parts.json").read_text())["micro_batch_tokens"])
    means = {key: sum(log[key] for log in logs[warm_up:]) / steps for key in ("mfu", "waiting_share")}
    return {
        "tokens_per_s": round((last.tokens - first.tokens) / seconds),
        "step_s": round(seconds / steps, 4),
        "tokens_a_step": round(tokens),
        "passes": passes,
        "mfu": round(means["mfu"], 4),
        "waiting": round(means["waiting_share"], 4),
        "peak_gib": round(trained.peak_bytes / 2**30, 2),
        "planned_gib": round(_planned(job, speed, tokens / passes, images / passes) / 2**30, 2),
        "whole_s": round(last.seconds, 1),
    }


def _job(ground: Ground, name: str, preset: str, dtype: str, speed: Speed, *, warm_up: int) -> TimedRun:
    return TimedRun(
        contestant=Contestant(name=name, keys=speed.keys),
        folder=_world(ground, preset, dtype, speed.data, speed.rows),
        stage=speed.stage,
        batch=speed.batch,
        warm_up=warm_up,
        dtype=dtype,
        learning_rate=1e-3,
        threads=torch.get_num_threads(),
        workers=0,
    )


def _planned(job: TimedRun, speed: Speed, tokens: float, images: float) -> float:
    """The bytes that `distill plan` foretells for passes of so many tokens and images."""
    keys = tomllib.loads("\n".join(f"{key} = {value}" for key, value in speed.keys.items())).get("stage", {})
    size = {"batch_size": speed.batch} if speed.batch is not None else {}
    section = Stage(name="stage", data="questions", train=TRAINED[speed.stage], **size, **keys)
    model, _ = siq_vl.outline(str(job.folder / "student"), dtype=job.dtype)
    sight: Any = model.config.vision_config
    patches = images * (sight.image_size // sight.patch_size) ** 2
    return memory.of_stage(model, find_parts(model), section).needed(
        tokens=tokens, patches=patches, checkpointing=False
    )
