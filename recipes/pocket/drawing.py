"""Pictures of the pocket world, 240 x 240, and what is where in them: for the tower's lessons, never for students.

Three kinds: things on a plain ground, bar charts with printed values, and receipts or notices. The font is Pillow's
own. Lines of text lie on the rows of a grid of 6 x 6 cells, names start at one edge and numbers end at another: a
cell becomes an image token of the student.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sources import Thing

SIZE = 240
CELL = 40
"""Side of a cell, a patch of the tower."""
TOP = 50
"""Middle of the first line of text under a heading; lines are a cell apart."""
LEFT, RIGHT = 8, 210
"""Left edge of names and right edge of numbers: each of two digits lies in a cell of its own."""
GRID = 3
"""Rows and columns of places for things."""
Generator = np.random.Generator
GROUNDS = ((255, 255, 255), (246, 244, 236), (236, 243, 248), (240, 247, 238))
TEXT = 15
INK = (30, 30, 30)
BARS = ((31, 119, 180), (214, 92, 40), (44, 140, 60), (148, 80, 170), (90, 90, 100), (190, 140, 20))


@dataclass(kw_only=True)
class Drawing:
    """A picture and where its words and things lie."""

    image: Image.Image
    words: list[tuple[str, float, float, int]] = field(default_factory=list)
    """Text, left edge, middle line and font size."""
    boxes: list[tuple[Thing, tuple[int, int, int, int]]] = field(default_factory=list)


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def write(drawing: Drawing, text: str, left: float, middle: float, size: int, fill: tuple[int, int, int]) -> None:
    """Text from a left edge, which goes to a whole pixel, its middle line at a height."""
    left = round(left)
    ImageDraw.Draw(drawing.image).text((left, middle), text, fill=fill, font=font(size), anchor="lm")
    drawing.words.append((text, left, middle, size))


@cache
def cut_out(thing: Thing) -> Image.Image:
    """A thing's picture without empty margins, at most 220 pixels wide and high."""
    image = Image.open(thing.path).convert("RGBA")
    image = image.crop(image.getchannel("A").getbbox() or (0, 0, *image.size))
    image.thumbnail((220, 220))
    return image


def ground(rng: Generator) -> Drawing:
    return Drawing(image=Image.new("RGB", (SIZE, SIZE), GROUNDS[rng.integers(len(GROUNDS))]))


def place(drawing: Drawing, thing: Thing, side: int, left: int, top: int, rng: Generator) -> None:
    """A thing inside a square; it may look either way."""
    image = cut_out(thing)
    scale = side / max(image.size)
    image = image.resize([max(1, round(length * scale)) for length in image.size])
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    left += (side - image.width) // 2
    top += (side - image.height) // 2
    drawing.image.paste(image, (left, top), image)
    drawing.boxes.append((thing, (left, top, left + image.width, top + image.height)))


def draw_things(chosen: list[Thing], rng: Generator) -> tuple[Drawing, list[int]]:
    """Things in different places of a 3 x 3 grid, or one that fills the picture; the places, ascending."""
    drawing = ground(rng)
    if len(chosen) == 1:
        side = int(rng.integers(150, 215))
        left, top = (int(edge) for edge in rng.integers(4, SIZE - side - 3, size=2))
        place(drawing, chosen[0], side, left, top, rng)
        return drawing, [4]
    places = sorted(int(cell) for cell in rng.choice(GRID**2, size=len(chosen), replace=False))
    pitch = SIZE // GRID
    for thing, cell in zip(chosen, places, strict=True):
        side = int(rng.integers(60, 72))
        row, column = divmod(cell, GRID)
        slack = pitch - side - 8
        left, top = (int(edge) for edge in rng.integers(4, slack + 5, size=2))
        place(drawing, thing, side, column * pitch + left, row * pitch + top, rng)
    return drawing, places


def draw_chart(title: str, rows: list[tuple[str, int]], rng: Generator) -> Drawing:
    """Bars with their labels at the left and their values at the right."""
    drawing = ground(rng)
    write(drawing, title, LEFT, TOP - 36, 13, INK)
    colours = [BARS[index] for index in rng.permutation(len(BARS))]
    one_colour = rng.random() < 0.5
    highest = max(value for _, value in rows)
    pen = ImageDraw.Draw(drawing.image)
    pen.line((109, TOP - 18, 109, TOP + CELL * len(rows) - 22), fill=(60, 60, 60))
    for index, (label, value) in enumerate(rows):
        middle = TOP + CELL * index
        right = 110 + max(2, round(70 * value / highest))
        pen.rectangle((110, middle - 11, right, middle + 11), fill=colours[0 if one_colour else index])
        _line(drawing, label, str(value), middle)
    return drawing


def draw_page(title: str, lines: list[tuple[str, str]], rng: Generator) -> Drawing:
    """A receipt or a notice: a heading, then lines of a name at the left and a number at the right."""
    drawing = ground(rng)
    write(drawing, title, LEFT + int(rng.integers(0, 60)), TOP - 34, 18, INK)
    ImageDraw.Draw(drawing.image).line((LEFT, TOP - 19, SIZE - 12, TOP - 19), fill=(120, 120, 120))
    for index, (name, value) in enumerate(lines):
        _line(drawing, name, value, TOP + CELL * index)
    return drawing


def _line(drawing: Drawing, name: str, value: str, middle: float) -> None:
    write(drawing, name, LEFT, middle, TEXT, INK)
    write(drawing, value, RIGHT - font(TEXT).getlength(value), middle, TEXT, INK)
