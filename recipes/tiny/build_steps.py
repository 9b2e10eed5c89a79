"""Write the data of the steps task to recipes/tiny-steps/data: python recipes/tiny/build_steps.py"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import world
from build import as_row, png, write_parquet
from questions import caption, perceive
from steps import STEPS, imagine_program, question_of, run_cells

FOLDER = Path(__file__).resolve().parents[1] / "tiny-steps" / "data"
SEED = 20261123
Maker = Callable[[world.Picture, int, np.random.Generator], dict[str, Any]]


def program_row(image: world.Picture, start: int, _: np.random.Generator) -> dict[str, Any]:
    """A question with its gold answer; `difficulty` is its number of steps."""
    results = run_cells(image.content["cells"], start)
    row = as_row(question_of(start), str(results[-1]), "number", {"start": start, **image.content})
    return {**row, "difficulty": str(len(results) - 1)}


def instruct_row(image: world.Picture, _: int, rng: np.random.Generator) -> dict[str, Any]:
    text, answer = perceive(image, rng)
    return as_row(text, answer, "number" if answer.isdigit() else "text", image.content)


def caption_row(image: world.Picture, _: int, __: np.random.Generator) -> dict[str, Any]:
    return as_row("Describe the image.", caption(image), "text", image.content)


FILES: dict[str, tuple[int, Maker]] = {
    "test": (600, program_row),
    "questions": (1500, program_row),
    "instruct": (1000, instruct_row),
    "captions": (1000, caption_row),
}
"""Rows of every file, and what makes one."""


def build_data(folder: Path) -> None:
    """Write every file. No two share a picture; programs of every number of steps take turns."""
    rng = np.random.default_rng(SEED)
    seen: set[str] = set()
    for name, (count, make) in FILES.items():
        rows = []
        for index in range(count):
            picture, start = imagine_program(STEPS[index % len(STEPS)], rng)
            while picture.key in seen:
                picture, start = imagine_program(STEPS[index % len(STEPS)], rng)
            seen.add(picture.key)
            image = {"bytes": png(world.paint(picture, rng)), "path": None}
            rows.append({"image": image, "domain": "steps", "difficulty": "", **make(picture, start, rng)})
        write_parquet(folder / f"{name}.parquet", rows)


if __name__ == "__main__":
    build_data(FOLDER)
