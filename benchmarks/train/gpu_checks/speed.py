"""Checks of speed: an embedded teacher's traces, and tokens a second of the published student."""

import sys
import time
import traceback
from typing import Any

from gpu_checks.common import Ground, Wrong
from gpu_checks.training_runs import MISSING, measure_speed


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
                result = measure_speed(ground, f"speed {stage} {name}", stage=stage, keys=keys)
            except MISSING as error:
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
