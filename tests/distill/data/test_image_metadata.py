"""What leaves this machine as an image: the pixels, and not where and by whom they were taken."""

import asyncio
import base64
import contextlib
import io
import random
from pathlib import Path

import orjson
import pytest
from PIL import ExifTags, Image, PngImagePlugin

from distill.data.images import image_files
from distill.data.images.image_metadata import without_metadata
from distill.recipe.sections.teachers import Teacher
from distill.types import ImageRef
from teacher.engines.image_folders import Folders
from teacher.engines.image_parts import ImageParts

MAX_PIXELS = 10**8
MARKS = (b"CANARY-GPS", b"CANARY-COMMENT", b"CANARY-XMP", b"CANARY-TEXT", b"CANARY-TAIL", b"CANARY-IPTC")


def photo(size: tuple[int, int] = (80, 60)) -> Image.Image:
    rng = random.Random(0)
    return Image.frombytes("RGB", size, rng.randbytes(size[0] * size[1] * 3)).resize(size)


def exif(orientation: int = 1) -> Image.Exif:
    found = Image.Exif()
    found[ExifTags.Base.Orientation] = orientation
    found[ExifTags.Base.ImageDescription] = "CANARY-GPS"
    found.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSMapDatum] = "CANARY-GPS"
    return found


def jpeg(orientation: int = 1, **options: object) -> bytes:
    """A photo with everything that may stand beside its pixels."""
    buffer = io.BytesIO()
    xmp = b"<x:xmpmeta>CANARY-XMP</x:xmpmeta>"
    photo().save(buffer, "JPEG", exif=exif(orientation), comment=b"CANARY-COMMENT", xmp=xmp, **options)
    data = buffer.getvalue()
    iptc = b"Photoshop 3.0\x00CANARY-IPTC"
    segment = b"\xff\xed" + (len(iptc) + 2).to_bytes(2, "big") + iptc
    return data[:2] + segment + data[2:] + b"CANARY-TAIL"


def png(orientation: int = 1) -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_text("Author", "CANARY-TEXT")
    text.add_itxt("XML:com.adobe.xmp", "CANARY-XMP")
    buffer = io.BytesIO()
    photo().save(buffer, "PNG", exif=exif(orientation), pnginfo=text)
    return buffer.getvalue() + b"CANARY-TAIL"


FILES = {
    "baseline": jpeg(),
    "progressive": jpeg(progressive=True),
    "restarts": jpeg(restart_marker_rows=1),
    "subsampled": jpeg(subsampling="4:2:0", quality=40),
    "profile": jpeg(icc_profile=b"a profile of colours"),
    "png": png(),
}


@pytest.mark.parametrize("name", FILES)
def test_metadata_goes_and_every_pixel_and_the_colour_profile_stay(name: str) -> None:
    data = FILES[name]
    assert any(mark in data for mark in MARKS)
    sent, _ = image_files.portable(data, max_pixels=MAX_PIXELS)
    assert [mark for mark in MARKS if mark in sent] == []
    assert len(sent) < len(data) and sent == without_metadata(data) == without_metadata(sent)
    with Image.open(io.BytesIO(sent)) as after, Image.open(io.BytesIO(data)) as before:
        assert after.tobytes() == before.tobytes() and after.format == before.format
        assert not after.getexif()
        assert after.info.get("icc_profile") == before.info.get("icc_profile")


@pytest.mark.parametrize("make", [jpeg, png])
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_turned_photo_is_sent_upright_without_its_metadata(make: object, orientation: int) -> None:
    data = make(orientation)  # type: ignore[operator]
    sent, mime = image_files.portable(data, max_pixels=MAX_PIXELS)
    assert mime == "image/png" and not any(mark in sent for mark in MARKS)
    with Image.open(io.BytesIO(sent)) as after:
        assert after.convert("RGB").tobytes() == image_files.decode(data, max_pixels=MAX_PIXELS).tobytes()


def test_files_that_are_laid_out_oddly_are_refused_and_sent_decoded() -> None:
    data = FILES["baseline"]
    for odd in (b"", b"GIF89a", data[:300], data[: data.rindex(b"\xff\xd9")], png()[:-100]):
        with pytest.raises(ValueError, match=r"JPEG|PNG"):
            without_metadata(odd)
    endless = data[: data.rindex(b"\xff\xd9")] + b"\xff\xd9"[:1] * 2 + b"\xd9"
    sent, _ = image_files.portable(endless, max_pixels=MAX_PIXELS)
    assert not any(mark in sent for mark in MARKS)


def test_damage_never_hangs_or_crashes_the_reader() -> None:
    rng = random.Random(1)
    for data in FILES.values():
        for _ in range(300):
            damaged = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            with contextlib.suppress(ValueError):
                without_metadata(bytes(damaged[: rng.randint(0, len(damaged))]))


def test_no_server_gets_metadata_and_one_that_reads_files_gets_the_path(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(FILES["baseline"])
    ref = ImageRef(sha256=image_files.sha256(FILES["baseline"]), path=str(path))

    def sent(url: str, backend: str) -> bytes:
        teacher = Teacher(name="t", model="m", backend=backend, base_url=url)
        images = ImageParts(teacher, Folders(patience_s=0.0), max_pixels=MAX_PIXELS, urls=teacher.urls)
        part = orjson.loads(asyncio.run(images.part(ref)))
        found: str = part["image_url"]["url"]
        return found.encode() if found.startswith("file://") else base64.b64decode(found.partition(",")[2])

    for url in ("https://far.example/v1", "http://127.0.0.1:1/v1"):
        body = sent(url, "openai")
        assert body.startswith(b"\xff\xd8") and not any(mark in body for mark in MARKS)
    assert sent("http://127.0.0.1:1/v1", "vllm") == path.as_uri().encode()
