"""Image decoding on a corpus of ordinary, odd and hostile files made here."""

import io
import os
import random
import resource
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, PngImagePlugin

from distill.data.images import image_cells, image_files, image_paths
from distill.errors import ImageError
from distill.types import ImageRef

MAX_PIXELS = 100_000
Pixel = tuple[int, int, int]


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def colours(width: int = 8, height: int = 6) -> Image.Image:
    """An image whose every pixel differs, so that a turn or a wrong channel order shows."""
    values = np.arange(width * height * 3, dtype=np.uint8).reshape(height, width, 3) * 5
    return Image.fromarray(values)


def decoded(data: bytes) -> Image.Image:
    return image_files.decode(data, max_pixels=MAX_PIXELS)


def reason(data: bytes, max_pixels: int = MAX_PIXELS) -> str:
    with pytest.raises(ImageError) as caught:
        image_files.decode(data, max_pixels=max_pixels)
    return caught.value.reason


def same(one: Image.Image, other: Image.Image) -> bool:
    return one.mode == other.mode == "RGB" and one.size == other.size and one.tobytes() == other.tobytes()


def grey16() -> bytes:
    return encoded(Image.fromarray(np.array([[0, 257, 32768, 65535]], dtype=np.uint16)))


def png_file(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b""
    for name, data in chunks:
        body += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return b"\x89PNG\r\n\x1a\n" + body


def rgb16() -> bytes:
    """A 16-bit RGB PNG, which Pillow reads but does not write."""
    row = b"\0" + struct.pack(">6H", 65535, 0, 0, 0, 32768, 65535)
    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    return png_file((b"IHDR", header), (b"IDAT", zlib.compress(row)), (b"IEND", b""))


def palette(transparent: bool) -> bytes:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    return encoded(image, transparency=1) if transparent else encoded(image)


def animated(kind: str) -> bytes:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((250, 0, 0), (0, 250, 0))]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, lossless=True)


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(colours(), exif=exif)


ODD: dict[str, tuple[Callable[[], bytes], list[Pixel]]] = {
    "grey": (lambda: encoded(Image.new("L", (1, 1), 77)), [(77, 77, 77)]),
    "black and white": (lambda: encoded(Image.new("1", (1, 1), 1)), [(255, 255, 255)]),
    "palette": (lambda: palette(transparent=False), [(255, 0, 0), (0, 0, 255)]),
    "palette with a transparent colour": (lambda: palette(transparent=True), [(255, 0, 0), (255, 255, 255)]),
    "half transparent": (lambda: encoded(Image.new("RGBA", (1, 1), (255, 0, 0, 128))), [(255, 127, 127)]),
    "grey, transparent": (lambda: encoded(Image.new("LA", (1, 1), (0, 0))), [(255, 255, 255)]),
    "colour key": (lambda: encoded(Image.new("RGB", (1, 1), (1, 2, 3)), transparency=(1, 2, 3)), [(255, 255, 255)]),
    "16-bit grey": (grey16, [(0, 0, 0), (1, 1, 1), (128, 128, 128), (255, 255, 255)]),
    "16-bit colour": (rgb16, [(255, 0, 0), (0, 128, 255)]),
    "CMYK": (lambda: encoded(Image.new("CMYK", (1, 1), (0, 0, 0, 0)), "TIFF"), [(255, 255, 255)]),
    "CMYK JPEG": (lambda: encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 255)), "JPEG"), [(0, 0, 0)]),
    "float": (lambda: encoded(Image.fromarray(np.array([[0, 1]], np.float32)), "TIFF"), [(0, 0, 0), (255, 255, 255)]),
    "32-bit integer": (
        lambda: encoded(Image.fromarray(np.array([[0, 65535]], np.int32)), "TIFF"),
        [(0, 0, 0), (255, 255, 255)],
    ),
    "dark 16-bit PPM": (lambda: b"P5 2 1 65535\n" + struct.pack(">2H", 0, 257), [(0, 0, 0), (1, 1, 1)]),
    "animated GIF": (lambda: animated("GIF"), [(250, 0, 0)]),
    "animated PNG": (lambda: animated("PNG"), [(250, 0, 0)]),
    "animated WebP": (lambda: animated("WEBP"), [(250, 0, 0)]),
    "multi-page TIFF": (lambda: animated("TIFF"), [(250, 0, 0)]),
    "BMP": (lambda: encoded(Image.new("RGB", (1, 1), (1, 2, 3)), "BMP"), [(1, 2, 3)]),
}


@pytest.mark.parametrize("name", ODD)
def test_every_kind_of_image_becomes_the_pixels_a_person_sees(name: str) -> None:
    make, expected = ODD[name]
    image = decoded(make())
    assert image.mode == "RGB"
    assert [image.getpixel((column, 0)) for column in range(len(expected))] == expected


@pytest.mark.parametrize("name", ODD)
def test_what_is_sent_to_a_server_has_the_pixels_that_are_decoded_here(name: str) -> None:
    data = ODD[name][0]()
    sent, mime = image_files.portable(data, max_pixels=MAX_PIXELS)
    assert mime in ("image/png", "image/jpeg")
    with Image.open(io.BytesIO(sent)) as image:
        assert same(image.convert("RGB"), decoded(data))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photo_is_turned_back_here_and_for_a_server(orientation: int) -> None:
    steps = {
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    step = steps[orientation]
    expected = colours() if step is None else colours().transpose(step)
    data = turned(orientation)
    assert same(decoded(data), expected)
    sent, _ = image_files.portable(data, max_pixels=MAX_PIXELS)
    assert image_files.is_portable(data, max_pixels=MAX_PIXELS) is (orientation == 1)
    assert b"eXIf" in data and b"eXIf" not in sent
    with Image.open(io.BytesIO(sent)) as image:
        assert image.getexif().get(0x0112, 1) == 1
        assert same(image.convert("RGB"), expected)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_an_unreadable_exif_block_turns_nothing_and_stops_nothing() -> None:
    data = encoded(colours(), exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert same(decoded(data), colours())
    sent, _ = image_files.portable(data, max_pixels=MAX_PIXELS)
    with Image.open(io.BytesIO(sent)) as image:
        assert same(image.convert("RGB"), colours())


@pytest.mark.parametrize(("kind", "mode"), [("PNG", "RGB"), ("PNG", "L"), ("JPEG", "RGB"), ("JPEG", "L")])
def test_plain_files_pass_through_untouched(kind: str, mode: str) -> None:
    data = encoded(colours().convert(mode), kind)
    assert image_files.portable(data, max_pixels=MAX_PIXELS) == (data, f"image/{kind.lower()}")


def test_damaged_and_foreign_files_have_counted_reasons() -> None:
    png, jpeg = encoded(colours(60, 60)), encoded(colours(60, 60), "JPEG")
    assert reason(b"") == "empty_image"
    assert reason(b"not an image") == "unreadable_image"
    assert reason(b"<svg xmlns='http://www.w3.org/2000/svg'/>") == "unreadable_image"
    assert reason(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n") == "unreadable_image"
    assert reason(png[: len(png) // 2]) == "truncated_image"
    assert reason(jpeg[: len(jpeg) // 2]) == "truncated_image"
    assert reason(png[:20]) == "unreadable_image"
    assert reason(encoded(colours(101, 100)), max_pixels=10_000) == "too_many_pixels"


def test_a_decompression_bomb_is_refused_from_its_header() -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = png_file((b"IHDR", header), (b"IDAT", zlib.compress(b"0" * 100)), (b"IEND", b""))
    assert reason(bomb) == "too_many_pixels"
    with pytest.raises(ImageError, match="pixels"):
        image_files.portable(bomb, max_pixels=MAX_PIXELS)


def test_a_text_chunk_that_unpacks_to_gigabytes_is_refused() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("comment", "0" * 100_000_000, zip=True)
    assert reason(encoded(colours(), pnginfo=info)) == "unreadable_image"


@pytest.mark.filterwarnings("ignore")  # Pillow warns of what it repairs
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_files_damaged_at_random_give_an_image_or_an_image_error_and_nothing_else(kind: str) -> None:
    chance = random.Random(kind)
    whole = encoded(colours(40, 30), kind)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        try:
            assert decoded(bytes(data)).mode == "RGB"
        except ImageError as error:
            assert error.reason in ("unreadable_image", "truncated_image", "too_many_pixels", "empty_image")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options",
    [{}, {"progressive": True}, {"subsampling": 0, "quality": 95}, {"restart_marker_blocks": 2}],
    ids=["plain", "progressive", "fine", "restarts"],
)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_check_finds_in_damaged_photos_exactly_what_decoding_them_finds(mode: str, options: dict[str, Any]) -> None:
    def finding(look: Callable[..., object], data: bytes) -> str:
        try:
            look(data, max_pixels=MAX_PIXELS)
        except ImageError as error:
            return error.reason
        return "sound"

    chance = random.Random(f"{mode} {options}")
    whole = encoded(colours(203, 151).convert(mode), "JPEG", **options)
    found: Counter[str] = Counter()
    for number in range(300):
        data = bytearray(whole)
        if number % 3 == 0:
            del data[chance.randrange(len(data)) :]
        else:
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(700 if number % 3 == 1 else len(data))] = chance.randrange(256)
        decoding = finding(image_files.decode, bytes(data))
        assert finding(image_files.check, bytes(data)) == decoding
        found[decoding] += 1
    assert len(found) >= 3 and min(found["sound"], found["truncated_image"]) > 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.png").write_bytes(encoded(colours()))
    (tmp_path / "inside" / "a.png").write_bytes(encoded(colours()))
    return tmp_path


def test_only_regular_files_of_sane_size_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe.png")
    monkeypatch.setattr(image_files, "MAX_BYTES", 1000)
    (folder / "huge.png").write_bytes(b"0" * 1001)
    reasons = {}
    for name in ("nothing.png", "inside", "pipe.png", "huge.png", "a.png/b.png", "nul\0.png", "x" * 5000):
        with pytest.raises(ImageError) as caught:
            image_files.read_file(folder / name)
        reasons[name] = caught.value.reason
    assert reasons["nothing.png"] == "missing_image"
    assert reasons["huge.png"] == "too_many_bytes"
    assert {reasons[name] for name in ("inside", "pipe.png", "nul\0.png", "x" * 5000)} == {"unreadable_image"}


def test_no_path_leaves_the_root_even_through_a_link(folder: Path) -> None:
    root = folder / "inside"
    (root / "link.png").symlink_to(folder / "secret.png")
    (root / "loop").symlink_to(root / "loop")
    (root / "way_out").symlink_to(folder)
    (root / "alias.png").symlink_to(root / "a.png")
    outside = ("../secret.png", "link.png", str(folder / "secret.png"), "way_out/secret.png", "x/../../secret.png")
    for name in (*outside, f"file://{folder}/secret.png", "/etc/passwd", "~/x/../../../etc/passwd"):
        with pytest.raises(ImageError) as caught:
            image_paths.path_within(root, name, allow_outside=False)
        assert caught.value.reason == "path_outside_root"
    for name in ("a.png", "./a.png", "../inside/a.png", "alias.png", str(root / "a.png"), f"file://{root}/a.png"):
        assert image_paths.path_within(root, name, allow_outside=False) == root / "a.png"
    assert image_paths.path_within(root, "link.png", allow_outside=True) == folder / "secret.png"


def test_the_links_of_a_snapshot_in_the_cache_of_the_hub_lead_to_its_own_blobs_alone(folder: Path) -> None:
    own, other = folder / "datasets--me--mine", folder / "datasets--me--other"
    root = own / "snapshots" / "0a1b" / "images"
    root.mkdir(parents=True)
    for repository in (own, other):
        (repository / "blobs").mkdir(parents=True)
        (repository / "blobs" / "f00d").write_bytes(b"")
    (root / "a.png").symlink_to("../../../blobs/f00d")
    (root / "b.png").symlink_to(other / "blobs" / "f00d")
    (root / "c.png").symlink_to(folder / "secret.png")
    assert image_paths.path_within(root, "a.png", allow_outside=False) == own / "blobs" / "f00d"
    for name in ("b.png", "c.png"):
        with pytest.raises(ImageError):
            image_paths.path_within(root, name, allow_outside=False)


def test_an_image_that_changed_since_it_was_read_is_refused(folder: Path) -> None:
    path = folder / "inside" / "a.png"
    ref = ImageRef(sha256=image_files.sha256(path.read_bytes()), path=str(path))
    assert same(image_files.load(ref, max_pixels=MAX_PIXELS), colours())
    path.write_bytes(encoded(colours(4, 4)))
    with pytest.raises(ImageError) as caught:
        image_files.load(ref, max_pixels=MAX_PIXELS)
    assert caught.value.reason == "changed_image"


def make_images(count: int) -> list[bytes]:
    return [encoded(Image.new("RGB", (2, 2), (number, 0, 0))) for number in range(count)]


def test_images_inside_parquet_are_found_by_row_and_index_in_any_order(tmp_path: Path) -> None:
    data = make_images(40)
    table = pa.table(
        {
            "bytes": pa.array(data, pa.binary()),
            "image": [{"bytes": item, "path": None} for item in data],
            "images": [[{"bytes": item, "path": "a.png"}, {"bytes": data[0], "path": None}] for item in data],
        }
    )
    path = str(tmp_path / "t.parquet")
    pq.write_table(table, path, row_group_size=7)
    order = list(range(40))
    random.Random(0).shuffle(order)
    for row in order:
        for column in ("bytes", "image", "images"):
            ref = ImageRef(sha256=image_files.sha256(data[row]), path=path, column=column, row=row)
            assert image_files.read_bytes(ref) == data[row]
    assert image_files.read_bytes(ImageRef(sha256="", path=path, column="images", row=3, index=1)) == data[0]


def test_a_row_group_read_in_order_is_read_from_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"image": pa.array(make_images(20), pa.binary())}), path, row_group_size=5)
    groups: list[int] = []
    read = pq.ParquetFile.read_row_group

    def counted(self: pq.ParquetFile, group: int, **options: object) -> pa.Table:
        groups.append(group)
        return read(self, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    for row in range(20):
        image_cells.read_cell(path, "image", row, 0)
    assert groups == [0, 1, 2, 3]


def test_a_cell_that_is_not_there_has_a_reason(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"image": pa.array([b"x", None], pa.binary()), "images": [[b"x"], []]}), path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no table PAR1")
    cases = {
        (path, "image", 1, 0): "missing_image",
        (path, "images", 1, 0): "missing_image",
        (path, "image", 9, 0): "unreadable_image",
        (path, "pictures", 0, 0): "unreadable_image",
        (str(tmp_path / "gone.parquet"), "image", 0, 0): "missing_image",
        (str(tmp_path / "broken.parquet"), "image", 0, 0): "unreadable_image",
    }
    for (file, column, row, index), expected in cases.items():
        with pytest.raises(ImageError) as caught:
            image_cells.read_cell(file, column, row, index)
        assert caught.value.reason == expected


def test_arrow_files_are_read_in_both_of_their_layouts(tmp_path: Path) -> None:
    data = make_images(5)
    table = pa.table({"image": pa.array(data, pa.binary())})
    for name, writer in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        path = tmp_path / f"{name}.arrow"
        with writer(str(path), table.schema) as sink:
            sink.write_table(table, max_chunksize=2)
        assert [image_cells.read_cell(str(path), "image", row, 0) for row in range(5)] == data


def test_a_limit_of_open_files_is_no_fault_of_an_image(tmp_path: Path) -> None:
    (path := tmp_path / "a.png").write_bytes(encoded(colours()))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1_000), before[1]))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many open files"):
            image_files.read_file(path)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert image_files.read_file(path)


FULL = """
import resource, sys
from pathlib import Path
from distill.data.images import image_files
path = Path(sys.argv[1])
image_files.decode(path.read_bytes(), max_pixels=10**8).close()
pages = int(Path("/proc/self/statm").read_text().split()[0])
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(sys.argv[2]), before[1]))
for ask in (image_files.decode, image_files.check, image_files.portable):
    try:
        ask(path.read_bytes(), max_pixels=10**8)
    except Exception as error:
        print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_AS, before)
print(image_files.decode(path.read_bytes(), max_pixels=10**8).size)
"""


@pytest.mark.parametrize("room", [1_000_000, 150_000_000])
def test_full_memory_is_no_fault_of_an_image(tmp_path: Path, room: int) -> None:
    """With much room the pixels can be read, and not turned: an image that stays unturned is a wrong one."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (6000, 4000)).save(tmp_path / "large.png", compress_level=1, exif=exif)
    command = [sys.executable, "-c", FULL, str(tmp_path / "large.png"), str(room)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["MemoryError"] * 3 + ["(4000, 6000)"]
