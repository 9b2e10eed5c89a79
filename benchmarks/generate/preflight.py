"""How long `distill generate --check` takes over 10,000 rows with a photograph each.

    python benchmarks/generate/preflight.py [--rows 10000] [--width 640] [--height 480]

The photographs are noisy crops of scikit-learn's sample images, so that they decode like photographs do.
Takes 6 s with `--rows 200` (two shared cores).
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson
from PIL import Image
from sklearn.datasets import load_sample_images

from distill.recipe.loading import load
from teacher.preflight import preflight


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = _photographs(folder, options.rows, options.width, options.height)
        rows = ({"image": f"{number}.jpg", "question": f"What is this? {number}"} for number in range(options.rows))
        (folder / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        (folder / "recipe.toml").write_text(
            '[data.questions]\nsource = "rows.jsonl"\n[[teachers]]\nname = "t"\nmodel = "org/model"\n'
            'base_url = "http://127.0.0.1:9/v1"\n'
        )
        wall, cpu = time.perf_counter(), time.process_time()
        print(preflight(load(folder / "recipe.toml"), folder / "run"))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(
            f"\n{options.rows:,} rows, {options.width}x{options.height} JPEG of {size / 1000:.0f} kB each: "
            f"{wall:.1f} s, {cpu:.1f} s CPU"
        )


def _photographs(folder: Path, count: int, width: int, height: int) -> float:
    """Different images; their mean size in bytes."""
    chance = np.random.default_rng(0)
    images = load_sample_images().images
    total = 0
    for number in range(count):
        image = images[number % len(images)]
        top = chance.integers(0, max(1, image.shape[0] - height))
        left = chance.integers(0, max(1, image.shape[1] - width))
        crop = Image.fromarray(image[top : top + height, left : left + width]).resize((width, height))
        path = folder / f"{number}.jpg"
        crop.save(path, quality=int(chance.integers(70, 90)), comment=str(number).encode())
        total += path.stat().st_size
    return total / count


if __name__ == "__main__":
    main()
