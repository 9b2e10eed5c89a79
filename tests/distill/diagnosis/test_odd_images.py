"""Images that show nothing: of one colour, drawn in white on a transparent ground, or tiny."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from distill.diagnosis import odd_images
from distill.types import ImageRef


def drawing(ink: tuple[int, int, int], ground: tuple[int, int, int, int], number: int) -> Image.Image:
    page = Image.new("RGBA", (40, 40), ground)
    ImageDraw.Draw(page).rectangle((4 + number % 9, 6, 30, 20 + number % 7), fill=(*ink, 255))
    return page


def noise(number: int, size: int = 16) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 255, (size, size, 3), dtype=np.uint8))


CLEAR, DARK = (255, 255, 255, 0), (0, 0, 0, 255)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (noise, []),
        (lambda n: Image.new("RGB", (16, 16), (n, n, n)), ["images_plain"]),
        (lambda n: drawing((250, 250, 250), CLEAR, n), ["images_plain", "images_hidden"]),
        (lambda n: drawing((250, 250, 250), CLEAR, n) if n % 3 else noise(n), ["images_plain", "images_hidden"]),
        (lambda n: drawing((20, 20, 20), CLEAR, n), []),
        (lambda n: drawing((250, 250, 250), DARK, n), []),
        (lambda n: noise(n, 4), ["images_small"]),
    ],
)
def test_the_fault_that_many_images_have_is_named(
    make: Callable[[int], Image.Image], names: list[str], tmp_path: Path
) -> None:
    refs = []
    for number in range(60):
        make(number).save(tmp_path / f"{number}.png")
        refs.append(ImageRef(sha256="", path=str(tmp_path / f"{number}.png")))
    (tmp_path / "broken.png").write_bytes(b"no image")
    refs.append(ImageRef(sha256="", path=str(tmp_path / "broken.png")))
    found = odd_images.find(refs, max_pixels=10_000)
    assert [each.name for each in found] == names
    assert all(each.looked_at == 60 for each in found)
