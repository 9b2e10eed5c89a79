"""Whether every answer meets its own image: a whole epoch's micro-batches, looked at from the outside.

    python benchmarks/train/mismatches.py [--rows 100000] [--batch-tokens 16384]

Every picture's colour spells its row's number, and so does its answer. The rows go through the path that a stage
takes (source, tokens, plan, packed lines, image inputs), and each packed row's colour and answer are read back from
the tensors that the model would get. Exits 1 if one doesn't match, is missing or comes twice.
Takes 20 s with `--rows 200` (two shared cores).
"""

import argparse
import tempfile
import time
from collections import Counter
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from distill.recipe import loading
from distill.recipe.recipe import Recipe
from student.data import rows
from student.data.collate import collate
from student.data.encode import Encoder, RowLimits, encode
from student.data.images import ImageStore
from student.models import attention, freeze, inputs
from student.models.parts import find_parts
from student.models.siq_vl import build
from student.training.step_dataset import build_step_dataset

ASSETS = Path(__file__).resolve().parents[2] / "recipes" / "tiny"
RECIPE = """
[data.pictures]
source = "pictures.parquet"
[student]
vision = "{assets}/tower"
language = "{assets}/decoder"
pixel_shuffle = 2
dtype = "float32"
[[stages]]
name = "look"
data = "pictures"
train = ["projector"]
batch_tokens = {batch_tokens}
micro_batch_tokens = {micro_batch_tokens}
"""
LEVELS = 64
"""Of a channel: three of them spell numbers below 262,144, four grey levels apart."""


def write(folder: Path, count: int) -> None:
    """`count` rows with one image, every thirtieth with two, as embedded PNG files."""
    chance = np.random.default_rng(0)
    sink = None
    for start in range(0, count, 5000):
        lines = []
        for number in range(start, min(count, start + 5000)):
            lines.append(
                {
                    "image": [{"bytes": png(number), "path": None}] * count_of(number),
                    "question": "what is row " + "1 " * int(chance.integers(1, 40)) + "?",
                    "answer": " ".join(str(number)),
                }
            )
        table = pa.Table.from_pylist(lines)
        sink = sink or pq.ParquetWriter(folder / "pictures.parquet", table.schema)
        sink.write_table(table)
    assert sink is not None
    sink.close()


def count_of(number: int) -> int:
    """Pictures of a row."""
    return 2 if number % 30 == 5 else 1


def png(number: int) -> bytes:
    colour = tuple(4 * (number // LEVELS**place % LEVELS) for place in range(3))
    made = BytesIO()
    Image.new("RGB", (64, 64), colour).save(made, "PNG")
    return made.getvalue()


def spelled(pixels: torch.Tensor) -> int:
    """The number in the colour of a normalised image, float[channels, height, width]."""
    levels = torch.round((pixels.mean((1, 2)) * 0.5 + 0.5) * 255 / 4).long().tolist()
    return sum(level * LEVELS**place for place, level in enumerate(levels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, chosen.rows)
        text = RECIPE.format(assets=ASSETS, batch_tokens=chosen.batch_tokens, micro_batch_tokens=8192)
        (folder / "recipe.toml").write_text(text, encoding="utf-8")
        raise SystemExit(check(loading.load(folder / "recipe.toml"), folder))


def check(recipe: Recipe, folder: Path) -> int:
    begun = time.perf_counter()
    (stage,) = recipe.stages
    model, processor = build(str(ASSETS / "tower"), str(ASSETS / "decoder"), 2)
    found = find_parts(model)
    encoder = Encoder(processor, inputs.end_ids(model))
    store = ImageStore(processor, torch.float32)
    dropped: Counter[str] = Counter()
    pixels = rows.max_pixels(recipe, stage)
    examples = encode(
        rows.read(recipe, folder, stage, dropped), encoder, store, RowLimits(500, pixels), dropped=dropped
    )
    attention.use(model, attention.PACKED)
    student = freeze.prepare(model, found, stage.train, None)
    collator = collate(student, examples, store, stage, encoder, max_pixels=pixels, raw_pixels=True)
    made = build_step_dataset(student, found, collator, stage, seed=0)
    print(f"{len(examples):,} rows read and planned in {time.perf_counter() - begun:.0f} s; dropped: {dict(dropped)}")
    seen: Counter[int] = Counter()
    wrong = pictures = 0
    for step in range(len(made.plan)):
        for batch in made[step]["micro_batches"]:
            images = iter(store.normalised({"pixel_values": batch["pixel_values"]})["pixel_values"])
            ids = batch["input_ids"][0]
            bounds = batch["cu_seq_lens_q"].tolist()
            labelled = dict(zip(batch["at"].tolist(), batch["labels"].tolist(), strict=True))
            for begin, end in pairwise(bounds):
                said = [labelled[at] for at in range(begin, end) if at in labelled]
                number = int("".join(processor.tokenizer.decode(said, skip_special_tokens=True).split()))
                seen[number] += 1
                tokens = int((ids[begin:end] == encoder.image_id).sum())
                shown = [spelled(next(images)[0]) for _ in range(tokens // processor.image_seq_len)]
                pictures += len(shown)
                wrong += shown != [number] * count_of(number)
            wrong += next(images, None) is not None
    lost = len(examples) - len(seen)
    doubled = sum(seen.values()) - len(seen)
    print(
        f"{sum(seen.values()):,} packed rows with {pictures:,} images in {len(made.plan):,} steps, "
        f"{made.plan.fill():.1%} of the budget full: {wrong} mismatches, {lost} lost, {doubled} doubled "
        f"({time.perf_counter() - begun:.0f} s)"
    )
    return int(bool(wrong or lost or doubled))


if __name__ == "__main__":
    main()
