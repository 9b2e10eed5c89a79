"""Rows of a packed line against the same rows alone, for a random student of every class, on a CPU.

    python benchmarks/train/packed_parity.py [CLASS ...]

prints, by class, the largest differences of logits and of gradients (packed against one by one), how far a changed
row moves the logits of the others, and how far it does where layers are not told the bounds of rows.
Takes 16 s for `siq-vl` (two shared cores).
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

import torch
from worlds import student_worlds as worlds

from distill.reports.text_table import table
from student.data import collate, encode
from student.data import images as student_images
from student.models import attention, inputs, recurrent

ROWS = 9


def figures(kind: str, folder: Path) -> tuple[str, ...]:
    """The table's line of a class."""
    model, processor = worlds.student(kind, worlds.parts(folder / "parts"))
    for weight in model.parameters():
        weight.data.mul_(3 if weight.ndim > 1 else 1)  # as they are drawn, logits hardly depend on what came before
    if reason := attention.why_not_packed(model.config, inputs.type_name(model), attention.PACKED):
        return (kind, "padded", reason, "", "", "")
    attention.use(model, attention.PACKED)
    encoder, store = encode.Encoder.of(model, processor), student_images.ImageStore(processor, torch.float32)
    examples = encode.encode(worlds.rows(folder, ROWS), encoder, store, encode.RowLimits(500, 10**6))
    collator = collate.Collator(
        examples,
        store,
        collate.InputForm.of(model, encoder),
        max_pixels=10**6,
        bounds=True,
        positions=collate.spatial_positions(model),
    )
    packed = collator(range(ROWS))
    logits = model(**packed.inputs, use_cache=False).logits[0]
    logits.square().mean().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    attention.use(model, "sdpa")
    alone = [model(**collator([row]).inputs, use_cache=False).logits[0] for row in range(ROWS)]
    torch.cat(alone).square().mean().backward()
    largest = max(float(value.abs().max()) for value in gradients.values())
    far = max(
        float((gradients[name] - weight.grad).abs().max())
        for name, weight in model.named_parameters()
        if weight.grad is not None
    )
    attention.use(model, attention.PACKED)
    first = len(examples.rows[0].ids)
    poisoned = dict(packed.inputs)
    poisoned["input_ids"] = packed.inputs["input_ids"].clone()
    poisoned["input_ids"][0, first - 3 : first] = 5
    moved = _moved(model, packed.inputs, poisoned, first)
    bounds = {name: value for name, value in packed.inputs.items() if name.startswith(("cu_seq", "max_length"))}
    unbounded, unbounded_poisoned = (
        {name: value for name, value in each.items() if name not in bounds} for each in (packed.inputs, poisoned)
    )
    return (
        kind,
        ", ".join(sorted(set(getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"]))),
        f"{float((torch.cat(alone) - logits).detach().abs().max()):.1e} of {float(logits.detach().abs().max()):.1f}",
        f"{far:.1e} of {largest:.1e}",
        f"{moved:g}",
        f"{_moved(model, unbounded, unbounded_poisoned, first):.1e}",
    )


@torch.no_grad()
def _moved(model, before, after, first: int) -> float:
    """Largest change of a logit behind the first row."""
    states = [model(**each, use_cache=False).logits[0, first:] for each in (before, after)]
    return float((states[0] - states[1]).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", choices=[[], *worlds.ALL_CLASSES], help="default: all")
    chosen = parser.parse_args().classes or worlds.ALL_CLASSES
    torch.set_num_threads(1)
    head = ("class", "layers", "logits", "gradients", "poison", "without bounds")
    with tempfile.TemporaryDirectory() as folder:
        print(table(head, [figures(kind, Path(folder) / kind) for kind in chosen]))
    print(f"kinds that need bounds: {', '.join(recurrent.MIXERS)}")


if __name__ == "__main__":
    main()
