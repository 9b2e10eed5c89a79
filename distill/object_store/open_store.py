"""Opens the store at an address or a path and tests that it can hold a run."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from distill import packages, redact
from distill.errors import InputError
from distill.local_paths import STORE_SCHEMES
from distill.object_store.interface import ObjectStore
from distill.object_store.local_store import LocalStore
from distill.object_store.probe import require_commits
from distill.object_store.retrying_store import RetryingStore

_FIRST_PATIENCE_S = 15.0
"""At the start a mistake in the address is likelier than an outage."""


def open_store(
    address: str | Path, *, config: Mapping[str, Any] | None = None, read_only: bool = False, patient: bool = False
) -> ObjectStore:
    """A store for a run. InputError for an address that cannot be one, StorageError for a store that is refused.

    One that is only read is not probed, and unless `patient` requests wait for it for seconds, not for hours.
    """
    parts = urlsplit(str(address))
    if parts.scheme and (parts.fragment or (parts.scheme == "file" and parts.query)):
        raise InputError(
            f"{redact.url(str(address))}: what comes after # or ? is no part of an address, so two runs would share "
            "one place; write %23 for #, and %3F for ?"
        )
    if not parts.scheme or (parts.scheme == "file" and not parts.netloc):
        store: ObjectStore = LocalStore(Path(unquote(parts.path) if parts.scheme else address))
        if not read_only:
            require_commits(store)
        return store
    if parts.scheme not in STORE_SCHEMES or not parts.netloc:
        raise InputError(
            f"{address}: not a store; its address begins with one of {', '.join(STORE_SCHEMES)}, then ://bucket"
        )
    if parts.password or parts.query:
        raise InputError(
            f"{parts.scheme}://{parts.hostname}{parts.path}: credentials do not belong into an address, which is "
            "kept in files and shown in messages; set the variables of your store, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        )
    packages.require(str(address), "obstore")
    from distill.object_store.remote_store import RemoteStore

    endpoint = (config or {}).get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
    options = dict(config or {})
    http = options.pop("allow_http", (endpoint or "").startswith("http://"))
    remote = RetryingStore(store=RemoteStore(str(address), config=options, http=http))
    impatient = replace(remote, patience_s=_FIRST_PATIENCE_S)
    if read_only:
        return remote if patient else impatient
    require_commits(impatient)
    return remote
