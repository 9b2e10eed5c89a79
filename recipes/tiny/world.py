"""The tiny world: pictures whose content is known, questions that need several steps, and gold answers.

Three domains. *scenes*: coloured shapes on a 4 x 4 grid. *charts*: four bars drawn from a table. *digits*: six
handwritten digits of scikit-learn's bundled set in two rows. A picture is 96 x 96 pixels, 16 cells of 24 pixels.
Pure functions of a random generator; nothing here trains, writes files or knows of models.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

CELL = 24
GRID = 4
SIZE = CELL * GRID
DOMAINS = ("scenes", "charts", "digits")
COLOURS = {
    "red": (214, 58, 52),
    "blue": (47, 98, 205),
    "green": (44, 148, 76),
    "yellow": (232, 184, 33),
}
BAR_COLOURS = {**COLOURS, "purple": (132, 72, 178), "orange": (238, 124, 40)}
SHAPES = ("circle", "square", "triangle")
EMPTY = "empty"
# Originals of the digit set, split once: a digit image of one split never shows up in another.
DIGIT_SPLITS = {"train": (0, 1250), "validation": (1250, 1400), "test": (1400, 1797)}

Generator = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a picture shows. `key` identifies the content, for splits that share none."""

    domain: str
    content: dict[str, Any]

    @property
    def key(self) -> str:
        return json.dumps([self.domain, self.content], sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a picture with its gold answer; `kind` and `terms` say how it was made."""

    kind: str
    terms: tuple[str, ...]
    text: str
    answer: str


def imagine(domain: str, rng: Generator, split: str = "train") -> Picture:
    """A random picture of a domain; only digits differ by split, the caller keeps the others apart by `key`."""
    if domain == "scenes":
        things = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
        cells = [EMPTY if rng.random() < 0.3 else str(rng.choice(things)) for _ in range(GRID**2)]
        return Picture(domain=domain, content={"cells": cells})
    if domain == "charts":
        colours = rng.choice(list(BAR_COLOURS), size=GRID, replace=False)
        bars = {str(colour): int(rng.integers(1, 10)) for colour in colours}
        return Picture(domain=domain, content={"bars": bars})
    originals = [int(index) for index in rng.integers(*DIGIT_SPLITS[split], size=6)]
    first_row = int(rng.integers(2))
    gaps = rng.integers(GRID, size=2)  # the column each row leaves free
    places = [(first_row + 2 * line, column) for line in range(2) for column in range(GRID) if column != gaps[line]]
    labels = [int(_originals()[1][index]) for index in originals]
    return Picture(domain=domain, content={"digits": labels, "cells": places, "originals": originals})


def paint(image: Picture, rng: Generator) -> Image.Image:
    """The picture as 96 x 96 RGB pixels; sizes, places within a cell and shades vary with `rng`."""
    return {"scenes": _paint_scene, "charts": _paint_chart, "digits": _paint_digits}[image.domain](image.content, rng)


def _paint_scene(content: dict[str, Any], rng: Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), (246, 246, 242))
    pen = ImageDraw.Draw(image)
    for position in range(CELL, SIZE, CELL):
        pen.line((0, position, SIZE, position), fill=(226, 226, 220))
        pen.line((position, 0, position, SIZE), fill=(226, 226, 220))
    for cell, thing in enumerate(content["cells"]):
        if thing != EMPTY:
            colour, shape = thing.split()
            _paint_shape(pen, rng, colour, shape, *divmod(cell, GRID))
    return image


def _paint_shape(pen: ImageDraw.ImageDraw, rng: Generator, colour: str, shape: str, row: int, column: int) -> None:
    radius = int(rng.integers(6, 10))
    reach = CELL // 2 - radius - 1
    centre_x = column * CELL + CELL // 2 + int(rng.integers(-reach, reach + 1))
    centre_y = row * CELL + CELL // 2 + int(rng.integers(-reach, reach + 1))
    fill = _shade(COLOURS[colour], rng)
    left, top, right, bottom = centre_x - radius, centre_y - radius, centre_x + radius, centre_y + radius
    if shape == "circle":
        pen.ellipse((left, top, right, bottom), fill=fill)
    elif shape == "square":
        pen.rectangle((left + 1, top + 1, right - 1, bottom - 1), fill=fill)
    else:
        pen.polygon([(centre_x, top), (left, bottom), (right, bottom)], fill=fill)


def _shade(colour: tuple[int, int, int], rng: Generator) -> tuple[int, int, int]:
    light = int(rng.integers(-22, 23))
    red, green, blue = (min(255, max(0, channel + light)) for channel in colour)
    return red, green, blue


def _paint_chart(content: dict[str, Any], rng: Generator) -> Image.Image:
    image = Image.new("RGB", (SIZE, SIZE), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    floor, unit = SIZE - 5, 10
    for value in range(1, 10):
        shade = 176 if value == 5 else 228
        pen.line((0, floor - value * unit, SIZE, floor - value * unit), fill=(shade, shade, shade))
    for column, (colour, value) in enumerate(content["bars"].items()):
        left = column * CELL + 4 + int(rng.integers(-1, 2))
        fill = _shade(BAR_COLOURS[colour], rng)
        pen.rectangle((left, floor - value * unit, left + CELL - 9, floor), fill=fill)
    pen.line((0, floor + 1, SIZE, floor + 1), fill=(40, 40, 40), width=2)
    return image


def _paint_digits(content: dict[str, Any], rng: Generator) -> Image.Image:
    canvas = np.zeros((SIZE, SIZE), dtype=np.uint8)
    for index, (row, column) in zip(content["originals"], content["cells"], strict=True):
        top, left = (min(SIZE - CELL, max(0, place * CELL + int(rng.integers(-1, 2)))) for place in (row, column))
        original = _originals()[0][index].repeat(3, axis=0).repeat(3, axis=1)
        area = canvas[top : top + CELL, left : left + CELL]
        np.maximum(area, original, out=area)
    return Image.fromarray(255 - canvas).convert("RGB")


@cache
def _originals() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 8, 8) uint8 and labels (1797,) of scikit-learn's bundled handwritten digits."""
    from sklearn.datasets import load_digits  # of the development set-up; teachers of tiny-steps go without

    bundle = load_digits()
    # The bundle is ordered by writer; a fixed shuffle gives every split all of them.
    order = np.random.default_rng(0).permutation(len(bundle.target))
    return (bundle.images[order] * (255 / 16)).astype(np.uint8), bundle.target[order]
