"""Synthetic pictures, and questions that can be answered from them."""

import hashlib
import io
import random
from collections.abc import Sequence
from typing import Final

from PIL import Image, ImageDraw

COLOURS: Final = {
    "red": (210, 40, 40),
    "blue": (40, 70, 210),
    "green": (30, 150, 60),
    "orange": (240, 140, 20),
    "purple": (130, 50, 160),
    "black": (20, 20, 20),
}
SHAPES: Final = ("circle", "square", "triangle")
WORDS: Final = (
    "maple",
    "harbour",
    "ticket",
    "violet",
    "copper",
    "lantern",
    "meadow",
    "rocket",
    "saddle",
    "walnut",
    "canyon",
    "pepper",
)
Digest = tuple[str, tuple[int, int]]


class Scene:
    """Some shapes of one kind and colour above a printed word."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.count = rng.randint(1, 6)
        self.colour = rng.choice(list(COLOURS))
        self.shape = rng.choice(SHAPES)
        self.word = rng.choice(WORDS)
        width, height = rng.randrange(100, 200, 4), rng.randrange(80, 180, 4)
        (red, green, blue) = (rng.randrange(215, 256) for _ in range(3))
        self.image = Image.new("RGB", (width, height), (red, green, blue))
        draw = ImageDraw.Draw(self.image)
        side = min((width - 10) // 6, height // 2) - 4
        for i in range(self.count):
            left, top = 6 + i * (side + 4), rng.randrange(4, max(5, height // 2 - side + 4))
            right, bottom = left + side, top + side
            if self.shape == "circle":
                draw.ellipse((left, top, right, bottom), fill=COLOURS[self.colour])
            elif self.shape == "square":
                draw.rectangle((left, top, right, bottom), fill=COLOURS[self.colour])
            else:
                corners = [(left, bottom), (right, bottom), (left + side // 2, top)]
                draw.polygon(corners, fill=COLOURS[self.colour])
        draw.text((8, height - 20), self.word, fill=(0, 0, 0))

    def ask(self, kind: str | None = None) -> tuple[str, str]:
        """A question and its answer."""
        kind = kind or self.rng.choice(["count", "colour", "word", "shape"])
        return {
            "count": (f"How many {self.shape}s are in the image?", str(self.count)),
            "colour": (f"What color are the {self.shape}s?", self.colour),
            "word": ("What word is printed at the bottom?", self.word),
            "shape": (f"Which shape is {self.colour} in this picture?", self.shape),
        }[kind]

    def ask_closed(self, count: int = 4, kind: str | None = None) -> tuple[str, list[str], int]:
        """A question, its choices, and the index of the right one."""
        kind = kind or self.rng.choice(["count", "colour", "word"])
        question, answer = self.ask(kind)
        pools: dict[str, Sequence[str]] = {
            "count": [str(i) for i in range(1, 10)],
            "colour": list(COLOURS),
            "word": WORDS,
        }
        choices = [*self.rng.sample([each for each in pools[kind] if each != answer], count - 1), answer]
        self.rng.shuffle(choices)
        return question, choices, choices.index(answer)

    def claim(self, holds: bool | None = None) -> tuple[str, bool]:
        """What may be in the picture, such as `red circle`, and whether it is."""
        if holds is None:
            holds = self.rng.random() < 0.5
        others = [each for each in COLOURS if each != self.colour]
        return f"{self.colour if holds else self.rng.choice(others)} {self.shape}", holds


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    """The image as the bytes of a file."""
    buffer = io.BytesIO()
    if kind == "PNG":
        image.save(buffer, kind)
    else:
        image.save(buffer, kind, quality=92)
    return buffer.getvalue()


def pixel_digest(image: Image.Image) -> Digest:
    """A hash of the pixels, and the size."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest(), image.size


def digest(data: bytes) -> Digest:
    """The digest of the pixels that a file of an image shows after it was compressed."""
    return pixel_digest(Image.open(io.BytesIO(data)))
