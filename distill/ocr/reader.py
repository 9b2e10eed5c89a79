"""Reads text in images with RapidOCR on a CPU; its models are in its wheel, so nothing is downloaded.

Every line has its place and a confidence. The library is optional, the extra `ocr`.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from PIL import Image

from distill import packages

PACKAGES: Final = ("rapidocr", "onnxruntime")
VERSION: Final = "1"
"""Raised whenever the same image could give other lines."""
_SETTINGS: Final = {
    "Global.log_level": "error",
    "Global.use_cls": False,  # it reads short words as if they were upside down
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}
_SMALL: Final = 800
"""An image whose longer side has fewer pixels is read at twice its size: small digits are found there only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """A piece of text in one line of an image; edges as shares of the picture's width and height."""

    text: str
    score: float
    """How sure the reader is of the letters, 0 to 1."""
    left: float
    top: float
    right: float
    bottom: float


def require(purpose: str) -> None:
    """Raises MissingExtra with the line that installs the reader."""
    packages.require(purpose, *PACKAGES)


def identity() -> str:
    """What the lines of an image depend on besides its bytes."""
    return " ".join([VERSION, *(f"{name}-{version(name)}" for name in PACKAGES)])


def read_lines(image: Image.Image) -> tuple[TextLine, ...]:
    """The lines of text of an RGB image, from the top down; none where there is no text."""
    if max(image.size) < _SMALL:
        image = image.resize((2 * image.width, 2 * image.height), Image.Resampling.BICUBIC)
    result = _engine()(np.asarray(image)[:, :, ::-1])
    boxes = result.boxes if result.boxes is not None else ()
    lines = []
    for box, text, score in zip(boxes, result.txts or (), result.scores or (), strict=True):
        xs, ys = np.asarray(box, float).T / np.array([[image.width], [image.height]])
        line = TextLine(
            text=str(text).strip(), score=round(float(score), 4), left=round(float(xs.min()), 4),
            top=round(float(ys.min()), 4), right=round(float(xs.max()), 4), bottom=round(float(ys.max()), 4),
        )  # fmt: skip
        if line.text:
            lines.append(line)
    return tuple(sorted(lines, key=lambda line: (line.top, line.left)))


@cache
def _engine() -> Any:
    """The reader of this process, loaded once; one thread, as a filter has a process for each core."""
    from rapidocr import RapidOCR

    return RapidOCR(params=_SETTINGS)
