"""Checks that GGUF files are the trained student, and that llama.cpp replies as transformers does.

Each tensor of the files is compared with what the run's student gives in the file's type. Then the same questions
with the same pixels are asked greedily. Does not start llama.cpp: the caller passes a function that asks it.
"""

import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from PIL import Image
from transformers import ProcessorMixin

from distill.artifacts.layout import model_folder
from distill.errors import ModelError
from distill.recipe.recipe import Recipe
from distill.types import ImageRef, Progress, ProgressCallback, unwatched
from distill.word_tables import counted
from student.data import images
from student.export.check_report import ExportCheck, VerifiedServer, add_checks, add_replies, questions, reported
from student.export.convert import trained_student
from student.export.gguf.files import MMPROJ, MODEL, tensors_of, type_of
from student.export.gguf.tokenizer import image_ids
from student.export.reply_comparison import ComparedStudent
from student.models.library_output import hide_library_output

IDENTICAL_SHARE = 0.95
"""Share of equal replies under which f32 or f16 files fail; transformers computes in float32."""

ServeGguf = Callable[..., AbstractContextManager[VerifiedServer]]
"""serve(model, mmproj, context=..., max_new_tokens=..., image=..., image_ids=...)"""


@hide_library_output()
def verify_gguf(
    recipe: Recipe,
    run: Path,
    out: Path,
    serve: ServeGguf,
    *,
    stage: str,
    prompts: int,
    on_progress: ProgressCallback = unwatched,
) -> dict[str, Any]:
    """Compare the files in `out` with the run, then the replies of llama.cpp and transformers.

    The report is also in verify.json. Raises DistillError when something is not as it should be.
    """
    source, samples = questions(recipe, prompts)
    model, processor = trained_student(recipe, run, stage)
    checks = [compare_tensors(out / name, tensors) for name, tensors in tensors_of(model, processor).items()]
    weight_type = _weight_type(out / MODEL)
    shuffle = model.config.scale_factor
    del model

    def on_done(activity: str, done: int) -> None:
        on_progress(Progress(stage=f"verify {activity}", done=done, total=len(samples), unit="prompts"))

    asked = source, samples
    with reported(out, stage=stage, form="gguf", dtype=weight_type, asked=asked, library="gguf") as report:
        add_checks(out, report, checks)
        student = ComparedStudent(recipe, model_folder(run, stage), samples, source, dtype="float32")
        expected = student.replies(lambda done: on_done("transformers", done))
        with serve(
            out / MODEL,
            out / MMPROJ,
            context=student.longest + recipe.eval.max_new_tokens,
            max_new_tokens=recipe.eval.max_new_tokens,
            image=lambda ref: square(processor, ref, student.max_pixels),
            image_ids=image_ids(processor, shuffle),
        ) as server:
            report["server"] = {"engine": server.engine}
            served = server.ask(samples)
        on_done("llama.cpp", len(samples))
        special = set(processor.tokenizer.all_special_ids)
        replies = student.compare(
            {index: _ended(reply, special) for index, reply in expected.items()},
            [(ids, _ended(reply, special)) for ids, reply in served],
        )
        limit = IDENTICAL_SHARE if weight_type in ("f32", "f16") else None
        add_replies(out, report, replies, limit, why_none="the weights are rounded to fewer bits")
    return report


def _ended(reply: Sequence[int], special: set[int]) -> list[int]:
    """A reply up to its first special token: llama.cpp ends at each whose name it knows as an end (<|endoftext|>)."""
    count = next((index + 1 for index, token in enumerate(reply) if token in special), len(reply))
    return list(reply[:count])


def square(processor: ProcessorMixin, ref: ImageRef, max_pixels: int) -> bytes:
    """An image as the student's tower sees it, as a PNG: llama.cpp keeps the ratio of its sides."""
    image = images.load(ref, max_pixels=max_pixels)
    values = processor.image_processor(image, do_rescale=False, do_normalize=False, return_tensors="np")
    pixels = np.rint(values["pixel_values"][0, 0]).clip(0, 255).astype(np.uint8)
    target = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(target, "PNG")
    return target.getvalue()


def compare_tensors(path: Path, expected: dict[str, Any]) -> ExportCheck:
    """Every tensor of a file byte for byte what the student's weights are in the tensor's type."""
    try:
        stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None

    def fault(name: str) -> str:
        if name not in stored:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is unknown"
        tensor, values = stored[name], expected[name].contiguous().numpy()
        kind = type_of(name, values, tensor.tensor_type)
        same = kind == tensor.tensor_type and np.array_equal(
            gguf.quants.quantize(values, kind).view(np.uint8).ravel(), tensor.data.view(np.uint8).ravel()
        )
        return "" if same else f"{name} differs"

    first = next(filter(None, map(fault, sorted(expected.keys() | stored.keys()))), "")
    note = f"{path.name}: {first or counted(len(stored), 'tensor')}"
    return ExportCheck(name="tensors", value=None if first else 0.0, limit=0.0, passed=not first, note=note)


def _weight_type(path: Path) -> str:
    """The type of most matrices of a file, such as f16."""
    types = [tensor.tensor_type.name.lower() for tensor in gguf.GGUFReader(path).tensors if len(tensor.shape) > 1]
    result: str = max(set(types), key=types.count)
    return result
