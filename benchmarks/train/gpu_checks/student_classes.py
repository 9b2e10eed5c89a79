"""Check of every class of student: packed rows against the same rows one by one in float32, on this device."""

import copy
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from gpu_checks.common import Ground, Wrong, relative_difference

from student.data import collate, encode
from student.data import images as student_images
from student.models import attention, recurrent

_WORLDS = Path(__file__).parents[3] / "tests" / "support"
ROWS = 9
FLOOR = {torch.float32: 1e-3, torch.bfloat16: 2e-2}
"""Relative differences of logits and gradients that TF32 products and bfloat16 explain."""
MORE = 1.5
"""Packed rows may differ this many times as much from float32 as rows one by one in the same dtype do."""


def classes(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Logits and gradients of a random student of every class; a changed row moves the others by 0."""
    sys.path.append(str(_WORLDS))
    from worlds import student_worlds as worlds

    problems, found = [], {}
    for kind in worlds.CLASSES:
        try:
            folder = ground.folder / "classes" / kind
            model, processor = worlds.student(kind, worlds.parts(folder))
            found[kind] = _figures(model, _collator(processor, model, worlds.rows(folder, ROWS)), ground.device)
        except Exception as error:
            traceback.print_exc()
            problems.append(f"{kind}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
            continue
        print(f"{kind}: {found[kind]}", file=sys.stderr, flush=True)
        figures = found[kind].items()
        problems += [f"{kind}: {name} {value:.1e}" for name, (value, most) in figures if not value <= most]
    if problems:
        raise Wrong("; ".join(problems))
    return f"{len(found)} classes: packed rows equal rows one by one; a changed row moves the others by 0", found


def _figures(model: Any, make: collate.Collator, device: str) -> dict[str, tuple[float, float]]:
    """What differs for one class, and the most that may: logits and gradients by dtype, and the moved row."""
    for weight in model.parameters():
        weight.data.mul_(3 if weight.ndim > 1 else 1)  # as they are drawn, logits hardly depend on what came before
    packed, alone = make(range(ROWS)).inputs, [make([row]).inputs for row in range(ROWS)]
    first = alone[0]["input_ids"].shape[1]
    changed = packed | {"input_ids": packed["input_ids"].clone()}
    changed["input_ids"][0, first - 3 : first] = 5
    reference, figures = None, {}
    for dtype in FLOOR if device == "cuda" else (torch.float32,):
        copied = copy.deepcopy(model).to(device=device, dtype=dtype)
        attention.use(copied, "sdpa")
        one_by_one = _logits_and_gradients(copied, alone)
        reference = reference or one_by_one
        attention.use(copied, attention.PACKED)
        short = str(dtype).removeprefix("torch.")
        for name, ours, theirs, true in zip(
            ("logits", "gradients"), _logits_and_gradients(copied, [packed]), one_by_one, reference, strict=True
        ):
            most = max(FLOOR[dtype], MORE * relative_difference(theirs, true))
            figures[f"{name} {short}"] = relative_difference(ours, true), most
        with torch.no_grad():
            states = [copied(**_moved(each, copied), use_cache=False).logits[0, first:] for each in (packed, changed)]
        figures[f"changed row {short}"] = float((states[0] - states[1]).abs().max()), 0.0
    return figures


def _logits_and_gradients(model: Any, lines: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [tokens, words] of all lines one after the other, and all gradients of their mean square [numbers]."""
    model.zero_grad(set_to_none=True)
    logits = torch.cat([model(**_moved(line, model), use_cache=False).logits[0] for line in lines])
    logits.float().square().mean().backward()
    gradients = [weight.grad.flatten().float() for weight in model.parameters() if weight.grad is not None]
    return logits.detach(), torch.cat(gradients)


def _collator(processor: Any, model: Any, rows: list[Any]) -> collate.Collator:
    encoder, store = encode.Encoder.of(model, processor), student_images.ImageStore(processor, torch.float32)
    examples = encode.encode(rows, encoder, store, encode.RowLimits(500, 10**6))
    return collate.Collator(
        examples,
        store,
        collate.InputForm.of(model, encoder),
        max_pixels=10**6,
        bounds=True,
        positions=collate.spatial_positions(model),
    )


def _moved(batch: dict[str, Any], model: Any) -> dict[str, Any]:
    """The batch on the model's device; pixels in the dtype of its weights."""
    moved = {
        name: value.to(model.device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()
    }
    bounds = [name for name in recurrent.BOUNDS if name in batch]
    moved |= {name: recurrent.with_row_sizes(batch[name], model.device) for name in bounds}
    return moved | {"pixel_values": moved["pixel_values"].to(model.dtype)}
