"""Encoded image bytes and their safe decoding.

Teacher, filter and student see the same pixels: EXIF orientation applied, transparency over white, eight bits, RGB,
first frame, no colour profile. Sizes are checked from the header before a pixel is decoded, and only formats whose
decoders run in this process are opened (EPS would start Ghostscript). Resizing belongs to each model's processor.
"""

import errno
import hashlib
import io
import os
import stat
import struct
import warnings
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageOps,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from distill.data.bounded_reads import bounded
from distill.data.images import stored_images
from distill.data.images.image_cells import MAX_BYTES, RANGES, range_bytes, read_cell
from distill.data.images.image_metadata import without_metadata
from distill.data.tables import stored_tables
from distill.errors import DataError, ImageError
from distill.local_paths import is_store_address
from distill.types import ImageRef

_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""POSIX waits for a pipe without the first, and Windows changes bytes without the second."""
_READERS = (
    JpegImagePlugin.JpegImageFile,
    PngImagePlugin.PngImageFile,
    WebPImagePlugin.WebPImageFile,
    GifImagePlugin.GifImageFile,
    BmpImagePlugin.BmpImageFile,
    TiffImagePlugin.TiffImageFile,
    PpmImagePlugin.PpmImageFile,
    Jpeg2KImagePlugin.Jpeg2KImageFile,
    AvifImagePlugin.AvifImageFile,
)
FORMATS = tuple(reader.format for reader in _READERS if reader.format in Image.OPEN)
MAX_ASPECT = 200
SHARE = "Let all machines see the images under one path, or put them in a store (data.NAME.images_root)"
"""What a message says about a machine that has not all images of a run."""
"""A longer shape is refused: image processors raise errors on it, and it is not readable."""

# What decoders raise on damaged input, over all FORMATS. Found by damaging files at random (the tests do).
_DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    EOFError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
_ROOM = 1 << 30
"""More memory than an image of the usual limit of pixels needs while it is decoded."""
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_ORIENTATION = 0x0112
_PNG_METADATA = (b"eXIf", b"Raw profile type exif", b"XML:com.adobe.xmp")

# Our own limit is checked before any pixel is decoded; Pillow's warning would only repeat it on stderr.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def load(ref: ImageRef, *, max_pixels: int) -> Image.Image:
    """The pixels of one image, RGB. Raises ImageError."""
    return decode(read_bytes(ref), max_pixels=max_pixels)


def decode(data: bytes, *, max_pixels: int) -> Image.Image:
    """Encoded bytes to RGB pixels; see the module docstring for the rules.

    Raises ImageError with one of: empty_image, unreadable_image, too_many_pixels, extreme_shape, truncated_image.
    """
    return _decoded(_open(data, max_pixels))


def _decoded(image: Image.Image) -> Image.Image:
    try:
        image.load()
    except _DECODER_ERRORS as error:
        raise _damaged(error) from None
    try:
        return _rgb(_upright(image))
    except _DECODER_ERRORS as error:
        _require_memory(error)
        raise ImageError("unreadable_image", f"mode {image.mode} cannot become RGB: {error}") from None


def opacity(data: bytes, *, max_pixels: int) -> NDArray[np.uint8] | None:
    """How opaque each pixel of `decode` was before it was put on white, 255: fully; None without transparency."""
    image = _open(data, max_pixels)
    if not image.has_transparency_data:
        return None
    try:
        return np.asarray(_upright(image).convert("RGBA").getchannel("A"))
    except _DECODER_ERRORS as error:
        raise _damaged(error) from None


def check(data: bytes, *, max_pixels: int) -> None:
    """Raise what `decode` would raise, in less time: for asking whether an image is sound, not for its pixels.

    The whole stream of a JPEG is read and all coefficients are decoded. Only the step from coefficients to pixels,
    which cannot fail, is done at an eighth of the size.
    """
    image = _open(data, max_pixels)
    if image.format != "JPEG" or image.mode not in ("RGB", "L"):
        _decoded(image)
        return
    image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
    try:
        image.load()
    except _DECODER_ERRORS as error:
        raise _damaged(error) from None


def size(data: bytes, *, max_pixels: int) -> tuple[int, int]:
    """Width and height of what `decode` makes, from the header alone; damaged pixels go unnoticed."""
    image = _open(data, max_pixels)
    # Pillow states the size of a TIFF as turned, and looks for a PNG's orientation behind the pixels, decoding them.
    is_turned = image.format == "TIFF" or (image.format == "PNG" and not any(mark in data for mark in _PNG_METADATA))
    return image.size if is_turned or (_orientation(image) or 1) < 5 else (image.height, image.width)


def portable(data: bytes, *, max_pixels: int) -> tuple[bytes, str]:
    """Bytes and MIME type that any decoder turns into the pixels of `decode`, without EXIF and other metadata.

    Plain 8-bit JPEG and PNG files stay undecoded and lose nothing else; anything else becomes a PNG.
    """
    image = _open(data, max_pixels)
    if _is_plain(image, data):
        try:
            return without_metadata(data), f"image/{str(image.format).lower()}"
        except ValueError:
            pass  # laid out oddly, though Pillow reads it
    buffer = io.BytesIO()
    decode(data, max_pixels=max_pixels).save(buffer, "PNG", compress_level=1)
    return without_metadata(buffer.getvalue()), "image/png"


def is_portable(data: bytes, *, max_pixels: int) -> bool:
    """Whether every decoder turns the bytes as they are into the pixels of `decode`."""
    return _is_plain(_open(data, max_pixels), data)


def read_bytes(ref: ImageRef) -> bytes:
    """The encoded bytes of an image, from any kind of place.

    Raises ImageError: missing_image, unreadable_image, too_many_bytes, or changed_image when the bytes are no
    longer those that the sample was made from.
    """
    if is_store_address(ref.path):
        return _read_stored(ref)
    data = read_cell(ref.path, ref.column, ref.row, ref.index) if ref.column else read_file(Path(ref.path))
    if ref.sha256 and sha256(data) != ref.sha256:
        raise ImageError("changed_image", f"{ref.path}: the image changed since the sample was read")
    return data


def _read_stored(ref: ImageRef) -> bytes:
    """The bytes of an image in a store, which are kept on this machine. Raises ImageError."""
    data = stored_images.read_kept(ref.sha256) if ref.sha256 else None
    if data is not None:
        return data
    if not ref.column:
        data = get_object(ref.path)
    elif ref.column in RANGES:
        data = range_bytes(ref.column, get_object(ref.path, ref.row, ref.index))
    else:
        try:
            table = stored_tables.fetch_address(ref.path)
        except DataError as error:
            raise ImageError("missing_image", str(error)) from None
        data = read_cell(str(table), ref.column, ref.row, ref.index)
    if ref.sha256:
        if sha256(data) != ref.sha256:
            raise ImageError("changed_image", f"{ref.path}: the image changed since the sample was read")
        stored_images.keep(ref.sha256, data)
    return data


def get_object(address: str, offset: int = 0, length: int = 0) -> bytes:
    """The bytes of an image that is an object of a store, or `length` bytes of it.

    Raises ImageError missing_image, too_many_bytes.
    """
    data = stored_images.get(address, offset, length)
    if len(data) > MAX_BYTES:
        raise ImageError("too_many_bytes", f"{address}: {len(data)} bytes, more than {MAX_BYTES}")
    return data


def own_file(ref: ImageRef) -> Path | None:
    """The file of this machine that holds only this image, after it was read; None for a row of a table."""
    if is_store_address(ref.path):
        return stored_images.file_of(ref.sha256)
    return None if ref.column else Path(ref.path)


def sha256(data: bytes) -> str:
    """Hex digest of encoded bytes: the identity of an image."""
    return hashlib.sha256(data).hexdigest()


def read_file(path: Path) -> bytes:
    """The bytes of a regular file of at most MAX_BYTES. Raises ImageError; blocks on no pipe, device or lost disk."""
    try:
        return bounded(partial(_read_file, path))
    except TimeoutError as error:
        raise ImageError("unreadable_image", f"{path}: {error}") from None


def _read_file(path: Path) -> bytes:
    try:
        descriptor = os.open(path, _READ)
    except (FileNotFoundError, NotADirectoryError):
        raise ImageError("missing_image", f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise _fault_of_file(path, error) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ImageError("unreadable_image", f"{path}: not a regular file")
        if status.st_size > MAX_BYTES:
            raise ImageError("too_many_bytes", f"{path}: {status.st_size} bytes, more than {MAX_BYTES}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    except OSError as error:
        raise _fault_of_file(path, error) from None
    finally:
        os.close(descriptor)


def _fault_of_file(path: Path, error: OSError | ValueError) -> Exception:
    """A limit of this process says nothing about an image, and no row is lost for it."""
    is_of_process = isinstance(error, OSError) and error.errno in _LIMITS
    return error if is_of_process else ImageError("unreadable_image", f"{path}: {error}")


def _open(data: bytes, max_pixels: int) -> Image.Image:
    """The image with only its header read, of an allowed format and size."""
    if not data:
        raise ImageError("empty_image", "the image has no bytes")
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = image.size
    except Image.DecompressionBombError as error:
        raise ImageError("too_many_pixels", str(error)) from None
    except UnidentifiedImageError:
        formats = ", ".join(str(name) for name in FORMATS)
        raise ImageError("unreadable_image", f"none of {formats}; it begins with {data[:16]!r}") from None
    except _DECODER_ERRORS as error:
        _require_memory(error)
        raise ImageError("unreadable_image", f"not an image of a known format: {error}") from None
    if width < 1 or height < 1:
        raise ImageError("empty_image", f"{width} x {height} pixels")
    if width * height > max_pixels:
        raise ImageError("too_many_pixels", f"{width} x {height} pixels, more than max_pixels = {max_pixels}")
    require_shape(width, height)
    return image


def require_shape(width: int, height: int) -> None:
    """Raise ImageError extreme_shape for a shape that image processors refuse."""
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ImageError(
            "extreme_shape", f"{width} x {height} pixels, one side more than {MAX_ASPECT} times the other"
        )


def _require_memory(error: BaseException) -> None:
    """Raise MemoryError for an error of a decoder in a process without memory: it says nothing about the image.

    Where memory is there, a damaged header asks for too much.
    """
    if isinstance(error, MemoryError) or "out of memory" in str(error):
        bytearray(_ROOM)


def _damaged(error: BaseException) -> ImageError:
    _require_memory(error)
    text = str(error)
    if isinstance(error, Image.DecompressionBombError):
        return ImageError("too_many_pixels", text)
    cut = isinstance(error, EOFError) or any(word in text for word in ("truncated", "not enough", "end of file"))
    return ImageError("truncated_image" if cut else "unreadable_image", f"cannot be decoded: {text}")


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says; unreadable EXIF says nothing."""
    try:
        return ImageOps.exif_transpose(image) if _orientation(image) != 1 else image
    except _DECODER_ERRORS as error:
        _require_memory(error)
        return image


def _orientation(image: Image.Image) -> int | None:
    """The EXIF orientation, 1 (upright) when absent, None when the EXIF block cannot be read."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except _DECODER_ERRORS as error:
        _require_memory(error)
        return None
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _eight_bits(image).convert("RGB")
    if image.mode == "LAB":
        from PIL import ImageCms

        return _checked(ImageCms.profileToProfile(image, ImageCms.createProfile("LAB"), _srgb(), outputMode="RGB"))
    if image.has_transparency_data or image.mode in ("La", "RGBa"):
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


def _srgb() -> Any:
    from PIL import ImageCms

    return ImageCms.createProfile("sRGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey values of more than eight bits scaled to eight.

    16-bit values (PPM calls them 32-bit) use their full range. Other 32-bit integers and floats have none, so the
    smallest customary range that holds them is taken (0-1 for floats, 0-255, 0-65535), else their own extremes.
    """
    values = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = 0.0, 65535.0
    if not (image.mode.startswith("I;16") or image.format == "PPM"):
        min_value, max_value = float(values.min()), float(values.max())
        ceilings = [ceiling for ceiling in (1.0, 255.0, 65535.0) if image.mode == "F" or ceiling > 1]
        fitting = [ceiling for ceiling in ceilings if min_value >= 0 and max_value <= ceiling]
        low, high = (0.0, fitting[0]) if fitting else (min_value, max_value)
    scaled = np.rint((values - low) * (255.0 / ((high - low) or 1.0)))
    return Image.fromarray(scaled.astype(np.uint8))


def _checked(image: Image.Image | None) -> Image.Image:
    if image is None:
        raise ValueError("no conversion to RGB")
    return image


def _is_plain(image: Image.Image, data: bytes) -> bool:
    """Whether every decoder agrees on the pixels: 8-bit RGB or grey JPEG or PNG with nothing to interpret."""
    if image.format not in ("JPEG", "PNG") or image.mode not in ("RGB", "L"):
        return False
    if image.format == "PNG" and data[24:25] != b"\x08":
        return False
    still = getattr(image, "n_frames", 1) == 1
    return still and "transparency" not in image.info and _orientation(image) == 1
