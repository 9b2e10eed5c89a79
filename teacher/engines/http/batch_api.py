"""The batch files of hosted APIs (OpenAI's protocol): upload a file of requests, create a batch, fetch its answers.

One call each; what a batch means for the requests in it is decided in `batch_engine.py`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import urlsplit

import aiohttp
import orjson

from distill import redact
from distill.recipe.sections.teachers import Teacher
from teacher.engines.http.chat_protocol import excerpt, parse_json
from teacher.engines.http.exchange import CONNECTION, MAX_ANSWER_BYTES, request_failure
from teacher.engines.http.server_info import proxy_of
from teacher.engines.outage import Failure

NAME = "cot_distill"
"""The entry of a batch's metadata that holds our name for it: a batch whose creation got no answer is found by it."""
ENDPOINT = "/v1/chat/completions"
_ENDED = frozenset({"completed", "failed", "expired", "cancelled", "canceled"})
_NOT_ANSWERED = frozenset({"batch_expired", "batch_cancelled"})
_PAGE, _MAX_PAGES = 100, 100
_CALL_S, _TRANSFER_S = 120.0, 3600.0
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """State of a batch, as the server reports it."""

    status: str
    files: tuple[str, ...]
    """The answers and the errors of a batch, if there are any."""
    errors: str
    """Why it has failed as a whole."""

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


class BatchApi:
    """The batches of one server. Every call raises Failure when it does not work."""

    def __init__(self, teacher: Teacher, headers: Mapping[str, str]) -> None:
        self._teacher = teacher
        self._headers = {name: value for name, value in headers.items() if name != "content-type"}
        parts = urlsplit(teacher.urls[0])
        keyed = any(name.lower() == "authorization" for name in headers)  # which counts before a password
        self._url = (parts._replace(netloc=parts.netloc.rpartition("@")[2]) if keyed else parts).geturl()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def upload(self, path: Path) -> str:
        """The id of a file of requests."""
        try:
            with path.open("rb") as file:
                form = aiohttp.FormData({"purpose": "batch"})
                form.add_field("file", file, filename=path.name, content_type="application/jsonl")
                return str((await self._call("POST", "files", total_s=_TRANSFER_S, data=form))["id"])
        except Failure as failure:
            if failure.kind != "HTTP 413":
                raise
            where, megabytes = f"teachers.{self._teacher.name}.batch.max_mb", path.stat().st_size / 1e6
            remedy = f"the file has {megabytes:.1f} MB; lower {where}"
            raise Failure(failure.reason, f"{failure.detail}; {remedy}", kind=failure.kind, remedy=remedy) from None

    async def create(self, name: str, file: str) -> str:
        """The id of a new batch of an uploaded file. Where the server knows the header, asking twice makes one."""
        body = {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": self._teacher.batch.completion_window,
            "metadata": {NAME: name},
        }
        found = await self._call("POST", "batches", json=body, headers={"idempotency-key": f"{NAME}-{name}"})
        return str(found["id"])

    async def find(self, name: str, file: str) -> str | None:
        """The id of the batch of this name or this file, if there is one."""
        after: dict[str, str] = {}
        for _ in range(_MAX_PAGES):
            page = await self._call("GET", "batches", listed=True, params={"limit": str(_PAGE), **after})
            batches = [each for each in page["data"] or () if isinstance(each, dict) and each.get("id")]
            for each in batches:
                metadata = each.get("metadata")
                named = isinstance(metadata, dict) and metadata.get(NAME) == name
                if named or each.get("input_file_id") == file:
                    return str(each["id"])
            if not (page.get("has_more") and batches):
                return None
            after = {"after": str(batches[-1]["id"])}
        return None

    async def look(self, batch: str) -> BatchState:
        found = await self._call("GET", f"batches/{batch}")
        files = tuple(str(found[key]) for key in ("output_file_id", "error_file_id") if found.get(key))
        status, errors = str(found.get("status")).lower(), _reasons(found.get("errors"))
        return BatchState(status=status, files=files, errors=errors)

    async def download(self, file: str, into: IO[bytes]) -> None:
        """Append the content of a file, and a line end."""
        async with self._answer("GET", f"files/{file}/content", total_s=_TRANSFER_S) as response:
            async for piece in response.content.iter_chunked(_PIECE):
                into.write(piece)
        into.write(b"\n")

    async def _call(
        self, method: str, path: str, total_s: float = _CALL_S, *, listed: bool = False, **options: Any
    ) -> dict[str, Any]:
        """The answer to a call: with an `id`, or where it is `listed` with `data`, None for none."""
        async with self._answer(method, path, total_s=total_s, **options) as response:
            payload = await _read(response)
        body = parse_json(payload)
        table: dict[str, Any] = body if isinstance(body, dict) else {}
        if not (isinstance(table.get("data", ""), list | None) if listed else table.get("id")):
            raise Failure("garbled_response", f"{path}: not an answer of a batch API: {excerpt(payload)}")
        return table

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, *, total_s: float, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = f"{self._url}/{path}"
        timeout = aiohttp.ClientTimeout(total=total_s)
        try:
            async with self._session.request(
                method, url, proxy=proxy_of(url), timeout=timeout, allow_redirects=False, **options
            ) as response:
                if not response.ok or response.status >= 300:
                    headers = {name.lower(): value for name, value in response.headers.items()}
                    raise request_failure(self._teacher, response.status, await _read(response), headers)
                yield response
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:  # a full disk is no fault of the server
            raise Failure(CONNECTION, f"{path}: {str(error) or type(error).__name__}") from None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer, which no server fills the memory with."""
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE):
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise Failure("oversized_response", f"more than {MAX_ANSWER_BYTES >> 20} MiB")
    return bytes(body)


def _reasons(errors: Any) -> str:
    """Why a batch has failed: errors or texts in a list, or in a table that holds the list."""
    listed = errors.get("data") if isinstance(errors, dict) else errors
    each = listed if isinstance(listed, list) else []
    return redact.cut("; ".join(str(one.get("message", one) if isinstance(one, dict) else one) for one in each), 500)


def request_line(name: str, body: bytes) -> bytes:
    """A request as a line of a batch file."""
    head = orjson.dumps({"custom_id": name, "method": "POST", "url": ENDPOINT})
    return b'%b,"body":%b}\n' % (head[:-1], body)


def line_failure(error: Any) -> Failure | None:
    """The failure of a request that has no response; None where the batch ended before it reached the request."""
    error = error if isinstance(error, dict) else {}
    code = str(error.get("code"))
    if code in _NOT_ANSWERED:
        return None
    return Failure("server_error", redact.cut(f"{code}: {error.get('message')}", 300))
