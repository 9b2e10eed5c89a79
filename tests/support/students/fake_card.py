"""A step of every class of student on a device that has no values: python fake_card.py

The device is called "card" and answers to `is_cuda`. Tensors on it are fake, so an operation that mixes devices, or
waits for a value of the device, fails. Pixels are copied and normalised there; the model then sees the text only, for
towers of transformers read sizes and masks of images back.
Prints one line a class, and in the end what failed.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import backend_registration
from worlds import student_worlds as worlds

from distill.recipe.sections.stages import Lora, Stage
from student.loss import training_loss
from student.models import attention, freeze, recurrent
from student.models.parts import find_parts

CARD = "card:0"
KINDS = {
    "full": (("projector", "language"), None),
    "lora": (("language",), Lora(rank=4, alpha=8)),
}
_IMAGES = ("pixel_values", "image_grid_thw", "spatial_shapes", "image_position_ids", "pixel_attention_mask")


def prepare_card() -> None:
    backend_registration._setup_privateuseone_for_python_backend("card")
    torch.Tensor.is_cuda = property(lambda tensor: tensor.device.type == "card")  # type: ignore[assignment]
    training_loss.has_triton = lambda: True


def on_card(model: torch.nn.Module) -> None:
    """The parameters and buffers of a model in the place of its own; call it under a fake mode."""
    for module in model.modules():
        for name, value in list(module._parameters.items()):
            if value is not None:
                empty = torch.empty(value.shape, dtype=value.dtype, device=CARD)
                module._parameters[name] = torch.nn.Parameter(empty, requires_grad=value.requires_grad)
        for name, value in list(module._buffers.items()):
            if value is not None:
                module._buffers[name] = torch.empty(value.shape, dtype=value.dtype, device=CARD)


def step(name: str, kind: str, world: Path, rows: list[Any]) -> str:
    """One forward and backward pass; the device and the number of gradients."""
    train, lora = KINDS[kind]
    model, processor = worlds.student(name, world)
    roles = find_parts(model)
    model = model.to(torch.bfloat16)
    training_loss.attach(model)
    attention.use(model, attention.PACKED)
    student = freeze.prepare(model, roles, train, lora).train()
    stage = Stage(name="s", data="traces", train=train, lora=lora)
    steps = worlds.step_dataset(student, model, processor, roles, rows, stage, torch.bfloat16)
    batch = steps[0]["micro_batches"][0]
    assert "pixel_values" in batch
    sizes = recurrent.row_sizes(batch[recurrent.BOUNDS[0]])
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        on_card(student)
        fakes = {k: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        for bounds in recurrent.BOUNDS:
            setattr(fakes[bounds], recurrent._SIZES, sizes)
        levels = steps._store._levels
        steps._store._levels = None if levels is None else mode.from_tensor(levels)
        moved = steps.on_device(fakes, torch.device(CARD))
        images = {key: moved.pop(key) for key in _IMAGES if key in moved}
        wrong = [key for key, value in images.items() if value.device != torch.device(CARD)]
        assert not wrong and images["pixel_values"].dtype == torch.bfloat16, (wrong, images)
        moved.pop("cells")
        scored = student(**moved, extra=None)
        scored.loss.backward()
        count = sum(each.grad is not None for each in student.parameters())
        return f"{scored.loss.device}, {count} gradients"


def lines() -> Iterator[tuple[bool, str]]:
    with tempfile.TemporaryDirectory() as folder:
        world = worlds.parts(Path(folder))
        rows = [replace(row, source="traces") for row in worlds.rows(world, 2)]
        for name in worlds.CLASSES:
            for kind in KINDS:
                try:
                    yield True, f"ok {name} {kind}: {step(name, kind, world, rows)}"
                except Exception as error:
                    yield False, f"failed {name} {kind}: {type(error).__name__}: {str(error)[:300]}"


def main() -> None:
    prepare_card()
    good = True
    for worked, line in lines():
        print(line, flush=True)
        good = good and worked
    sys.exit(not good)


if __name__ == "__main__":
    main()
