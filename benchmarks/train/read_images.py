"""What it costs to note the images that a stage reads, and to compare them at the start of a finished stage.

    python benchmarks/train/read_images.py --images 10000 --work DIR

Takes 20 s.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from PIL import Image

from distill.data import reader
from distill.data.source_images import ImagesRead, compare_images
from distill.recipe.loading import load

_SETTLED_S = 2.5
"""Images that changed less than two seconds before they are noted are read again at the first comparison."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--work", type=Path, required=True)
    arguments = parser.parse_args()
    work, count = arguments.work, arguments.images
    (work / "images").mkdir(parents=True)
    draw = np.random.default_rng(0)
    names = [f"{number:07d}.png" for number in range(count)]
    for name in names:
        Image.fromarray(draw.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(work / "images" / name)
    rows = [orjson.dumps({"question": f"{name}?", "answer": "4", "image": name}) for name in names]
    (work / "questions.jsonl").write_bytes(b"\n".join(rows))
    (work / "recipe.toml").write_text('[data.questions]\nsource = "questions.jsonl"\nimages_root = "images"\n')
    recipe = load(work / "recipe.toml")
    time.sleep(_SETTLED_S)
    samples = timed("read the source, images decoded", lambda: list(reader.samples(recipe, "questions")))

    def note() -> None:
        images = ImagesRead(recipe)
        for sample in samples:
            images.add("questions", sample.images)
        images.write(work)

    def compare() -> None:
        assert compare_images(recipe, work, remember=True)["questions"].are_same

    timed("note the images", note)
    timed("compare, nothing changed", compare)
    timed("compare again", compare)
    os.utime(work / "images" / names[20])
    timed("compare, one touched", compare)
    for name in names:
        os.utime(work / "images" / name)
    timed("compare, all touched", compare)
    timed("compare again", compare)


def timed(what: str, work: Callable[[], Any]) -> Any:
    begun = time.perf_counter()
    result = work()
    print(f"{what}: {time.perf_counter() - begun:.2f} s")
    return result


if __name__ == "__main__":
    main()
