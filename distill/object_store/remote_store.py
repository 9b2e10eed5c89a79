"""S3, GCS, Azure and compatible stores through obstore; the only module that imports it.

Credentials, endpoint and region come from the environment or the role of the machine, as obstore reads them
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...). The client itself never sends a request again: `RetryingStore`
does, and reports its waits.
"""

import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from distill import redact
from distill.errors import InputError, StorageError, StoreUnavailable, first_line
from distill.object_store.interface import StoredObject

TIMEOUT_S = 60
"""Time limit of one request: enough for 50 MB at 1 MB/s."""
_CLOCK_S = 5.0
"""Time limit of a request for the store's clock."""
_NO_OBJECT = "clock"
_PART_BYTES, _PARTS = 8 << 20, 9_000
"""Size of a part of an upload; S3 takes at most 10,000 parts."""
_STATUS = re.compile(r"status code: (\d{3})")
_SAID = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
"""What stores answer: code and message."""
_OF_THE_MACHINE = "http://169.254."
"""Where a machine of a cloud gives the credentials of its role."""
_VARIABLES = "the variables of your store, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_REPAIR_BUCKET = "no such bucket; create it, or correct the address"
_BEYOND_THE_END = "416"
_TEMPORARY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later."""
_NO_BUCKET = "NoSuchBucket"
_TOO_LONG = "KeyTooLong"
_EXPIRED = "ExpiredToken"
"""Temporary credentials of a role: the client gets new ones by itself, which may take a while."""


class RemoteStore:
    """Objects below `address`, such as s3://bucket/run. `config` is passed to obstore and overrides the
    environment."""

    def __init__(
        self,
        address: str,
        *,
        config: Mapping[str, Any] | None = None,
        timeout_s: float = TIMEOUT_S,
        http: bool = False,
    ) -> None:
        self.address = redact.url(address.rstrip("/"))
        options: dict[str, Any] = {
            "config": dict(config or {}),
            "client_options": {
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=min(timeout_s, 10)),
                "allow_http": http,
            },
            "retry_config": {"max_retries": 0},
        }
        try:
            self._store: Any = from_url(address, **options)
        except (BaseError, ValueError) as error:
            raise InputError(f"{self.address}: not an address of a store: {first_line(error)}") from error

    def now_s(self) -> float:
        """Read from the header `Date` of any answer, a refusal included; obstore does not give headers."""
        try:
            address = obstore.sign(self._store, "GET", _NO_OBJECT, timedelta(seconds=TIMEOUT_S))
            try:
                with urllib.request.urlopen(address, timeout=_CLOCK_S) as response:
                    date = response.headers["Date"]
            except urllib.error.HTTPError as refusal:
                date = refusal.headers["Date"]
            return parsedate_to_datetime(date).timestamp()
        except (BaseError, HTTPException, OSError, ValueError, TypeError):
            return time.time()

    def read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._errors("read", key):
            if end is not None:
                return self._read_range(key, start, end) if end > start else b""
            options: Any = {"range": {"offset": start}} if start else None
            return bytes(obstore.get(self._store, key, options=options).bytes())

    def _read_range(self, key: str, start: int, end: int) -> bytes:
        try:
            return bytes(obstore.get_range(self._store, key, start=start, end=end))
        except BaseError as error:
            status = _STATUS.search(str(error))
            if status is None or status[1] != _BEYOND_THE_END:
                raise
            return b""

    def look_up(self, key: str) -> StoredObject:
        with self._errors("read", key):
            return _stored(obstore.head(self._store, key))

    def list_objects(self, folder: str = "") -> list[StoredObject]:
        with self._errors("list", folder):
            found = [_stored(each) for batch in obstore.list(self._store, folder or None) for each in batch]
        return sorted(_without_marks(found, folder), key=lambda stored: stored.key)

    def put(self, key: str, data: bytes | Path) -> None:
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        with self._errors("write", key):
            obstore.put(self._store, key, data, chunk_size=max(_PART_BYTES, size // _PARTS + 1))

    def create(self, key: str, data: bytes) -> bool:
        """As the interface says; also False where this caller has created the object and the answer was lost."""
        with self._errors("write", key):
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def delete(self, keys: Iterable[str]) -> None:
        if not (listed := list(keys)):
            return
        with self._errors("delete", ""):
            try:
                obstore.delete(self._store, listed)
            except FileNotFoundError as error:
                if _NO_BUCKET in str(error):
                    raise
                # GCS and Azure refuse a key that is not there, and what comes after it is left.
                if len(listed) > 1:
                    for key in listed:
                        self.delete([key])

    @contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        """StoreUnavailable for errors that may pass; StorageError with the next step for others."""
        where = f"{self.address}/{key}".rstrip("/")
        try:
            yield
        except AlreadyExistsError as error:  # 409 of a write without a condition, at the same moment as another one
            raise StoreUnavailable(f"cannot {verb} {where}: {_reason(error)}") from error
        except FileNotFoundError as error:
            if verb == "read" and _NO_BUCKET not in str(error):
                raise FileNotFoundError(where) from error
            raise StorageError(f"cannot {verb} {where}: {_REPAIR_BUCKET}") from error
        except ValueError as error:  # a key that obstore does not ask for: with a tab, an empty part, or ".."
            if verb == "read":
                raise FileNotFoundError(where) from error
            raise StorageError(f"cannot {verb} {where}: {first_line(error)}; choose another name") from error
        except BaseError as error:
            if verb == "read" and _TOO_LONG in str(error):
                raise FileNotFoundError(where) from error
            raise _as_ours(error, verb, where) from error


def _without_marks(found: list[StoredObject], folder: str) -> list[StoredObject]:
    """Objects without the empty ones, such as "run/", by which consoles and other programs mark a folder."""
    empty = {each.key for each in found if not each.bytes}
    above = {str(parent) for each in found for parent in PurePosixPath(each.key).parents} if empty else set()
    return [each for each in found if each.key not in ("", folder) and not (each.key in empty and each.key in above)]


def _stored(each: Mapping[str, Any]) -> StoredObject:
    modified_s, etag = each["last_modified"].timestamp(), each["e_tag"] or ""
    return StoredObject(key=each["path"], bytes=each["size"], modified_s=modified_s, etag=etag)


def _as_ours(error: BaseError, verb: str, where: str) -> StorageError:
    """A refused listing has no error class of its own, so the status decides."""
    found = _STATUS.search(str(error))
    status = int(found[1]) if found else 0
    problem, reason = f"cannot {verb} {where}", _reason(error)
    if _EXPIRED in str(error):
        return StoreUnavailable(f"{problem}: the credentials of this process have expired")
    if of_machine := _OF_THE_MACHINE in str(error):
        reason = f"no credentials are set, and this machine gives none ({reason}); set {_VARIABLES}"
    if status in _TEMPORARY if status else "HTTP error" in str(error):
        return StoreUnavailable(f"{problem}: {reason}")
    if of_machine:
        return StorageError(f"{problem}: {reason}")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
        return StorageError(
            f"{problem}: the store refuses the credentials of this process ({reason}); give them the right to read, "
            "list, write and delete below this address"
        )
    if status == 404:
        return StorageError(f"{problem}: {_REPAIR_BUCKET}")
    return StorageError(f"{problem}: {reason}; check address and endpoint")


def _reason(error: BaseError) -> str:
    """The error without the address, which the message has already; of an answer in XML its code and its message."""
    text = str(error)
    if (status := _STATUS.search(text)) and (said := _SAID.search(text, status.end())):
        return f"{status[1]} {said[1]}" + (f": {said[2]}" if said[2] and said[2] != said[1] else "")
    return first_line(error).rpartition(" - ")[2].removesuffix(": ")
