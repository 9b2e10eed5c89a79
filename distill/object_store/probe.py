"""Six requests that test, before a run spends anything, whether a store does what commits need.

Some servers with the S3 API accept `If-None-Match: *` and ignore it: then two writers both believe that they have
committed, and the work of one is lost without an error.
"""

import secrets

from distill.errors import StorageError
from distill.object_store.interface import ObjectStore

FOLDER = "probe"


def require_commits(store: ObjectStore) -> None:
    """Raise StorageError unless the store creates an object once only, reads ranges of it and lists it."""
    folder = f"{FOLDER}/{secrets.token_hex(8)}"
    key, first, second = f"{folder}/object", b"written first", b"written second"
    created = store.create(key, first)
    overwritten = store.create(key, second)
    part = store.read(key, 8, 12)
    listed = [found.key for found in store.list_objects(folder)]
    store.delete([key])
    if part not in (first[8:12], second[8:12]):
        problem = "it does not return the range of bytes that was asked for"
    elif not created or overwritten or part != first[8:12]:
        problem = "it overwrites an object although the request forbids it (If-None-Match: *), so work would be lost"
    elif listed != [key]:
        problem = f"a listing right after a write shows {listed or 'nothing'}"
    else:
        return
    raise StorageError(
        f"{store.address}: this store cannot hold a run: {problem}. Take a store that supports conditional writes: "
        "AWS S3, Google Cloud Storage, Azure Blob Storage, Ceph, MinIO"
    )
