"""From the image cells of rows to references to images, each decoded once to learn whether it is sound."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from distill.data.images import image_cells, image_files, stored_images
from distill.data.images.base64_images import Base64Image, is_base64
from distill.data.images.image_cells import BASE64_RANGE, Part
from distill.data.images.image_names import possible_names
from distill.data.images.image_paths import path_exists, path_within, similar_name
from distill.data.row_values import ImageCell, whole_number
from distill.data.sources import SourceRow, SourceTable
from distill.errors import ImageError
from distill.local_paths import is_store_address
from distill.recipe.sections.data import DataSource
from distill.types import ImageRef

_FILES_REMEMBERED = 4096
_SOUND_REMEMBERED = 1 << 15
_sound: dict[tuple[str, int], None] = {}
"""Digests of images that this process has decoded, each with its limit of pixels. A check of a recipe reads every
source twice: for its content, and for its overlap with the test data."""


class ImageReferences:
    """Makes references to the images of a source; remembers checked images, because several questions may share an
    image."""

    def __init__(self, source: DataSource, table: SourceTable, decode: Callable[[int], bool]) -> None:
        self._source, self._table, self._decode = source, table, decode
        self._copies = {stored.address: file for file, stored in table.stored.items()}
        self._checked: OrderedDict[tuple[tuple[str, ...], Part], ImageRef | Future[ImageRef]] = OrderedDict()
        self._lock = threading.Lock()

    def reference(self, cell: ImageCell, row: SourceRow) -> ImageRef:
        """A reference to one image that has been decoded once. Raises ImageError."""
        value = cell.value
        part = image_cells.WHOLE
        if type(value) is str and not row.table:  # a path in a table of text, as in most rows
            return self._file(possible_names(value), part, decode=self._decode(row.number))
        if isinstance(value, dict) and isinstance(value.get("bytes"), Base64Image):
            value = value["bytes"]
        if isinstance(value, dict) and not value.get("bytes") and isinstance(value.get("path"), str):
            part = image_cells.part_of_file(value)
            value = value["path"]
        value = whole_number(value)
        decode = self._decode(row.number)
        if isinstance(value, Base64Image):
            ref = ImageRef(sha256="", path=value.path, column=BASE64_RANGE, row=value.offset, index=value.length)
            return self._range(ref, decode=decode)
        in_table = isinstance(value, str) and bool(row.table) and is_base64(value)
        if isinstance(value, str | int | tuple) and not isinstance(value, bool) and not in_table:
            names = value if isinstance(value, tuple) else possible_names(value)
            return self._file(names, part, decode=decode)
        if not row.table:
            raise ImageError("unsupported_image_cell", f"column {cell.column!r}: a path is needed, not {value!r:.60}")
        data = image_cells.cell_bytes(value)
        if not data:
            raise ImageError("empty_image", "the image has no bytes")
        limit = self._source.max_pixels
        digest = checked_digest(data, max_pixels=limit) if decode else image_files.sha256(data)
        if decode and is_store_address(row.table):
            stored_images.keep(digest, data)
        return ImageRef(sha256=digest, path=row.table, column=cell.column, row=row.table_row, index=cell.index)

    def _file(self, names: tuple[str, ...], part: Part, *, decode: bool) -> ImageRef:
        """A reference to the first of these files that exists; the result is cached by the names in the rows.

        Of threads that want the same file at the same time one reads it.
        """
        key = names, part
        known = self._checked.get(key)
        if isinstance(known, ImageRef):  # most rows of a source with several questions an image
            return known
        with self._lock:
            known = self._checked.get(key)
            if known is None and decode:
                found = self._checked[key] = Future()
                while len(self._checked) > _FILES_REMEMBERED:
                    self._checked.popitem(last=False)
        if known is not None:
            return known if isinstance(known, ImageRef) else known.result()
        if not decode:
            return self._look_up(names, part, decode=False)
        try:
            found.set_result(self._look_up(names, part, decode=True))
        except BaseException as error:  # belongs to each of the threads
            found.set_exception(error)
        ref = found.result()
        with self._lock:
            if key in self._checked:
                self._checked[key] = ref
        return ref

    def _look_up(self, names: tuple[str, ...], part: Part, *, decode: bool) -> ImageRef:
        outside = self._source.allow_outside_root
        if self._table.root_address:
            return self._look_up_stored(names, part, decode=decode)
        paths = [path_within(self._table.root, name, allow_outside=outside) for name in names]
        path = next((path for path in paths if path_exists(path)), paths[0])
        if similar := similar_name(path):
            raise ImageError("missing_image", f"{path}: no such file; {similar}")
        ref = _unread(str(path), part)
        return self._read(ref) if decode else _seen(ref)

    def _range(self, ref: ImageRef, *, decode: bool) -> ImageRef:
        """The reference to a range of a file of the source itself."""
        if is_store_address(ref.path):
            return self._stored(ref, decode=decode)
        return self._read(ref) if decode else _seen(ref)

    def _look_up_stored(self, names: tuple[str, ...], part: Part, *, decode: bool) -> ImageRef:
        """A reference to the first of these objects that exists; it is fetched with one request."""
        root, outside = self._table.root_address, self._source.allow_outside_root
        *others, last = (stored_images.address_within(root, name, allow_outside=outside) for name in names)
        for address in others:
            try:
                return self._stored(_unread(address, part), decode=decode)
            except ImageError as error:
                if error.reason != "missing_image":
                    raise
        return self._stored(_unread(last, part), decode=decode)

    def _stored(self, ref: ImageRef, *, decode: bool) -> ImageRef:
        copy = self._copies.get(ref.path)  # of a shard, whose rows were read
        if not decode:
            if copy is None:
                stored_images.require(ref.path)
            return replace(ref, sha256=_digest_of_place(ref))
        if copy is not None:
            return replace(self._read(replace(ref, path=str(copy)), keep=True), path=ref.path)
        return self._read(ref, keep=True)

    def _read(self, ref: ImageRef, *, keep: bool = False) -> ImageRef:
        """The reference with the digest of the image, which is kept on this machine if it lies in a store."""
        data = image_files.read_bytes(ref)
        try:
            digest = checked_digest(data, max_pixels=self._source.max_pixels)
        except ImageError as error:
            raise ImageError(error.reason, f"{ref.path}: {error}") from None
        if keep:
            stored_images.keep(digest, data)
        return replace(ref, sha256=digest)


def _unread(path: str, part: Part) -> ImageRef:
    """A reference to a file, or to a range of it, whose bytes are not known yet."""
    column, offset, length = part
    return ImageRef(sha256="", path=path, column=column, row=offset, index=length)


def _seen(ref: ImageRef) -> ImageRef:
    """A reference to an existing file that is not empty; its path identifies the bytes. Raises ImageError."""
    try:
        if not Path(ref.path).stat().st_size:
            raise ImageError("empty_image", f"{ref.path}: the image has no bytes")
    except OSError as error:
        raise ImageError("missing_image", f"{ref.path}: {error.strerror}") from None
    return replace(ref, sha256=_digest_of_place(ref))


def _digest_of_place(ref: ImageRef) -> str:
    place = f"{ref.path}\0{ref.row}" if ref.column else ref.path
    return hashlib.sha256(place.encode()).hexdigest()


def checked_digest(data: bytes, *, max_pixels: int) -> str:
    """The digest of encoded bytes. Raises ImageError, as `image_files.check` does."""
    digest = image_files.sha256(data)
    if (digest, max_pixels) not in _sound:
        image_files.check(data, max_pixels=max_pixels)
        if len(_sound) >= _SOUND_REMEMBERED:
            _sound.clear()
        _sound[digest, max_pixels] = None
    return digest
