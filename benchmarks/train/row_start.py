"""What a process of a training needs, beyond its model, from rows that are encoded to its first step.

    python benchmarks/train/row_start.py --rows 10000 100000 1000000

Rows of about 200 tokens with an image each, 10,000 of them again and again, are written to a file; a new process maps
it, plans a stage and makes the first step. Seconds are CPU seconds of that process. Peak: the largest resident memory
of the process less what it had with the model; pages of the mapped file that it has read count too, though all
processes share them. Own: memory after the step, less what it had with the model, without such pages. Tokenising is
not in the seconds (benchmarks/train/row_memory.py measures it).
Takes 1 min with `--rows 1000` (two shared cores).
"""

import argparse
import hashlib
import resource
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from distill.recipe.loading import recipes_folder
from distill.recipe.sections.stages import Stage
from distill.types import ImageRef
from student.data import image_tokens
from student.data.collate import collate
from student.data.encode import Encoder, Examples
from student.data.encoded_rows import Example, MappedRows, write_rows
from student.data.images import ImageStore
from student.data.rows import TrainingRow
from student.models import siq_vl
from student.models.inputs import end_ids
from student.models.parts import find_parts
from student.training.step_dataset import build_step_dataset

STEPS = {"batch_size": 32}, {"batch_tokens": 32_768}
WRITTEN = 10_000
TEXT = "The first bar reads 17, the second 25, so the sum is 42. " * 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    options = parser.parse_args()
    if any(count > WRITTEN and count % WRITTEN for count in options.rows):
        parser.error(f"--rows above {WRITTEN:,} are multiples of it")
    print(
        "rows      step                     map s  count s  plan s  step s  all s  peak MB  own MB  images s (main)"
    )
    for count in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows"
            write(path, count, Path(folder))
            for settings in STEPS:
                with get_context("spawn").Pool(1) as pool:
                    seconds, peak, own, images_s = pool.apply(measure, (path, settings))
                each = "  ".join(f"{value:6.2f}" for value in (*seconds, sum(seconds)))
                print(f"{count:<9} {settings!s:<23} {each}  {peak:7.0f} {own:7.0f}  {images_s:6.2f}", flush=True)


def write(path: Path, count: int, folder: Path) -> None:
    """`count` rows; above WRITTEN a multiple of it: encoding a million would take minutes."""
    written = min(count, WRITTEN)
    write_rows(folder / "written", rows(written, folder))
    table = pa.ipc.open_file(str(folder / "written")).read_all()
    with pa.ipc.new_file(str(path), table.schema) as writer:
        for _ in range(count // written):
            writer.write_table(table)


def rows(count: int, folder: Path) -> Iterator[Example]:
    rng = np.random.default_rng(0)
    images = []
    for number in range(min(count, 1000)):
        path = folder / f"{number}.png"
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8)).resize((56, 56)).save(path)
        images.append(ImageRef(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), path=str(path)))
    ids = rng.integers(10, 200, 400).astype(np.int32)
    lengths = np.clip(rng.normal(200, 60, count), 60, 400).astype(int)
    for number, length in enumerate(lengths.tolist()):
        row = TrainingRow(
            id=f"{number:020x}",
            images=(images[number % len(images)],),
            question=f"What is bar {number}?",
            response=TEXT,
            sample_id=f"{number // 4:016x}",
            source="traces",
            teacher=f"teacher {number % 3}",
        )
        yield Example(row=row, ids=ids[:length], begin=50, kinds=np.zeros(length - 50, np.uint8))


def measure(path: Path, settings: dict[str, int]) -> tuple[list[float], float, float, float]:
    """Seconds of mapping, counting image tokens, planning, the first step; peak and own MB; seconds of images."""
    torch.set_num_threads(1)
    tiny = recipes_folder() / "tiny"
    model, processor = siq_vl.build(str(tiny / "tower"), str(tiny / "decoder"), 2)
    store, encoder = ImageStore(processor, torch.float32), Encoder(processor, end_ids(model))
    stage = Stage(name="s", data="traces", train=("language",), max_steps=200, **settings)
    before, own_before, times = memory("VmRSS"), memory("RssAnon"), [time.process_time()]
    examples = Examples(MappedRows(path))
    assert len(examples.columns.lengths)
    times.append(time.process_time())
    examples.image_share(encoder.image_id)
    times.append(time.process_time())
    steps = build_step_dataset(
        model,
        find_parts(model),
        collate(model, examples, store, stage, encoder, max_pixels=10**7),
        stage,
        seed=0,
    )
    times.append(time.process_time())
    made = steps[0]
    assert "failed" not in made, made["failed"]
    times.append(time.process_time())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    own = memory("RssAnon") - own_before
    image_tokens.distinct_images(examples)
    return np.diff(times).tolist(), (peak - before) / 1e6, own / 1e6, time.process_time() - times[-1]


def memory(name: str) -> int:
    """Bytes of memory of this process now: VmRSS all, RssAnon without pages of files."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/status")


if __name__ == "__main__":
    main()
