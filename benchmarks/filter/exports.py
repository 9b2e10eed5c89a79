"""Time and memory of exports against the size of the dataset: memory must not grow.

    python benchmarks/filter/exports.py [--examples 2000 10000 40000]

Each size runs in a process of its own on invented examples (300 words; every image is shown twice, 11 kB each).
The script prints CPU seconds beside wall seconds. The rest is the time of the disk: each image becomes a file.
Takes 21 s with `--examples 100 300` (two shared cores).
"""

import argparse
import io
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from filters.dataset import exports
from filters.dataset.export_formats import FORMATS
from filters.dataset.writer import SCHEMA

_GROUP = 500


def invent(folder: Path, examples: int) -> None:
    """A dataset of so many examples."""
    generator = np.random.default_rng(0)
    file = folder / "train" / "part-00000.parquet"
    file.parent.mkdir(parents=True)
    image = b""
    with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for start in range(0, examples, _GROUP):
            rows = []
            for number in range(start, min(examples, start + _GROUP)):
                if number % 2 == 0:
                    buffer = io.BytesIO()
                    Image.fromarray(generator.integers(0, 255, (60, 60, 3), dtype=np.uint8)).save(buffer, "PNG")
                    image = buffer.getvalue()
                text = " ".join(f"word{(7 * number + place) % 5000}" for place in range(300))
                rows.append(
                    {
                        "images": [{"bytes": image, "path": "picture.png"}],
                        "messages": [
                            {"role": "user", "content": f"What is question {number}?"},
                            {"role": "assistant", "content": f"<think>\n{text}\n</think>\n\n4"},
                        ],
                        "sample_id": f"{number // 2:032x}",
                        "trace_id": f"{number:032x}",
                        **{"teacher": "t", "domain": "d", "rationale": text, "answer": "4", "weight": 1.0},
                        "signals": "{}",
                    }
                )
            writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))


def measure(dataset: Path, folder: Path) -> str:
    """CPU and wall seconds of a first and of a second export in all formats, and the most memory used."""
    cells = []
    for before in ((), (folder,)):
        wall, cpu = time.perf_counter(), time.process_time()
        exports.write(dataset, folder, FORMATS, name="invented", before=before)
        cells.append(f"{time.process_time() - cpu:.1f} s CPU, {time.perf_counter() - wall:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{cells[0]} | {cells[1]} | {peak:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="+", default=[2_000, 10_000, 40_000])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure(arguments.measure / "dataset", arguments.measure / "exports"))
        return
    print("| examples | all formats | again, pictures linked | peak |\n| --- | --- | --- | --- |")
    for examples in arguments.examples:
        with tempfile.TemporaryDirectory() as name:
            invent(Path(name) / "dataset", examples)
            command = [sys.executable, __file__, "--measure", name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(f"| {examples:,} | {done.stdout.strip()} |", flush=True)


if __name__ == "__main__":
    main()
