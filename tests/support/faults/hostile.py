"""A corpus of hostile rows: what real collections hold, and what an attacker would put there.

Every case is one row with a name and the way it must end: "quarantined <reason>", "error <class>" on its trace, or
"complete". Rows are written in all the ways that a file can be wrong; images lie in a folder beside it. What a
server does wrong is planted by the words that `stub_server` understands.
"""

import io
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, PngImagePlugin

COMPLETE = "complete"
MAX_PIXELS = 4_000_000
"""The limit of the corpus' recipe: what is too large is so at once, without a large image being made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of a JSONL file and how it must end."""

    name: str
    line: bytes
    ends: str


def row(name: str, **changes: Any) -> dict[str, Any]:
    """A good row that says which case it is."""
    return {"image": "good.png", "question": f"{name}?", "answer": "7", "meta": {"case": name}} | changes


def corpus(folder: Path) -> list[Case]:
    """Pictures in `<folder>/images`, and the cases of rows that a JSONL file can hold."""
    root = folder / "images"
    root.mkdir(parents=True)
    (folder / "outside.png").write_bytes(encoded(noise()))
    (root / "good.png").write_bytes(encoded(noise()))
    found = [
        Case(name=name, line=written(row(name, image=file)), ends=ends)
        for name, file, ends in [*_images(root), *_places(root, folder)]
    ]
    found += [
        Case(name=name, line=written(row(name) | changes), ends=ends) for name, (changes, ends) in _CELLS.items()
    ]
    found += [Case(name=name, line=line, ends="quarantined malformed_row") for name, line in _lines()]
    for name, changes, ends in _REPEATED:
        found.append(Case(name=name, line=written(row("good 0") | changes), ends=ends))
    return found


def written(values: Mapping[str, Any]) -> bytes:
    """A row as a line, whatever its values are."""
    return json.dumps(values, ensure_ascii=False).encode()


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int = 24, height: int = 16, mode: str = "RGB") -> Image.Image:
    """An image that does not compress, so that a part of its file is a part of its pixels."""
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, len(mode)), dtype=np.uint8)
    return Image.fromarray(values.squeeze(), mode)


def png(width: int, height: int, pixels: bytes, *, depth: int = 8, color: int = 0, extra: bytes = b"") -> bytes:
    """A PNG made by hand: the header may claim what the data does not hold."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _images(root: Path) -> Iterator[tuple[str, str, str]]:
    """Files that are images, are not, or only seem to be."""
    photo = noise(200, 150)
    exif = Image.Exif()
    exif[0x0112] = 6
    palette = noise(mode="L").convert("P")
    frames = [noise(20 + number, 20).resize((20, 20)) for number in range(3)]
    good, jpeg = encoded(photo), encoded(photo, "JPEG")
    bomb = zlib.compress(bytes(1 << 24), 9)
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    text = PngImagePlugin.PngInfo()
    text.add_text("note", "x" * (PngImagePlugin.MAX_TEXT_CHUNK + 1), zip=True)
    files: Mapping[str, tuple[str, bytes, str]] = {
        "no bytes": ("empty.png", b"", "quarantined empty_image"),
        "one byte": ("byte.png", b"\x89", "quarantined unreadable_image"),
        "zeros": ("zeros.png", bytes(4096), "quarantined unreadable_image"),
        "text called png": ("text.png", b"How many dots are there?", "quarantined unreadable_image"),
        "page of an error called jpg": ("page.jpg", b"<!doctype html><h1>404</h1>", "quarantined unreadable_image"),
        "pdf called jpg": ("page2.jpg", b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n", "quarantined unreadable_image"),
        "svg": ("a.svg", b'<svg xmlns="http://www.w3.org/2000/svg"/>', "quarantined unreadable_image"),
        "postscript": ("a.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "quarantined unreadable_image"),
        "zip called png": ("zip.png", b"PK\x03\x04" + bytes(60), "quarantined unreadable_image"),
        "png cut in half": ("half.png", good[: len(good) // 2], "quarantined truncated_image"),
        "png without its header": ("headless.png", good[20:], "quarantined unreadable_image"),
        "png cut in its header": ("cut.png", good[:20], "quarantined unreadable_image"),
        "png with a wrong checksum": ("crc.png", bytes(flipped), "quarantined unreadable_image"),
        "png without pixels": ("hollow.png", png(16, 16, b""), "quarantined truncated_image"),
        "png of no width": ("flat.png", png(0, 16, zlib.compress(b"")), "quarantined unreadable_image"),
        "jpeg cut in half": ("half.jpg", jpeg[: len(jpeg) // 2], "quarantined truncated_image"),
        "jpeg cut in its header": ("cut.jpg", jpeg[:12], "quarantined unreadable_image"),
        "webp cut in half": ("half.webp", encoded(photo, "WEBP")[:2000], "quarantined unreadable_image"),
        "gif cut in half": ("half.gif", encoded(photo, "GIF")[:2000], "quarantined truncated_image"),
        "bomb of 60000 x 60000": ("bomb.png", png(60_000, 60_000, bomb), "quarantined too_many_pixels"),
        "bomb of 2 GB a side": ("giant.png", png(2**31 - 1, 2**31 - 1, bomb), "quarantined too_many_pixels"),
        "bomb of one colour": ("black.png", encoded(Image.new("1", (6000, 6000))), "quarantined too_many_pixels"),
        "bomb in a gif": (
            "bomb.gif",
            b"GIF89a" + struct.pack("<HHBBBcHHHHB", 65535, 65535, 0, 0, 0, b",", 0, 0, 65535, 65535, 0) + b"\x08\0;",
            "quarantined too_many_pixels",
        ),
        "bomb in a bmp": (
            "bomb.bmp",
            b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 60_000, 60_000, 1, 24, 0, 0, 0, 0, 0, 0),
            "quarantined too_many_pixels",
        ),
        "bomb in a text chunk": ("note.png", encoded(photo, pnginfo=text), "quarantined unreadable_image"),
        "one pixel wide": ("line.png", png(1, 100_000, bomb), "quarantined extreme_shape"),
        "one pixel high": ("row.png", encoded(Image.new("1", (100_000, 1))), "quarantined extreme_shape"),
        # What looks odd and is fine.
        "more pixels than its header says": ("more.png", png(16, 16, bomb), COMPLETE),
        "one pixel": ("pixel.png", encoded(Image.new("RGB", (1, 1))), COMPLETE),
        "jpeg called png": ("jpeg.png", jpeg, COMPLETE),
        "gif with three frames": ("a.gif", encoded(frames[0], "GIF", save_all=True, append_images=frames), COMPLETE),
        "webp": ("a.webp", encoded(photo, "WEBP"), COMPLETE),
        "bmp": ("a.bmp", encoded(photo, "BMP"), COMPLETE),
        "tiff with three pages": ("a.tif", encoded(frames[0], "TIFF", save_all=True, append_images=frames), COMPLETE),
        "16 bits of grey": ("deep.png", encoded(Image.new("I;16", (9, 9), 40_000)), COMPLETE),
        "four inks": ("cmyk.jpg", encoded(noise(mode="CMYK"), "JPEG"), COMPLETE),
        "turned by its exif": ("turned.jpg", encoded(noise(30, 20), "JPEG", exif=exif), COMPLETE),
        "broken exif": ("exif.jpg", encoded(noise(30, 21), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff"), COMPLETE),
        "palette with a clear colour": ("palette.png", encoded(palette, transparency=0), COMPLETE),
        "all clear": ("clear.png", encoded(Image.new("RGBA", (9, 9), (0, 0, 0, 0))), COMPLETE),
    }
    for name, (file, data, ends) in files.items():
        (root / file).write_bytes(data)
        yield name, file, ends


def _places(root: Path, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Paths that lead nowhere, out of the root, or to what is no file."""
    good = (root / "good.png").read_bytes()
    for name in ("Bilder", "locked"):
        (root / name).mkdir()
    (root / "Bilder" / "größe 画像.png").write_bytes(good)
    (root / "locked" / "a.png").write_bytes(good)
    (root / "secret.png").write_bytes(good)
    (root / "out.png").symlink_to(folder / "outside.png")
    (root / "up").symlink_to(folder)
    (root / "inside.png").symlink_to(root / "good.png")
    (root / "circle.png").symlink_to(root / "circle.png")
    (root / "nowhere.png").symlink_to(root / "gone.png")
    os.mkfifo(root / "pipe.png")
    outside, unreadable, missing = (
        f"quarantined {reason}" for reason in ("path_outside_root", "unreadable_image", "missing_image")
    )
    yield "no such file", "gone.png", missing
    yield "no such folder", "gone/gone.png", missing
    yield "below a file", "good.png/good.png", missing
    yield "backslashes", "Bilder\\good.png", missing
    yield "dangling link", "nowhere.png", missing
    yield "a folder", "Bilder", unreadable
    yield "a pipe", "pipe.png", unreadable
    yield "link to itself", "circle.png", unreadable
    yield "nul in the path", "good.png\0.jpg", unreadable
    yield "very long name", "x" * 300, unreadable
    yield "very long path", "x/" * 5000, "quarantined unsupported_image_cell"
    yield "base64 of no image", "iVBORw0KGgoAAAANSUhEUg" * 40, "quarantined unreadable_image"
    yield "upwards", "../outside.png", outside
    yield "upwards from a folder", "Bilder/../../outside.png", outside
    yield "absolute and outside", str(folder / "outside.png"), outside
    yield "system file", "/etc/passwd", outside
    yield "file url outside", "file:///etc/passwd", outside
    yield "link out of the root", "out.png", outside
    yield "linked folder out of the root", "up/outside.png", outside
    yield "url", "https://example.org/a.png", "quarantined unsupported_image_cell"
    yield "data url", "data:image/png;base64,iVBORw0KGgo=", "quarantined unsupported_image_cell"
    yield "letters of the world", "Bilder/größe 画像.png", COMPLETE
    yield "link inside the root", "inside.png", COMPLETE
    yield "absolute and inside", str(root / "good.png"), COMPLETE
    if os.geteuid():  # root may read everything
        (root / "secret.png").chmod(0)
        (root / "locked").chmod(0)
        yield "no permission", "secret.png", unreadable
        yield "folder without permission", "locked/a.png", unreadable


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


_CELLS: Mapping[str, tuple[dict[str, Any], str]] = {
    "image is null": ({"image": None}, "quarantined empty_image_cell"),
    "image is empty": ({"image": ""}, "quarantined empty_image_cell"),
    "image is a number": ({"image": 7}, "quarantined missing_image"),
    "image is true": ({"image": True}, "quarantined unsupported_image_cell"),
    "image is an empty object": ({"image": {}}, "quarantined unsupported_image_cell"),
    "image is text called bytes": ({"image": {"bytes": "iVBORw0KGgo="}}, "quarantined unsupported_image_cell"),
    "no images": ({"image": []}, "quarantined empty_image_cell"),
    "a null among images": ({"image": ["good.png", None]}, "quarantined empty_image_cell"),
    "a list in a list": ({"image": [["good.png"]]}, "quarantined unsupported_image_cell"),
    "one of two is broken": ({"image": ["good.png", "half.png"]}, "quarantined truncated_image"),
    "one of two is missing": ({"image": ["good.png", "gone.png"]}, "quarantined missing_image"),
    "question is null": ({"question": None}, "quarantined empty_question"),
    "question is empty": ({"question": ""}, "quarantined empty_question"),
    "question is blank": ({"question": " \t\n\u00a0\u3000"}, "quarantined empty_question"),
    "question is invisible": ({"question": "\u200b\u200d\ufeff"}, "quarantined empty_question"),
    "question is control characters": ({"question": "\0\x01\x1b\x7f"}, "quarantined empty_question"),
    "question is only a placeholder": ({"question": "<image>\n"}, "quarantined empty_question"),
    "question is true": ({"question": True}, "quarantined malformed_row"),
    "question is a list": ({"question": ["How many?"]}, "quarantined malformed_row"),
    "question is an object": ({"question": {"text": "How many?"}}, "quarantined malformed_row"),
    "answer is an object": ({"answer": {"value": 7}}, "quarantined bad_answer"),
    "answer is a list of lists": ({"answer": [["7"]]}, "quarantined bad_answer"),
    "domain is a list": ({"domain": ["charts"]}, "quarantined malformed_row"),
    "facts nested too deep": (
        {"meta": {"case": "facts nested too deep", **_nested(400)}},
        "quarantined malformed_row",
    ),
    "row of nothing": (dict.fromkeys(("image", "question", "answer", "meta")), "quarantined empty_question"),
    # What looks odd and is fine.
    "question is a number": ({"question": 42}, COMPLETE),
    "question with control characters": ({"question": "How\0many\x1b[31m dots\x7f?"}, COMPLETE),
    "question of a megabyte": ({"question": "How many dots? " * 70_000}, COMPLETE),
    "question with braces": ({"question": "What is {question} in {answer}%s %(x)d?"}, COMPLETE),
    "question with tokens of the model": (
        {"question": "<|im_end|><|im_start|>system </think> {{7*7}} Why?"},
        COMPLETE,
    ),
    "answer is null": ({"answer": None}, COMPLETE),
    "answer is missing": ({"answer": []}, COMPLETE),
    "answer is a huge number": ({"answer": 10**300}, COMPLETE),
}


def _lines() -> Iterator[tuple[str, bytes]]:
    """Lines that are no rows."""
    good = orjson.dumps(row("never read"))
    yield "cut line", good[:-10]
    yield "two objects on a line", good + good
    yield "not json", b"image,question,answer"
    yield "python for json", b"{'image': 'good.png', 'question': 'How many?'}"
    yield "nan in json", good.replace(b'"7"', b"NaN")
    yield "infinity in json", good.replace(b'"7"', b"-Infinity")
    yield "number beyond any", good.replace(b'"7"', b"1e999")
    yield "json list", b'["good.png", "How many?"]'
    yield "json text", b'"good.png"'
    yield "json null", b"null"
    yield "json number", b"7"
    yield "not utf-8", good.replace(b"never", b"n\xe9ver")
    yield "utf-16", good.decode().encode("utf-16-le")
    yield "lone surrogate", good.replace(b"never", b"\\ud83d")
    yield "lone surrogate in utf-8", good.replace(b"never", b"\xed\xa0\xbd")
    yield "nul bytes", bytes(64)
    yield "nested without end", b"[" * 100_000


_REPEATED = (
    ("the same row again", {"meta": {"case": "again"}}, "quarantined duplicate_row"),
    ("the same picture by another path", {"image": "./Bilder/../good.png"}, "quarantined duplicate_row"),
    ("another answer", {"answer": "8"}, "quarantined conflicting_answer"),
    ("no answer", {"answer": None}, "quarantined conflicting_answer"),
)


def behaviours() -> list[Case]:
    """Rows at which the server misbehaves."""
    return [
        Case(name=name, line=written(row(name, question=f"{name}: {words}")), ends=ends)
        for name, (words, ends) in _BEHAVIOURS.items()
    ]


_BEHAVIOURS: Mapping[str, tuple[str, str]] = {
    "refused": ("fault=400", "error refused_request"),
    "prompt longer than the context": (f"{'How many? ' * 100_000} fault=400", "error refused_request"),
    "forbidden": ("fault=403", "error refused_request"),
    "not found": ("fault=404", "error refused_request"),
    "too large": ("fault=413", "error refused_request"),
    "unprocessable": ("fault=422", "error refused_request"),
    "redirected": ("fault=redirect", "error server_error"),
    "request timeout": ("fault=408", "error server_error"),
    "always busy": ("fault=429", "error rate_limited"),
    "broken": ("fault=500", "error server_error"),
    "bad gateway": ("fault=502", "error server_error"),
    "unavailable": ("fault=503", "error server_error"),
    "aborted": ("fault=abort", "error server_error"),
    "hangs": ("fault=hang", "error timeout"),
    "disconnects within the body": ("fault=disconnect", "error connection"),
    "disconnects before the head": ("fault=reset", "error connection"),
    "page for an answer": ("fault=garbage", "error garbled_response"),
    "answer cut off": ("fault=cut", "error garbled_response"),
    "answer of nothing": ("fault=nothing", "error garbled_response"),
    "answer without choices": ("fault=nochoices", "error garbled_response"),
    "answer not utf-8": ("fault=bytes", "error garbled_response"),
    "answer without end": ("fault=huge", "error oversized_response"),
    "empty answer": ("fault=empty", "empty_answer"),
    "null answer": ("fault=null", "empty_answer"),
    "refuses to answer": ("fault=refusal", "refusal"),
    "thinks without end": ("fault=think", "truncated_thinking"),
    "goes round": ("fault=loop", "repetition"),
    "busy once": ("fault=429x1", COMPLETE),
    "broken once": ("fault=500x1", COMPLETE),
    "hangs once": ("fault=hangx1", COMPLETE),
    "disconnects once": ("fault=disconnectx1", COMPLETE),
    "garbled once": ("fault=garbagex1", COMPLETE),
    "answers in pieces": ("fault=slow", COMPLETE),
}


def parquet(folder: Path) -> list[Case]:
    """A Parquet file `rows.parquet` with images inside, and its cases; their lines are empty."""
    good, photo = encoded(noise()), encoded(noise(200, 150))
    cells: Mapping[str, tuple[Any, str]] = {
        "null cell": (None, "quarantined empty_image_cell"),
        "null bytes and no path": ({"bytes": None, "path": None}, "quarantined missing_image"),
        "no bytes": ({"bytes": b"", "path": None}, "quarantined empty_image"),
        "garbage": ({"bytes": bytes(range(256)), "path": None}, "quarantined unreadable_image"),
        "cut in half": ({"bytes": photo[: len(photo) // 2], "path": None}, "quarantined truncated_image"),
        "bomb": ({"bytes": png(60_000, 60_000, b""), "path": None}, "quarantined too_many_pixels"),
        "path to nothing": ({"bytes": None, "path": "gone.png"}, "quarantined missing_image"),
        "path out of the root": ({"bytes": None, "path": "../outside.png"}, "quarantined path_outside_root"),
        "bytes win over a wrong path": ({"bytes": good, "path": "/etc/passwd"}, COMPLETE),
    }
    texts: Mapping[str, tuple[bytes | None, str]] = {
        "null question": (None, "quarantined empty_question"),
        "empty question": (b"", "quarantined empty_question"),
        "question not utf-8": (b"How m\xe9ny?", "quarantined malformed_row"),
    }
    image = {"bytes": good, "path": None}
    rows: list[tuple[str, Any, bytes | None, str]]
    rows = [(name, cell, f"{name}?".encode(), ends) for name, (cell, ends) in cells.items()]
    rows += [(name, image, text, ends) for name, (text, ends) in texts.items()]
    rows += [("answer is nan", image, b"answer is nan?", COMPLETE)]
    # A column of text is not checked when it is written, so it can hold any bytes.
    questions = pa.array([text for _, _, text, _ in rows], pa.binary()).cast(pa.binary())
    table = pa.table(
        {
            "image": pa.array(
                [cell for _, cell, _, _ in rows], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            ),
            "question": pa.StringArray.from_buffers(len(questions), *_text_buffers(questions)),
            "answer": pa.array([float("nan")] * len(rows)),
            "meta": [orjson.dumps({"case": name}).decode() for name, *_ in rows],
        }
    )
    pq.write_table(table, folder / "rows.parquet", row_group_size=4)
    return [Case(name=name, line=b"", ends=ends) for name, _, _, ends in rows]


def _text_buffers(values: Any) -> tuple[Any, Any, Any]:
    """Offsets, data and validity of a binary array, in the order in which a text array takes them."""
    validity, offsets, data = values.buffers()
    return offsets, data, validity
