"""Check of every class of student: packed rows on this device against the same rows alone on a CPU."""

import copy
import sys
import traceback
from pathlib import Path
from typing import Any

import student_worlds as worlds
import torch
from gpu_checks.common import Ground, Wrong, relative_difference

from student.data import collate, encode
from student.data import images as pictures
from student.models import attention, inputs, row_bounds

ROWS = 9
CLOSE = {torch.float32: 5e-3, torch.bfloat16: 8e-2}
"""Largest relative difference of logits and gradients; TF32 products and bfloat16 round that much."""


def classes(ground: Ground) -> tuple[str, dict[str, Any]]:
    """Logits and gradients of a random student of every class; a changed row moves the others by 0."""
    problems, found = [], {}
    for kind in worlds.CLASSES:
        try:
            found[kind] = _figures(kind, ground)
        except Exception as error:
            traceback.print_exc()
            problems.append(f"{kind}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
            continue
        print(f"{kind}: {found[kind]}", file=sys.stderr, flush=True)
        figures = found[kind].items()
        problems += [f"{kind}: {name} {value:.1e}" for name, (value, most) in figures if not value <= most]
    if problems:
        raise Wrong("; ".join(problems))
    return f"{len(found)} classes: packed rows equal rows alone on a CPU; a changed row moves the others by 0", found


def _figures(kind: str, ground: Ground) -> dict[str, tuple[float, float]]:
    """What differs for one class, and the most that may: logits and gradients by dtype, and the moved row."""
    folder = ground.folder / "classes" / kind
    model, processor = worlds.student(kind, worlds.parts(folder))
    for weight in model.parameters():
        weight.data.mul_(3 if weight.ndim > 1 else 1)  # as they are drawn, logits hardly depend on what came before
    make = _collator(model, processor, folder)
    attention.use(model, "sdpa")
    alone = torch.cat([model(**make([row]).inputs, use_cache=False).logits[0] for row in range(ROWS)])
    alone.square().mean().backward()
    expected = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    attention.use(model, attention.PACKED)
    packed = make(range(ROWS))
    first = len(make([0]).inputs["input_ids"][0])
    changed = dict(packed.inputs)
    changed["input_ids"] = packed.inputs["input_ids"].clone()
    changed["input_ids"][0, first - 3 : first] = 5
    figures = {}
    for dtype in CLOSE if ground.device == "cuda" else (torch.float32,):
        copied = copy.deepcopy(model).to(device=ground.device, dtype=dtype)
        logits = copied(**_moved(packed.inputs, ground.device, dtype), use_cache=False).logits[0]
        logits.float().square().mean().backward()
        gradients = {name: weight.grad for name, weight in copied.named_parameters() if weight.grad is not None}
        if gradients.keys() != expected.keys():
            raise Wrong(f"gradients of {sorted(gradients.keys() ^ expected.keys())[:3]} are only on one device")
        both = (gradients, expected)
        flat = [torch.cat([made[name].flatten().float().cpu() for name in expected]) for made in both]
        short = str(dtype).removeprefix("torch.")
        figures[f"logits {short}"] = relative_difference(logits.cpu(), alone), CLOSE[dtype]
        figures[f"gradients {short}"] = relative_difference(*flat), CLOSE[dtype]
        with torch.no_grad():
            states = [
                copied(**_moved(each, ground.device, dtype), use_cache=False).logits[0, first:]
                for each in (packed.inputs, changed)
            ]
        figures[f"changed row {short}"] = float((states[0] - states[1]).abs().max()), 0.0
    return figures


def _collator(model: Any, processor: Any, folder: Path) -> collate.Collator:
    encoder, store = encode.Encoder(processor, inputs.end_ids(model)), pictures.ImageStore(processor, torch.float32)
    examples = encode.encode(worlds.rows(folder, ROWS), encoder, store, max_length=500, max_pixels=10**6)
    return collate.Collator(
        examples,
        store,
        collate.InputForm.of(model, encoder),
        max_pixels=10**6,
        bounds=True,
        positions=collate.spatial_positions(model),
    )


def _moved(batch: dict[str, Any], device: str, dtype: torch.dtype) -> dict[str, Any]:
    """The batch on the device; pixels in the dtype of the weights."""
    moved = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    moved |= {
        name: row_bounds.with_row_sizes(batch[name], torch.device(device))
        for name in row_bounds.BOUNDS
        if name in batch
    }
    moved["pixel_values"] = moved["pixel_values"].to(dtype)
    return moved
