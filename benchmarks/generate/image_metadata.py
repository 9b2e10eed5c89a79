"""What it costs to send images without metadata: CPU time of `images.portable` with and without that step.

`python benchmarks/generate/image_metadata.py` prints a line each for a photo of a phone, a small web image and a
chart.
Takes 2 s (two shared cores).
"""

import argparse
import io
import time

import numpy as np
from PIL import ExifTags, Image

from distill.data.images import image_files
from distill.data.images.image_metadata import without_metadata

MAX_PIXELS = 10**8


def pixels(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 255, (height // 16, width // 16, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str) -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "a camera"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSMapDatum] = "somewhere"
    buffer = io.BytesIO()
    image.save(buffer, kind, exif=exif, **({"quality": 92} if kind == "JPEG" else {}))
    return buffer.getvalue()


def milliseconds(work: object, times: int = 30) -> float:
    begun = time.process_time()
    for _ in range(times):
        work()  # type: ignore[operator]
    return (time.process_time() - begun) / times * 1e3


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, size, kind in (
        ("phone photo", (4032, 3024), "JPEG"),
        ("web picture", (640, 480), "JPEG"),
        ("chart", (1200, 800), "PNG"),
    ):
        data = encoded(pixels(*size), kind)
        strip = milliseconds(lambda data=data: without_metadata(data))
        whole = milliseconds(lambda data=data: image_files.portable(data, max_pixels=MAX_PIXELS))
        digest = milliseconds(lambda data=data: image_files.sha256(data))
        print(
            f"{name}: {len(data) / 1e3:,.0f} kB, {len(data) - len(without_metadata(data))} bytes left out, "
            f"{strip:.3f} ms of {whole:.3f} ms for the whole preparation (its digest alone takes {digest:.3f} ms)"
        )


if __name__ == "__main__":
    main()
