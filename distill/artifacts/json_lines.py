"""JSON Lines in which a damaged line is found, and costs only itself.

Each line is one JSON object whose last key is `crc`: the CRC-32, as eight hexadecimal digits, of all bytes of the
line before `,"crc"`. Programs that read plain JSON Lines need not know it. In a file without any checksum, as it is
after an edit by hand, all lines count, and a Journal adds checksums before it appends. What becomes of damaged lines
is not decided here (distill/artifacts/damaged_lines.py).
"""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from distill import redact
from distill.artifacts.repeated_keys import repeated_key

CRC = "crc"
BLANK = "blank"
"""Reason of a line that holds nothing but blanks or zeros; no record was there."""
DIFFERS = "its checksum differs"
TWICE = "it names a key twice:"
_MARK = b',"crc":"'
_END = b'"}'
_SEAL_BYTES = len(_MARK) + 8 + len(_END)
_SEAL = re.compile(rb',"crc":"[0-9a-f]{8}"}')
_AROUND = b" \t\r\n\0\xef\xbb\xbf"
"""What editors, systems and power cuts put around a line: blanks, zeros, the bytes of a byte order mark."""
_CHUNK_BYTES = 8 << 20
_STARTS = 64
"""So many places at most are tried as the beginning of a record in a damaged line."""

Record = dict[str, Any]
Check = Callable[[Mapping[str, Any]], str]
"""Describes the fault of a record; empty if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """Bytes that are no record. `line` counts from 1, `start` is the byte in the file."""

    line: int
    start: int
    reason: str
    data: bytes


def seal(record: Any) -> bytes:
    """A record as its line, known secrets masked."""
    body = redact.dumps(record, orjson.OPT_SORT_KEYS)[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def no_check(_: Mapping[str, Any]) -> str:
    return ""


def scan(
    path: Path, check: Check = no_check, *, begin: int = 0, end: int | None = None
) -> Iterator[tuple[int, Record] | Damaged]:
    """Every record of a file with its first byte, and every damaged piece, in their order.

    `begin` and `end` are first bytes of lines: what is before and after them is not read, and lines are counted from
    there. An unfinished last line counts as none of them, because another process may be writing it. In a file
    without any checksum the last record needs no line break: an editor left it out. A missing file holds nothing.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        plain = _is_plain(file)
        reader, start = LineReader(check, plain=plain), begin
        file.seek(begin)
        for line in file:
            if start == end or not (line.endswith(b"\n") or (plain and _plain(line.strip(_AROUND)) is not None)):
                return
            yield from reader.read(line, start)
            start += len(line)


def record_at(file: IO[bytes], start: int) -> Record | None:
    """The record that begins at this byte of an open file; None when none does any more."""
    file.seek(start)
    line = file.readline()
    is_whole = line.endswith(b"\n") or _plain(line.strip(_AROUND)) is not None
    record = next(LineReader(plain=True).read(line, start), None) if is_whole else None
    return record[1] if isinstance(record, tuple) and record[0] == start else None


def read_record(path: Path, start: int) -> Record | None:
    """The record that begins at this byte of a file; None when none does any more."""
    try:
        with path.open("rb") as file:
            return record_at(file, start)
    except FileNotFoundError:
        return None


def records_holding(path: Path, needle: bytes, check: Check) -> Iterator[Record]:
    """The records of lines that hold these bytes. To search bytes is a hundred times faster than to read records."""
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK_BYTES):
            lines, line_break, after = chunk.rpartition(b"\n")
            if not line_break:
                rest += chunk
                continue
            lines, rest = rest + lines, after
            at = lines.find(needle)
            while at >= 0:
                start, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
                end = len(lines) if end < 0 else end
                for piece in LineReader(check, plain=True).read(lines[start:end] + b"\n", 0):
                    if isinstance(piece, tuple):
                        yield piece[1]
                at = lines.find(needle, end)
        if needle in rest and _plain(rest.strip(_AROUND)) is not None:
            for piece in LineReader(check, plain=True).read(rest, 0):
                if isinstance(piece, tuple):
                    yield piece[1]


def cut_torn_tail(file: IO[bytes]) -> int:
    """Truncate to the end of the last whole line; returns that position."""
    end = file.seek(0, os.SEEK_END)
    position = end
    while position > 0:
        start = max(0, position - 65536)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            position = start + newline + 1
            break
        position = start
    if position != end:
        file.truncate(position)
    file.seek(0, os.SEEK_END)
    return position


def is_plain(path: Path) -> bool:
    """Whether a file has lines, all without a checksum."""
    try:
        with path.open("rb") as file:
            return _is_plain(file)
    except FileNotFoundError:
        return False


def _is_plain(file: IO[bytes]) -> bool:
    # The first line decides, unless it is damaged.
    any_line = False
    for line in file:
        any_line = True
        if _sealed(line.strip(_AROUND)) is not None:
            return False
    return any_line


def requiring(*names: str) -> Check:
    """A check that a record has these fields."""

    def check(record: Mapping[str, Any]) -> str:
        return next((f"it has no {name}" for name in names if name not in record), "")

    return check


class LineReader:
    """Takes the lines of one file in their order and says which records they hold.

    `plain`: no line of the file has a checksum.
    """

    def __init__(self, check: Check = no_check, *, plain: bool) -> None:
        self._check = check
        self._plain = plain
        self._line = 0

    def read(self, line: bytes, start: int) -> Iterator[tuple[int, Record] | Damaged]:
        """The records of a line that begins at byte `start`, each with its own first byte, and what is damaged.

        A line holds several where a line break was lost.
        """
        self._line += 1
        record = _sealed(line.removesuffix(b"\n"))
        if record is not None and not self._check(record):
            yield start, record
            return
        begin = 0
        for end in [*(seal_match.end() for seal_match in _SEAL.finditer(line)), len(line)]:
            yield from self._piece(line[begin:end], start + begin, whole=begin == 0)
            begin = end

    def _piece(self, piece: bytes, start: int, *, whole: bool) -> Iterator[tuple[int, Record] | Damaged]:
        core = piece.strip(_AROUND)
        if not core:
            if whole:
                yield self._damaged(piece, start, BLANK)
            return
        for at in _starts(piece):
            record = _sealed(piece[at:].rstrip(_AROUND))
            if record is not None:
                if piece[:at].strip(_AROUND):
                    yield self._damaged(piece[:at], start, DIFFERS)
                fault = self._check(record)
                yield self._damaged(piece[at:], start + at, fault) if fault else (start + at, record)
                return
        record = _plain(core)
        if record is None:
            fault = DIFFERS if _SEAL.search(core) else "it is not one JSON object"
        elif (key := repeated_key(core, record)) is not None:
            fault = f"{TWICE} {key[:80]!r}"
        else:
            fault = self._check(record) if self._plain else "it has no checksum"
        if record is None or fault:
            yield self._damaged(piece, start, fault)
        else:
            yield start + piece.find(core), record

    def _damaged(self, data: bytes, start: int, reason: str) -> Damaged:
        return Damaged(line=self._line, start=start, reason=reason, data=data)


def _starts(piece: bytes) -> Iterator[int]:
    """Where a record may begin: quotes inside a JSON text are escaped, so there are few such places."""
    at = piece.find(b'{"')
    for _ in range(_STARTS):
        if at < 0:
            return
        yield at
        at = piece.find(b'{"', at + 1)


def _sealed(text: bytes) -> Record | None:
    """The record of a line without its line break, if its checksum holds."""
    if text[-_SEAL_BYTES : -_SEAL_BYTES + len(_MARK)] != _MARK or text[-2:] != _END:
        return None
    try:
        if text[-10:-2] != b"%08x" % zlib.crc32(memoryview(text)[:-_SEAL_BYTES]):
            return None
        record: Record = orjson.loads(text)
        del record[CRC]
    except (ValueError, KeyError, TypeError):
        return None
    return record


def _plain(text: bytes) -> Record | None:
    """The record of a line without a checksum."""
    try:
        record = orjson.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) and CRC not in record else None
