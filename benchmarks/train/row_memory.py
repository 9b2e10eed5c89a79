"""Memory that the rows of a stage take in each process, and what reading them again costs.

    python benchmarks/train/row_memory.py --rows 10000 100000

Text rows of the tiny world's student, about 200 tokens each, are encoded into a list and into a file. Each way has
processes of its own: one that encodes, and one that only has what the first one gave it (a list: all of it again; a
file: a map). Memory is private to a process (Private_Dirty of the kernel): pages of a mapped file are shared and may
be dropped at any time, so they do not count.
Takes 2 min with `--rows 200 400` (two shared cores).
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from distill.recipe.loading import recipes_folder
from student.data.encode import Encoder, RowLimits, encode
from student.data.encoded_rows import MappedRows, write_rows
from student.data.images import ImageStore
from student.data.rows import TrainingRow
from student.models import siq_vl
from student.models.inputs import end_ids

RESPONSE = "<think>The first bar reads {0}, the second {1}, so the sum is {2}.</think>\n{2} "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    options = parser.parse_args()
    print("rows     way   process    private MB  bytes a row  CPU s")
    for count in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            for way, process in (("list", "each"), ("file", "writes"), ("file", "maps")):
                with get_context("spawn").Pool(1) as pool:
                    megabytes, seconds = pool.apply(measure, (way, process, count, Path(folder) / "rows"))
                each = megabytes * 1e6 / count
                print(f"{count:<8} {way:<5} {process:<10} {megabytes:10.1f}  {each:11.0f}  {seconds:5.1f}")


def measure(way: str, process: str, count: int, path: Path) -> tuple[float, float]:
    """Private megabytes that having the rows adds to a process, and seconds of CPU."""
    torch.set_num_threads(1)
    tiny = recipes_folder() / "tiny"
    model, processor = siq_vl.build(str(tiny / "tower"), str(tiny / "decoder"), 2)
    encoder, store = Encoder(processor, end_ids(model)), ImageStore(processor, torch.float32)
    encode(rows(600), encoder, store, RowLimits(4096, 10**7))
    before, started = private_bytes(), time.process_time()
    if process == "maps":
        kept = MappedRows(path)
    else:
        into = partial(write_rows, path) if way == "file" else list
        kept = encode(rows(count), encoder, store, RowLimits(4096, 10**7), into=into).rows
    assert len(kept) == count and len(kept[count // 2].ids) > 100
    return (private_bytes() - before) / 1e6, time.process_time() - started


def rows(count: int) -> Iterator[TrainingRow]:
    for number in range(count):
        response = "".join(RESPONSE.format(number + step, step, number + 2 * step) for step in range(4))
        yield TrainingRow(id=f"{number:020x}", images=(), question=f"What is {number} + 1?", response=response)


def private_bytes() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise OSError("no Private_Dirty in /proc/self/smaps_rollup")


if __name__ == "__main__":
    main()
