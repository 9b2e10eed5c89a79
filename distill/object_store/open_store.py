"""Opens the store at an address or a path and tests that it can hold a run."""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from distill import packages, redact
from distill.errors import InputError, StaleError, StorageError
from distill.local_paths import STORE_SCHEMES, store_problem
from distill.object_store.interface import ObjectStore
from distill.object_store.local_store import LocalStore
from distill.object_store.retrying_store import RetryingStore

PROBE_FOLDER = "probe"
_FIRST_PATIENCE_S = 15.0
"""At the start a mistake in the address is likelier than an outage."""
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def open_store(
    address: str | Path, *, config: Mapping[str, Any] | None = None, read_only: bool = False, patient: bool = False
) -> ObjectStore:
    """A store for a run. InputError for an address that cannot be one, StorageError for a store that is refused.

    One that is only read is not probed, and unless `patient` requests wait for it for seconds, not for hours.
    """
    parts = urlsplit(str(address))
    if parts.scheme and (parts.fragment or (parts.scheme == "file" and parts.query)):
        raise InputError(
            f"{redact.url(str(address))}: the text that comes after # or ? does not belong to the address, so two "
            "runs would share one place; write %23 for #, and %3F for ?"
        )
    if not parts.scheme or (parts.scheme == "file" and not parts.netloc):
        store: ObjectStore = LocalStore(Path(unquote(parts.path) if parts.scheme else address))
        if not read_only:
            require_commits(store)
        return store
    if parts.scheme not in STORE_SCHEMES:
        raise InputError(
            f"{redact.url(str(address))}: not a store; an address is s3://bucket/folder, gs://bucket/folder, "
            "az://container/folder, abfs://container@account.dfs.core.windows.net/folder or file:///folder"
        )
    if problem := store_problem(str(address)):
        raise InputError(problem)
    packages.require(str(address), "obstore")
    from distill.object_store.remote_store import RemoteStore

    options = dict(config or {})
    endpoint = options.get("endpoint") or next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
    if parts.scheme == "s3" and endpoint:
        _require_url(endpoint)
    http = options.pop("allow_http", endpoint.startswith("http://"))
    hurried = {} if patient or not read_only else {"timeout_s": _FIRST_PATIENCE_S}
    remote = RetryingStore(store=RemoteStore(str(address), config=options, http=http, **hurried))
    impatient = replace(remote, patience_s=_FIRST_PATIENCE_S)
    if read_only:
        return remote if patient else impatient
    require_commits(impatient)
    return remote


@contextmanager
def endpoint_named(address: str, config: Mapping[str, Any] | None) -> Iterator[None]:
    """Reads a run in an S3 store that a command finds without its recipe: an error says which endpoint was asked.

    A bucket of the same name at another endpoint is another bucket.
    """
    try:
        yield
    except (StaleError, StorageError) as error:
        if not address.startswith("s3://"):
            raise
        named = {"store.endpoint of the recipe": (config or {}).get("endpoint")} | {
            name: os.environ.get(name) for name in _ENDPOINTS
        }
        name, asked = next(((name, value) for name, value in named.items() if value), ("", ""))
        asked = f"{redact.url(asked)} ({name}) was asked" if asked else "Amazon S3 was asked, as no endpoint is set"
        remedy = f"{asked}; if the run is at another endpoint, give --recipe, or set {_ENDPOINTS[1]}"
        raise type(error)(str(error), remedy) from error


def _require_url(endpoint: str) -> None:
    """Raise InputError for an endpoint that is no URL: the store's library would end with a panic."""
    try:
        parts = urlsplit(endpoint)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # the port is no number
        is_url = False
    if not is_url or not endpoint.isascii() or re.search(r"\s", endpoint):
        raise InputError(
            f"{redact.url(endpoint)}: not an endpoint of a store; write https://host or http://host:port "
            f"(store.endpoint or {', '.join(_ENDPOINTS)})"
        )


def require_commits(store: ObjectStore) -> None:
    """Raise StorageError unless the store creates an object once only, reads ranges of it and lists it.

    Some servers with the S3 API accept `If-None-Match: *` and ignore it: then two writers both believe that they have
    committed, and the work of one is lost without an error. Six requests test this before a run spends anything.
    """
    folder = f"{PROBE_FOLDER}/{secrets.token_hex(8)}"
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
