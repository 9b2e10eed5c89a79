"""Images in a store: each is fetched once to a folder of this machine and found there by its sha256.

The file is the same whether the image came from an object of its own, a row of a table, or a shard of a run
(distill/units/image_shards.py). Like all requests to a store, a request with a temporary failure is sent again for
hours, so an outage does not count as a fault of an image.
"""

import hashlib
import os
import posixpath
import secrets
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from distill.artifacts.files import storage_errors
from distill.errors import ImageError
from distill.local_paths import is_store_address
from distill.object_store.interface import StoredObject
from distill.object_store.recipe_stores import files_folder, open_address


def images_folder() -> Path:
    """Where fetched images are."""
    return files_folder() / "images"


def file_of(sha256: str) -> Path:
    """The path of an image once it is fetched."""
    return images_folder() / sha256[:2] / sha256


def read_kept(sha256: str) -> bytes | None:
    """The bytes of an image that was fetched; None for any other."""
    try:
        data = file_of(sha256).read_bytes()
    except FileNotFoundError:
        return None
    # A machine that lost its power may have left half of it.
    return data if hashlib.sha256(data).hexdigest() == sha256 else None


def keep(sha256: str, data: bytes) -> None:
    """Put an image where `read_kept` finds it."""
    path = file_of(sha256)
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def forget(sha256s: Iterable[str]) -> None:
    """Remove images that were fetched."""
    for sha256 in sha256s:
        file_of(sha256).unlink(missing_ok=True)


def get(address: str, offset: int = 0, length: int = 0) -> bytes:
    """The bytes of an object, or `length` of them.

    Raises ImageError missing_image, and StorageError for a store that stays away.
    """
    store, key = open_address(address)
    try:
        return store.read(key, offset, offset + length if length else None)
    except FileNotFoundError:
        raise ImageError("missing_image", f"{address}: no such object") from None


def require(address: str) -> None:
    """Raise ImageError missing_image or empty_image unless there is an object with bytes."""
    store, key = open_address(address)
    try:
        found = store.look_up(key)
    except FileNotFoundError:
        raise ImageError("missing_image", f"{address}: no such object") from None
    if not found.bytes:
        raise ImageError("empty_image", f"{address}: the image has no bytes")


def states(addresses: Iterable[str]) -> dict[str, StoredObject]:
    """What a listing of their common folder shows of objects; those that are missing are left out."""
    found: dict[str, StoredObject] = {}
    buckets: dict[str, set[str]] = {}
    for address in addresses:
        parts = urlsplit(address)
        buckets.setdefault(f"{parts.scheme}://{parts.netloc}/", set()).add(address)
    for bucket, wanted in buckets.items():
        common = posixpath.commonpath([posixpath.dirname(address.removeprefix(bucket)) for address in wanted])
        listed = {f"{bucket}{each.key}": each for each in open_address(bucket)[0].list_objects(common)}
        found |= {address: listed[address] for address in wanted & listed.keys()}
    return found


def address_within(root: str, name: str, *, allow_outside: bool) -> str:
    """The address that a row's path means below `root`, which is an address too.

    Raises ImageError path_outside_root when it leaves `root` and `allow_outside` is false.
    """
    root = root.rstrip("/")
    address = name if is_store_address(name) else f"{root}/{name}"
    parts = urlsplit(address)
    path = os.path.normpath(f"/{address.partition('://')[2].partition('/')[2]}").lstrip("/")
    address = f"{parts.scheme}://{parts.netloc}/{path}"
    if not (allow_outside or address.startswith(f"{root}/")):
        raise ImageError("path_outside_root", f"{name!r} leads out of {root}; allow_outside_root = true permits it")
    return address
