"""The images of a run in a store, packed by partition, so that no machine asks for them one by one.

    plan/images/<attempt>/<xx>/<partition>/000.tar   images of a partition, named and sorted by their sha256

The process that plans a run has read every image of a store once. It puts them together in shards of about 128 MB,
and a machine that opens a unit reads the shards of its partition once, to its scratch folder. So the run has its own
copy: an image that is replaced or deleted later changes nothing. An image that is in no shard is fetched by its
address. Images on a disk are not packed.
"""

import io
import logging
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from distill.artifacts.files import storage_errors
from distill.data.images import image_files, stored_images
from distill.errors import ImageError
from distill.local_paths import is_store_address
from distill.machine.thread_map import thread_map
from distill.object_store.interface import ObjectStore, StoredObject
from distill.object_store.recipe_stores import files_folder
from distill.types import ImageRef, Sample

SHARD_BYTES = 128 << 20
"""A shard ends with the image that brings it to this size."""
READ_BYTES = 16 << 20
_AT_ONCE = 4
"""Shards that a process reads or writes at the same time."""
_FOLDER = "plan/images"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def stored_refs(samples: Iterable[Sample]) -> dict[str, ImageRef]:
    """The images of samples that lie in a store, by sha256."""
    refs = (ref for sample in samples for ref in sample.images if is_store_address(ref.path))
    return {ref.sha256: ref for ref in refs}


def put_shards(store: ObjectStore, attempt: str, partition: str, refs: Collection[ImageRef]) -> None:
    """Pack images of a partition. One that cannot be read now is left out."""
    with storage_errors(scratch := files_folder()):
        scratch.mkdir(parents=True, exist_ok=True)
    folder = f"{_folder(attempt)}/{partition[:2]}/{partition}"
    with TemporaryDirectory(dir=scratch) as temporary:
        for number, path in enumerate(_shards(sorted(refs, key=lambda ref: ref.sha256), Path(temporary))):
            store.put(f"{folder}/{number:03d}.tar", path)


def _shards(refs: Iterable[ImageRef], folder: Path) -> Iterator[Path]:
    """Files of about SHARD_BYTES, one at a time; the same images make the same bytes."""
    path = folder / "shard.tar"
    with ExitStack() as stack:
        shard: tarfile.TarFile | None = None
        for ref in refs:
            try:
                data = image_files.read_bytes(ref)
            except ImageError:  # the image was replaced after planning; its questions get an error
                continue
            with storage_errors(path):
                if shard is None:
                    shard = stack.enter_context(tarfile.open(path, "w", format=tarfile.USTAR_FORMAT))
                member = tarfile.TarInfo(ref.sha256)
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
            if shard.offset >= SHARD_BYTES:
                stack.close()
                shard = None
                yield path
    if shard is not None:
        yield path


def fetch_shards(store: ObjectStore, attempt: str, wanted: Collection[str], partition: str = "") -> None:
    """Bring images of a partition, or of all, to this machine; those that are there are not written again."""
    missing = {digest for digest in wanted if not stored_images.file_of(digest).is_file()}
    if not missing:
        return
    folder = f"{_folder(attempt)}/{partition[:2]}/{partition}" if partition else _folder(attempt)
    list(thread_map(lambda shard: _unpack(store, shard, missing), store.list_objects(folder), _AT_ONCE))


def _unpack(store: ObjectStore, shard: StoredObject, wanted: Collection[str]) -> None:
    try:
        reader = io.BufferedReader(_Object(store, shard), READ_BYTES)
        with tarfile.open(fileobj=reader, mode="r|") as members:
            for member in members:
                # The name becomes a path on this machine.
                if member.name in wanted and _DIGEST.fullmatch(member.name):
                    content = members.extractfile(member)
                    stored_images.keep(member.name, content.read() if content else b"")
    except (FileNotFoundError, tarfile.TarError) as error:
        text = f"{store.address}/{shard.key}: a shard of images cannot be read ({error}); they are fetched one by one"
        logging.getLogger(__name__).warning(text)


class _Object(io.RawIOBase):
    """An object as a file that is read from its beginning."""

    def __init__(self, store: ObjectStore, stored: StoredObject) -> None:
        self._store, self._stored, self._at = store, stored, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._stored.bytes)
        data = self._store.read(self._stored.key, self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def remove_shards(store: ObjectStore, *, but: str = "", of: str = "") -> None:
    """Delete the shards of one attempt (`of`), or of all others than one (`but`)."""
    listed = store.list_objects(_folder(of) if of else _FOLDER)
    kept = f"{_folder(but)}/" if but else ""
    store.delete([stored.key for stored in listed if not (kept and stored.key.startswith(kept))])


def _folder(attempt: str) -> str:
    return f"{_FOLDER}/{attempt}"
