"""A student, its data and a recipe small enough to train in a test, and random students of other classes.

The questions are about coloured squares; nothing is learned well, everything is exact.
"""

import hashlib
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from students import student_classes
from students.student_classes import WORDS as WORDS
from students.student_classes import other as other
from students.student_classes import published as published
from students.student_classes import tokenizer as tokenizer

from distill.artifacts.manifest import Manifest, fingerprint
from distill.recipe.loading import load
from distill.recipe.recipe import Recipe
from distill.recipe.sections.stages import Stage
from distill.types import ImageRef
from student.data import encode, images
from student.data.collate import collate
from student.data.rows import TrainingRow
from student.models.parts import Parts
from student.training.step_dataset import StepDataset, build_step_dataset

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
STAGE = """
[[stages]]
name = "{name}"
data = "{data}"
train = {train}
batch_size = 8
max_steps = {steps}
learning_rate = 5e-3
log_every_steps = 1
save_every_steps = {save}
{more}
"""


CLASSES = ("siq-vl", *student_classes.BUILDERS)
ALL_CLASSES = (*CLASSES, *student_classes.FURTHER)


def student(kind: str, folder: Path) -> tuple[Any, Any]:
    """A student of one of `ALL_CLASSES`; SiQ-VL is built from the `parts` in `folder`."""
    from student.models.siq_vl import build

    return build(str(folder / "vision"), str(folder / "language"), 2) if kind == "siq-vl" else other(kind)


def parts(folder: Path) -> Path:
    """`vision` and `language` checkpoints of about 60k parameters, below `folder`, which is given back."""
    import torch

    torch.set_num_threads(1)
    shutil.copytree(_parts().name, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    return folder


@cache
def _parts() -> "tempfile.TemporaryDirectory[str]":
    """The checkpoints, made once a process; the folder goes with it."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, SiglipVisionConfig, SiglipVisionModel

    made = tempfile.TemporaryDirectory()
    folder = Path(made.name)
    torch.manual_seed(0)
    sight = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    SiglipVisionModel(SiglipVisionConfig(**sight, image_size=16, patch_size=4)).save_pretrained(folder / "vision")
    words = tokenizer()
    words.save_pretrained(folder / "language")
    speech = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    Qwen2ForCausalLM(
        Qwen2Config(**speech, num_key_value_heads=2, vocab_size=len(words), tie_word_embeddings=True)
    ).save_pretrained(folder / "language")
    return made


def outspoken(folder: Path) -> None:
    """Put a random language model in the place of the one in `folder`: vLLM serves it, and its replies vary.

    vLLM on a CPU has no kernel for heads of 8, which those of `parts` are. Weights as they are drawn say the same to
    every question; scaled like this, attention decides.
    """
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config.from_pretrained(folder / "language", hidden_size=128, intermediate_size=128)
    torch.manual_seed(0)
    decoder = Qwen2ForCausalLM(config)
    for name, weight in decoder.named_parameters():
        if weight.ndim == 2:
            weight.data.mul_(8 if ".layers." in name else 4)
    decoder.save_pretrained(folder / "language")


def make_image(path: Path, number: int, size: int = 16) -> Path:
    """Four coloured squares with some noise."""
    noise = np.random.default_rng(number)
    half = size // 2
    pixels = np.zeros((size, size, 3), dtype=np.int64)
    for row in range(2):
        for column in range(2):
            colour = list(COLOURS.values())[int(noise.integers(0, 3))]
            pixels[row * half : (row + 1) * half, column * half : (column + 1) * half] = colour
    pixels = (pixels + noise.integers(0, 40, pixels.shape)).clip(0, 255)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def data(folder: Path, questions: int = 40) -> None:
    """`questions.jsonl` and `test.jsonl` with their images, and a finished filter stage in `run`."""
    chance = random.Random(0)
    rows, traces = [], []
    for number in range(questions):
        path = make_image(folder / "images" / f"{number}.png", number)
        colour, answer = chance.choice(list(COLOURS)), str(chance.randrange(5))
        question = f"How many {colour} squares?" if number % 3 else f"Are there {colour} squares, and how many?"
        lines = [f"row {line}: {colour}, {chance.randrange(3)}" for line in range(1, 2 + number % 4)]
        rationale = "\n".join(lines)
        domain = ("scenes", "charts")[number % 2]
        rows.append({"image": path.name, "question": question, "answer": answer, "domain": domain})
        content = path.read_bytes()
        traces.append(
            {
                "images": [{"bytes": content, "path": path.name}],
                "messages": [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": f"<think>\n{rationale}\n</think>\n\n{answer}"},
                ],
                "sample_id": hashlib.sha256(content).hexdigest()[:16],
                "trace_id": f"trace{number}",
                "rationale": rationale,
                "answer": answer,
            }
        )
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[:12]), encoding="utf-8")
    target = folder / "run" / "filter" / "dataset" / "train"
    target.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(traces), target / "part-00000.parquet")
    fields = {"filter": "by hand"}
    Manifest(stage="filter", fingerprint=fingerprint(fields), fields=fields).write(folder / "run" / "filter")


def stage(
    name: str, data: str = "traces", *, train: str = '["language"]', steps: int = 6, save: int = 200, more: str = ""
) -> str:
    return STAGE.format(name=name, data=data, train=train, steps=steps, save=save, more=more)


def recipe(folder: Path, *stages: str, more: str = "") -> Recipe:
    path = folder / "recipe.toml"
    sources = "".join(
        f'[data.{name}]\nsource = "{name}.jsonl"\nimages_root = "images"\n' for name in ("questions", "test")
    )
    student = '[student]\nvision = "vision"\nlanguage = "language"\npixel_shuffle = 2\ndtype = "float32"\n'
    path.write_text(sources + student + "".join(stages) + more, encoding="utf-8")
    return load(path)


def rows(folder: Path, count: int = 8, *, images: int = 1) -> list[TrainingRow]:
    """Rows of different lengths."""
    found = []
    for number in range(count):
        refs = []
        for place in range(images):
            path = make_image(folder / "pictures" / f"{number}-{place}.png", 100 * number + place)
            refs.append(ImageRef(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), path=str(path)))
        response = "<think>\n" + "row 1: red green, 1\n" * (number % 5) + f"</think>\n\n{number % 10}"
        found.append(
            TrainingRow(id=f"row{number}", images=tuple(refs), question="How many red squares?", response=response)
        )
    return found


def batch(processor: Any, folder: Path, count: int = 3) -> dict[str, Any]:
    """Inputs with labels as the processor alone makes them, right-padded; every real token is a label."""
    texts, images = [], []
    for row in rows(folder, count):
        turns = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": row.question}]},
            {"role": "assistant", "content": [{"type": "text", "text": row.response}]},
        ]
        texts.append(processor.apply_chat_template(turns))
        images.append([Image.open(str(ref.path)).convert("RGB") for ref in row.images])
    processor.tokenizer.padding_side = "right"
    made = dict(processor(text=texts, images=images, padding=True, return_tensors="pt"))
    made["labels"] = made["input_ids"].masked_fill(made["attention_mask"] == 0, -100)
    return made


def step_dataset(
    student: Any,
    model: Any,
    processor: Any,
    roles: Parts,
    rows: Sequence[TrainingRow],
    stage: Stage,
    dtype: torch.dtype = torch.float32,
) -> StepDataset:
    """The steps of a stage over rows, for a student that is prepared for training (`model`: without a wrapper)."""
    encoder = encode.Encoder.of(model, processor)
    store = images.ImageStore(processor, dtype)
    examples = encode.encode(rows, encoder, store, encode.RowLimits(1024, 10**6), dropped=Counter())
    collator = collate(student, examples, store, stage, encoder, max_pixels=10**6, raw_pixels=True)
    return build_step_dataset(student, roles, collator, stage, seed=0)
