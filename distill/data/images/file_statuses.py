"""Size and version of the files, or objects of a store, that images lie in: whether they are still the same."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress

from distill.data.images import stored_images
from distill.local_paths import is_store_address


def file_statuses(paths: Iterable[str], *, until_ns: int | None = None) -> dict[str, tuple[int, int]]:
    """Bytes of each file, and a number that changes with its content; missing files are left out.

    The number is the time of change in ns; of an object of a store it comes from its ETag, by one listing. Files that
    came or changed after `until_ns` are left out too: they may be others than those that were read before.
    """
    paths = list(paths)
    found = {}
    for path in paths:
        if not is_store_address(path):
            with suppress(OSError):
                status = os.stat(path)  # noqa: PTH116 (a Path for each of a million images costs more than the call)
                if until_ns is None or max(status.st_mtime_ns, status.st_ctime_ns) <= until_ns:
                    found[path] = status.st_size, status.st_mtime_ns
    for path, stored in stored_images.states(filter(is_store_address, paths)).items():
        found[path] = stored.bytes, int(hashlib.sha256(stored.etag.encode()).hexdigest()[:15], 16)
    return found
