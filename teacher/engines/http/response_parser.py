"""The bytes of one HTTP/1.1 response, as they come, to a status, headers and a body.

Covers what servers of models send: a body with a length, in chunks, or up to the end of the connection, plain or
compressed. Every limit is checked while bytes arrive, so no server fills the memory. Reads and sends nothing.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from distill import redact

_MAX_HEAD_BYTES = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?\Z")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_LENGTH = re.compile(r"\d{1,18}\Z")
_CHUNK = re.compile(rb"[0-9a-fA-F]{1,15}\Z")
_MAX_LINE_BYTES = 1 << 12
_WINDOW_BITS: Mapping[str, int] = {"gzip": 31, "x-gzip": 31, "deflate": 15}

OnBody = Callable[[bytes], None]


class BrokenResponseError(Exception):
    """Bytes that are no HTTP response, or one that ended too early."""


class OversizedResponseError(Exception):
    """A body that is larger than any answer should be."""


@dataclass(slots=True)
class HttpResponse:
    """One whole response. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    reusable: bool
    """Whether the connection may carry another request."""


class ResponseParser:
    """Takes the bytes of one response in pieces of any size."""

    def __init__(self, max_body_bytes: int, *, has_body: bool = True, on_body: OnBody | None = None) -> None:
        """`has_body` is false for the answer to CONNECT. `on_body` gets the body of a status 200 as it comes."""
        self._on_body = on_body
        self._max_body_bytes = max_body_bytes
        self._has_body = has_body
        self._rest = b""
        """Bytes of a head, or of a line between chunks, whose end has not come."""
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._length: int | None = None
        """Bytes that the body has; None: up to the end of the connection, or in chunks."""
        self._chunked = False
        self._reusable = False
        self._in_chunk = 0
        """Bytes of a chunk that are to come."""
        self._after_chunk = False
        """Whether the line break after a chunk is to come."""
        self._in_trailer = False

    @property
    def streams(self) -> bool:
        """Whether the head has come and says that the body has no length."""
        return self._status != 0 and self._length is None

    def feed(self, data: bytes) -> HttpResponse | None:
        """The response, if these bytes end it. Raises BrokenResponseError, OversizedResponseError."""
        while not self._status:
            searched = max(0, len(self._rest) - 3)
            self._rest += data
            end = self._rest.find(b"\r\n\r\n", searched)
            if end < 0:
                if len(self._rest) > _MAX_HEAD_BYTES:
                    raise BrokenResponseError("the head of the answer has no end")
                return None
            data, head, self._rest = self._rest[end + 4 :], self._rest[:end], b""
            self._read_head(head)
        if self._chunked:
            return self._feed_chunks(data)
        self._keep(data)
        if self._length is None or len(self._body) < self._length:
            return None
        if len(self._body) > self._length:
            self._reusable = False
            del self._body[self._length :]
        return self._response()

    def end(self) -> HttpResponse:
        """The response, if the end of the connection ends it. Raises BrokenResponseError."""
        if not self._status or self._chunked or self._length is not None:
            raise BrokenResponseError(
                "the connection ended before the answer" if not self._body else "half an answer"
            )
        self._reusable = False
        return self._response()

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        status = _STATUS.match(first)
        if status is None:
            raise BrokenResponseError(f"no HTTP answer: {_shown(first)}")
        headers: dict[str, str] = {}
        for line in lines:
            key, text = _field(line)
            if key == "content-length" and headers.get(key, text) != text:
                raise BrokenResponseError("two lengths for one answer")
            headers[key] = f"{headers[key]}, {text}" if key in headers and key != "content-length" else text
        number = int(status[2])
        if number < 200:
            if number == 101:
                raise BrokenResponseError("the server changed the protocol")
            return  # the answer itself comes after it
        self._status, self._headers = number, headers
        self._frame(keeps=status[1] == b"1")

    def _frame(self, *, keeps: bool) -> None:
        """How the end of the body is known."""
        headers = self._headers
        connection = headers.get("connection", "").lower()
        self._reusable = "close" not in connection and (keeps or "keep-alive" in connection)
        if not self._has_body or self._status in (204, 304):
            self._length = 0
        elif coding := headers.get("transfer-encoding", "").lower():
            if coding != "chunked":
                raise BrokenResponseError(f"transfer-encoding {coding[:40]}")
            self._chunked = True
            self._reusable = self._reusable and "content-length" not in headers
        elif "content-length" in headers:
            if not _LENGTH.match(headers["content-length"]):
                raise BrokenResponseError(f"content-length {headers['content-length'][:40]!r}")
            self._length = int(headers["content-length"])
            if self._length > self._max_body_bytes:
                raise OversizedResponseError

    def _keep(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > self._max_body_bytes:
            raise OversizedResponseError
        if self._on_body is not None and self._status == 200:
            self._on_body(data)

    def _feed_chunks(self, data: bytes) -> HttpResponse | None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        texts: list[bytes] = []
        try:
            ended = self._cut_chunks(data, texts)
        finally:
            if texts:
                self._keep(b"".join(texts))
        return self._response() if ended else None

    def _cut_chunks(self, data: bytes, texts: list[bytes]) -> bool:
        """Add what the chunks in `data` hold to `texts`; true if these bytes end the body."""
        at, end = self._cut_lines(data, texts), len(data)
        while at < end:
            if self._in_chunk:
                begun_before, text = not at, data[at : at + self._in_chunk]
                texts.append(text)
                at += len(text)
                self._in_chunk -= len(text)
                self._after_chunk = not self._in_chunk
                if self._after_chunk and data.startswith(b"\r\n", at):
                    at, self._after_chunk = at + 2, False
                    at += self._cut_lines(data[at:], texts) if begun_before else 0
                continue
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                if end - at > _MAX_LINE_BYTES:
                    raise BrokenResponseError("no size of a chunk")
                self._rest = data[at:]
                return False
            line, at = data[at:line_end], line_end + 2
            if self._after_chunk:
                if line:
                    raise BrokenResponseError("a chunk is longer than it says")
                self._after_chunk = False
            elif not self._in_trailer:
                self._in_chunk = _chunk_size(line)
                self._in_trailer = not self._in_chunk
            elif not line:
                self._reusable = self._reusable and at == end
                return True
        return False

    def _cut_lines(self, data: bytes, texts: list[bytes]) -> int:
        """As `_cut_chunks`, in half the time, where each chunk is whole and one line, as in most answers in pieces.

        Returns where the chunks end; 0 for others.
        """
        if self._in_chunk or self._after_chunk or self._in_trailer:
            return 0
        lines = data.split(b"\r\n")
        sizes, chunks = lines[:-2:2], lines[1:-1:2]
        if sizes[-1:] == [b"0"]:  # the end of the body
            del sizes[-1], chunks[-1]
        try:
            lengths = list(map(_chunk_size, sizes))
        except BrokenResponseError:
            return 0  # a line within a chunk
        if 0 in lengths or lengths != list(map(len, chunks)):
            return 0
        texts += chunks
        return sum(lengths) + sum(map(len, sizes)) + 4 * len(chunks)

    def _response(self) -> HttpResponse:
        body = bytes(self._body)
        if coding := self._headers.get("content-encoding", "").lower():
            body = self._unpacked(body, coding)
        return HttpResponse(self._status, self._headers, body, self._reusable)

    def _unpacked(self, body: bytes, coding: str) -> bytes:
        if coding == "identity":
            return body
        if coding not in _WINDOW_BITS:
            raise BrokenResponseError(f"content-encoding {coding[:40]}, which was not asked for")
        unpacking = zlib.decompressobj(_WINDOW_BITS[coding])
        try:
            unpacked = unpacking.decompress(body, self._max_body_bytes)
        except zlib.error as error:
            raise BrokenResponseError(f"content-encoding {coding}: {error}") from None
        if unpacking.unconsumed_tail:
            raise OversizedResponseError
        return unpacked


def _shown(line: bytes) -> str:
    return redact.cut(repr(line), 80)


@lru_cache(maxsize=1024)  # most headers of a server's answers are the same
def _field(line: bytes) -> tuple[str, str]:
    """Name and value of a header."""
    name, colon, value = line.partition(b":")
    if not colon or not _NAME.match(name):
        raise BrokenResponseError(f"no header: {_shown(line)}")
    return name.decode().lower(), value.strip(b" \t").decode("latin-1")


@lru_cache(maxsize=1024)  # the chunks of an answer in pieces are of few sizes
def _chunk_size(line: bytes) -> int:
    size = line.partition(b";")[0].strip(b" \t")
    if not _CHUNK.match(size):
        raise BrokenResponseError(f"no size of a chunk: {line[:40]!r}")
    return int(size, 16)
