"""Checks of speed: an embedded teacher's traces, and tokens a second of the published student."""

import time
from typing import Any

from gpu_checks.common import Ground, Wrong
from gpu_checks.training_runs import MISSING, Speed, measure_speed


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


ADAPTERS = {"stage.lora": "{ rank = 32, alpha = 64, dropout = 0.05 }"}
COMPILE = {"stage.kernels": '"compile"'}
WIDE = {"stage.batch_tokens": "131072", "stage.micro_batch_tokens": "32768", "stage.micro_batch_images": "1024"}
SPEEDS = {
    "short rows": Speed(),
    "short rows, compile": Speed(keys=COMPILE),
    "projector": Speed(stage=1),
    "rationales, adapters": Speed(stage=3, keys=ADAPTERS, data="rationales", rows=384, batch=32),
    "rationales, wide, compile": Speed(keys=WIDE | COMPILE, data="rationales", rows=2500, batch=None),
    "rationales, adapters, compile": Speed(stage=3, keys=ADAPTERS | COMPILE, data="rationales", rows=384, batch=32),
    "short rows, liger": Speed(keys={"stage.kernels": '"liger"'}),
}
"""Stage and settings of each timed run; the last ones are left out where time is short."""


def speed(ground: Ground, name: str) -> tuple[str, dict[str, Any]]:
    """Real tokens a second of the published 0.5B student in one of SPEEDS, its MFU, and its memory."""
    try:
        found = measure_speed(ground, f"speed {name}", SPEEDS[name])
    except MISSING as error:
        return f"left out: {str(error).splitlines()[0][:160]}", {}
    memory = f"; {found['peak_gib']} GiB at most, {found['planned_gib']} foretold" if ground.device == "cuda" else ""
    return f"{found['tokens_per_s']:,} tokens/s, MFU {found['mfu']:.1%}{memory}", found
